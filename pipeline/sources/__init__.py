"""One file a dataset layout; imports core, labels and data."""
