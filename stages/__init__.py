"""One thin file a stage, and how each starts (entry)."""
