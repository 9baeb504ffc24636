"""The parser of the command line, built from the table of commands, and the text of `dliosim --help`."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import fill, wrap
from types import SimpleNamespace
from typing import Final, NoReturn

import dliosim
from dliosim.commands.command_line.command_table import COMMANDS, EXAMPLES, Command
from dliosim.commands.command_line.program import insert_program
from dliosim.dlio import ENDINGS
from dliosim.trace.cut import is_cut

#: The commands that a newcomer needs.
_FIRST: Final = ("patterns", "run", "report")

#: The commands that take a workload file of DLIO in place of a pattern.
_IMPORTING: Final = ("run", "plan", "size", "check", "compare", "explain")

#: Texts of --help: of the whole program, and what stands above the options of commands that say more than a line.
_TEXTS: Final = Path(__file__).with_name("descriptions")

#: The option that all commands have.
_COLOUR: Final = "when to print colours (default auto: on a terminal, unless NO_COLOR is set)"


class Misuse(Exception):
    """A command line that cannot be parsed; the text is argparse's message."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions, so that one place says what to type instead."""

    def error(self, message: str) -> NoReturn:
        """Raise Misuse."""
        raise Misuse(message)

    def format_help(self) -> str:
        """Return the text of --help, whose lines can be typed."""
        return insert_program(super().format_help())


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Descriptions as they stand, and the example of an option on a line of its own."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        text, _, example = text.partition("; as -")
        return [*wrap(text, width, break_on_hyphens=False), *([f"as -{example}"] if example else [])]


class _MainParser(_Parser):
    """The parser of the whole command line."""

    def format_help(self) -> str:
        """Return the commands, those of a newcomer first, each with an example."""
        others = [name for name in COMMANDS if name not in _FIRST]
        text = (_TEXTS / "dliosim.txt").read_text(encoding="utf-8")
        return insert_program(text.format(first=_format_commands(_FIRST), others=_format_commands(others)))


def make_parser(completions: Mapping[str, object] | None = None, only: str = "") -> argparse.ArgumentParser:
    """Return the parser; `completions` are what a shell completes, by the metavar of an option or argument.

    With `only` it has one command: to make the options of all takes longer than to parse a line.
    """
    # No abbreviations: a new option could make one ambiguous, and break scripts that use it.
    parser = _MainParser(prog="dliosim", usage="dliosim COMMAND ...", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"dliosim {dliosim.__version__}")
    parsers = parser.add_subparsers(metavar="COMMAND", required=True, prog="dliosim", parser_class=_Parser)
    for name, command in {only: COMMANDS[only]}.items() if only else COMMANDS.items():
        text = _describe(name, command)
        own = parsers.add_parser(
            name, help=command.help, description=text, formatter_class=_Formatter, allow_abbrev=False
        )
        own.set_defaults(command=command)
        for names, arguments in command.options:
            action = own.add_argument(*names, **arguments)
            if names[0] in EXAMPLES and f"{names[0]} " not in str(action.help):
                action.help = f"{action.help}; as {names[0]} {quote_word(EXAMPLES[names[0]])}".replace("%", "%%")
            shown = arguments.get("metavar", "")
            if completions and shown in completions:
                action.complete = completions[shown]  # type: ignore[attr-defined]  # where shtab looks for it
        own.add_argument("--colour", "--color", choices=("auto", "never", "always"), default="auto", help=_COLOUR)
    return parser


def parse_words(words: Sequence[str]) -> SimpleNamespace:
    """Return the parsed words after `dliosim`; raise Misuse. Overrides of DLIO's keys may follow options."""
    others, overrides = split_overrides(words)
    command = others[0] if others and others[0] in COMMANDS else ""
    parsed = make_parser(only=command).parse_args(_end_trace(others), SimpleNamespace())
    parsed.override = [*getattr(parsed, "override", []), *overrides]
    if reason := parsed.command.find_contradiction(parsed):
        raise Misuse(reason)
    return parsed


def _end_trace(words: Sequence[str]) -> list[str]:
    """Return the words with `--trace=` for a `--trace` that the pattern follows, which it would take for a part."""
    pairs = pairwise([*words, ""])
    return ["--trace=" if word == "--trace" and not is_cut(after) else word for word, after in pairs]


def split_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a line without overrides of DLIO's keys (`++train.epochs=7`, `~train.epochs`), and these.

    A line has such words if it names a workload file of DLIO.
    """
    command = next(iter(words), "")
    is_imported = command in _IMPORTING and any(word.endswith(ENDINGS) for word in words[1:])
    # `check` takes any number of patterns, and would take overrides for some.
    if command not in ("import", "check") and not is_imported:
        return list(words), []
    others: list[str] = []
    overrides: list[str] = []
    for before, word in pairwise(["", *words]):
        is_key = re.match(r"[+]{1,2}\w|~\w|workload\.[\w.]+=", word) and before not in ("-D", "--vary")
        (overrides if is_key else others).append(word)
    return others, overrides


def _describe(name: str, command: Command) -> str:
    """Return the text of a command's own --help: paragraphs of 79 columns, lines that are indented, and an example."""
    file = _TEXTS / f"{name}.txt"
    text = file.read_text(encoding="utf-8") if file.exists() else f"{command.help[0].upper()}{command.help[1:]}."
    text += "" if "\n  " in text else f"\n\n  {command.example}\n"
    parts = text.split("\n\n")
    return "\n\n".join(part if re.search(r"^ ", part, re.MULTILINE) else fill(part, 79) for part in parts)


def quote_word(word: str) -> str:
    """Return a word quoted for a shell, after the `=` if it has one."""
    if re.fullmatch(r"[\w*.,/=:-]+", word):
        return word
    name, equals, value = word.partition("=")
    if set(word) & set('"$`\\') or (equals and not re.fullmatch(r"[\w.]+", name)):
        return shlex.quote(word)
    return f'{name}="{value}"' if equals else f'"{word}"'


def _format_commands(names: Iterable[str]) -> str:
    """Return two lines for each command: what it does, and an example."""
    return "".join(f"  {name:<10}  {COMMANDS[name].help}\n{'':<14}{COMMANDS[name].example}\n" for name in names)
