"""What real data loaders do at the level of system calls, and how alike dliosim is."""
