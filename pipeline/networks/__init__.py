"""Backbones, heads and what they answer; imports core."""
