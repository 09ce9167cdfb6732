"""One file a method; what methods share lies in shared/; imports core, labels and networks.interface."""
