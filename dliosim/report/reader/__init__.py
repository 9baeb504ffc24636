"""Results read back from disk. They may come from anywhere: sizes, types and shapes are checked before use."""
