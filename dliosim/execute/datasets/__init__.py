"""Find, preallocate and write data sets."""
