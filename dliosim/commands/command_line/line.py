"""Read the whole command line; ranks other than 0 import neither this module nor the parser and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from dliosim.commands.command_line.parser import Misuse, parse_words
from dliosim.commands.command_line.program import insert_program
from dliosim.errors import DiagnosticsError
from dliosim.readable import printable


def parse_line(words: Sequence[str]) -> SimpleNamespace:
    """Return the parsed words after `dliosim`, and the command's `function`.

    Raises DiagnosticsError with the line to type instead, SystemExit if the words ask for help.
    """
    try:
        parsed = parse_words(words)
    except Misuse as error:
        from dliosim.commands.command_line.suggestions import describe_misuse

        raise DiagnosticsError(printable(insert_program(describe_misuse(words, str(error))), lines=True)) from error
    parsed.function = vars(parsed).pop("command").function
    return parsed
