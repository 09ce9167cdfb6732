"""Figures from arrays, without torch but for landscapes; imports core and labels."""
