"""Epochs and steps."""
