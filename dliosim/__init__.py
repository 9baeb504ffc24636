"""A pure-MPI simulator of deep-learning I/O."""

from pathlib import Path

__version__ = "0.1.0"

#: The patterns that are installed with it; in a checkout a link to patterns/.
PATTERNS = Path(__file__).parent / "patterns"
