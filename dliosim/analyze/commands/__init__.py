"""The commands of the analysis, which the command line names."""
