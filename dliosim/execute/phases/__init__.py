"""Needs of every phase of a run: the run itself, what memory has of its files, and the figures that it ends with."""
