"""The command line: commands and options, their values, files of patterns, and cures of mistakes."""
