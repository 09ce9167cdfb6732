"""Inputs, the loop, search, scores, runs; imports core, labels, networks, data, methods and audits."""
