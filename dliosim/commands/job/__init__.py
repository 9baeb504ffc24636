"""The frame of a command on ranks: launcher, signals, terminal, set-up, directories of results, every way to end."""
