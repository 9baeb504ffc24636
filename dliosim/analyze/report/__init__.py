"""Text and JSON of an analysis."""
