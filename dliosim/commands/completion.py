"""The command `dliosim completion`: a script for bash or zsh that completes commands, options, files and patterns."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from dliosim.commands.command_line.parser import make_parser
from dliosim.commands.command_line.pattern_files import list_names
from dliosim.errors import HELP, UsageError, install_hint

#: Complete a pattern: the names at the time when the script is made, in place of `NAMES`, and files.
_PATTERNS: Final = {shell: Path(__file__).with_name(f"patterns.{shell}") for shell in ("bash", "zsh")}


def completion_command(parsed: SimpleNamespace) -> int:
    """Print the script for a shell; return 0. UsageError if the package that makes it is not installed."""
    try:
        import shtab
    except ImportError as error:
        raise UsageError(f"completion needs shtab{HELP}{install_hint('completion')}") from error
    pattern = dict.fromkeys(_PATTERNS, "_dliosim_patterns")
    completions = dict.fromkeys(("PATTERN", "CODE|PATTERN", "PATTERN|FILE"), pattern)
    completions |= dict.fromkeys(("FILE", "TRACE"), shtab.FILE) | dict.fromkeys(("DIR", "RESULTS"), shtab.DIRECTORY)
    preamble = _PATTERNS[parsed.shell].read_text(encoding="utf-8").replace("NAMES", " ".join(list_names()))
    sys.stdout.write(shtab.complete(make_parser(completions), parsed.shell, preamble=preamble))
    return 0
