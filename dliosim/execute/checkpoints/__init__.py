"""Save and restore checkpoints."""
