"""Models that people use: a run bundled into a folder, and its predictions; imports core, data and networks."""
