"""Getting the next batch."""
