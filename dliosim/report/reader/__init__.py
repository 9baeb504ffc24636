"""Results read back from disk. They may come from anybody: sizes, types and shapes are checked before they are used."""
