"""Review: pictures and classes to ask a person about, as a page, a server or another tool's tasks, and the answers."""
