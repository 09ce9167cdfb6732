"""The command line: one file a verb; imports every room."""
