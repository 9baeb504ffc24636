"""The command `dliosim patterns`: the patterns that come with dliosim, and what each stresses."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from dliosim import PATTERNS
from dliosim.commands.command_line.pattern_files import list_names
from dliosim.commands.command_line.program import insert_program

_USE = """
  dliosim explain NAME               every setting, with its value and where it is from
  dliosim plan NAME --ranks 512      what would 512 ranks do?
  mpiexec -n 4 dliosim run NAME      do it, with real I/O

They are files in {folder}
"""


def patterns_command(parsed: SimpleNamespace) -> int:
    """Print a line for each pattern that comes with dliosim, and how to use one; return 0."""
    listed = list_names()
    width = max(map(len, listed))
    for name in listed:
        # A pattern's first line is a comment that says what it stresses.
        with (PATTERNS / f"{name}.dlio").open(encoding="utf-8") as file:
            sys.stdout.write(f"{name:<{width}}  {file.readline().lstrip('# ')}")
    sys.stdout.write(insert_program(_USE).format(folder=PATTERNS))
    return 0
