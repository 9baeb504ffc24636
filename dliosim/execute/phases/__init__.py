"""Shared parts of all phases of a run: the context, page cache residency, and the figures at the end of a phase."""
