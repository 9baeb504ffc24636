"""Results read back from disk. They may come from anywhere, so sizes, types and shapes are checked before use."""
