"""Saving and restoring checkpoints."""
