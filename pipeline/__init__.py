"""Single positive multi-label learning: the library behind the stages."""
