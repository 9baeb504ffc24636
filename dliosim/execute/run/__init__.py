"""A pattern from top to bottom."""
