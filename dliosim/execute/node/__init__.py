"""What the machine of a rank does: cores, memory, page cache, free space, striping."""
