"""The parser of the command line, made from the table of commands, and the text of `dliosim --help`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

import dliosim
from dliosim.commands.command_table import COMMANDS

#: The commands that a newcomer needs.
_FIRST: Final = ("patterns", "run", "report")

_HELP: Final = """\
usage: dliosim COMMAND ...

Simulates the I/O of deep-learning jobs with real files, MPI ranks and no framework.

Begin with these three:

{first}
The others:

{others}
`dliosim COMMAND --help` lists the options of a command; `dliosim --version` prints
the version.

Exit status: 0 done, 1 the run failed, 2 bad pattern or usage, 3 an `expect` line
was missed, 130 Ctrl-C, 143 SIGTERM.
"""


class Misuse(Exception):
    """A command line that cannot be read; the text is what argparse says."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions, so that one place says what to type instead."""

    def error(self, message: str) -> NoReturn:
        """Raise Misuse."""
        raise Misuse(message)


class _MainParser(_Parser):
    """The parser of the whole command line."""

    def format_help(self) -> str:
        """Return the commands, those of a newcomer first, each with an example."""
        others = [name for name in COMMANDS if name not in _FIRST]
        return _HELP.format(first=_format_commands(_FIRST), others=_format_commands(others))


def make_parser(completions: Mapping[str, object] | None = None) -> argparse.ArgumentParser:
    """Return the parser; `completions` are what a shell completes, by the metavar of an option or argument."""
    # No abbreviations: a new option could make one ambiguous, and break scripts that use it.
    parser = _MainParser(prog="dliosim", usage="dliosim COMMAND ...", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"dliosim {dliosim.__version__}")
    parsers = parser.add_subparsers(metavar="COMMAND", required=True, prog="dliosim", parser_class=_Parser)
    for name, command in COMMANDS.items():
        text = command.description
        drawn = argparse.RawDescriptionHelpFormatter if text and "\n" in text else argparse.HelpFormatter
        own = parsers.add_parser(name, help=command.help, description=text, formatter_class=drawn, allow_abbrev=False)
        own.set_defaults(command=command)
        for names, arguments in command.options:
            action = own.add_argument(*names, **arguments)
            shown = arguments.get("metavar", "")
            if completions and shown in completions:
                action.complete = completions[shown]  # type: ignore[attr-defined]  # where shtab looks for it
    return parser


def _format_commands(names: Iterable[str]) -> str:
    """Return two lines for each command: what it does, and an example."""
    return "".join(f"  {name:<10}  {COMMANDS[name].help}\n{'':<14}{COMMANDS[name].example}\n" for name in names)
