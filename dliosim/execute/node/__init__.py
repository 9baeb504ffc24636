"""The machine of a rank: cores, memory, page cache, free space, striping."""
