"""The text that a run prints: the first lines, warnings, rows, and all tables."""
