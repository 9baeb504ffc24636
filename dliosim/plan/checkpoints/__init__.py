"""The layout of a model's state on ranks and in files."""
