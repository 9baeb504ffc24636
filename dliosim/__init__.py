"""A pure-MPI simulator of deep-learning I/O."""

__version__ = "0.1.0"
