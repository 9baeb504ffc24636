"""Every operation of a run, one row each: recorded, stored, read back and exported."""
