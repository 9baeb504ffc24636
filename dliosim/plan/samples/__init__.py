"""The bytes of files that each rank reads and writes."""
