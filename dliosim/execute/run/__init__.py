"""Run a pattern from top to bottom."""
