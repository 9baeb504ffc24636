"""Which bytes of which files each rank reads and writes."""
