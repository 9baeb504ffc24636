"""The command `dliosim completion`: a script for bash or zsh that completes commands, options, files and patterns."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Final

from dliosim.commands.command_line.parser import make_parser
from dliosim.commands.command_line.pattern_files import list_names
from dliosim.errors import HELP, UsageError, install_hint

#: Completes a pattern: the names at the time when the script is made, and files.
_PATTERNS: Final = {
    "bash": """\
_dliosim_patterns() {{
    compgen -W "{names}" -- "$1"
    compgen -f -X '!*.dlio' -- "$1"
    compgen -d -S / -- "$1"
}}
""",
    "zsh": """\
_dliosim_patterns() {{
    compadd {names}
    _files -g '*.dlio'
}}
""",
}


def completion_command(parsed: SimpleNamespace) -> int:
    """Print the script for a shell; return 0. UsageError if the package that makes it is not installed."""
    try:
        import shtab
    except ImportError as error:
        raise UsageError(f"completion needs shtab{HELP}{install_hint('completion')}") from error
    pattern = dict.fromkeys(_PATTERNS, "_dliosim_patterns")
    completions = {
        "PATTERN": pattern,
        "CODE|PATTERN": pattern,
        "PATTERN|FILE": pattern,
        "FILE": shtab.FILE,
        "TRACE": shtab.FILE,
    }
    completions |= dict.fromkeys(("DIR", "RESULTS"), shtab.DIRECTORY)
    preamble = _PATTERNS[parsed.shell].format(names=" ".join(list_names()))
    sys.stdout.write(shtab.complete(make_parser(completions), parsed.shell, preamble=preamble))
    return 0
