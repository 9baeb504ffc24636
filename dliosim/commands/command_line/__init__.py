"""The command line: commands and options, their values, files of patterns, and suggestions for mistakes."""
