"""Loops: their epochs, steps and syncs."""
