"""Review: what to ask a person about, as a page, a server or another tool's tasks; imports core, labels and audits."""
