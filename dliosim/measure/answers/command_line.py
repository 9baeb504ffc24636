"""The command line of a run, with a change: what advice shows, to be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Protocol


class RankCommand(Protocol):
    """A command that ran on ranks."""

    @property
    def program(self) -> str:
        """Return what to type for dliosim."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return its words."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""


def command_line(
    run: RankCommand,
    override: str = "",
    needless: Collection[str] = (),
    without: tuple[str, ...] = (),
    ranks: int = 0,
    option: tuple[str, ...] = (),
) -> str:
    """Return the command line with one more -D or `option` and its value, without some options, or by other `ranks`.

    The -D and the option replace earlier ones of the same name, and -D of the names `needless`. Results go to a new
    directory, and the answer to a screen.
    """
    words: list[str] = []
    replaced, rest = {*needless, override.partition("=")[0]}, iter(run.arguments)
    for word in rest:
        value = next(rest, "") if word in ("-D", "--output", *option[:1]) else ""
        name = (value or word.removeprefix("-D")).partition("=")[0] if word.startswith("-D") else ""
        if not (name in replaced - {""} or word.partition("=")[0] in (*without, "--output", "--json", *option[:1])):
            words += [word, value] if word == "-D" else [word]
    number = ranks or run.ranks
    launcher = [find_mpiexec(run.program), "-n", str(number)] if number > 1 else []
    return shlex.join([*launcher, run.program, *words, *(["-D", override] if override else []), *option])


def find_mpiexec(program: str) -> str:
    """Return what to type for mpiexec: that of the environment from which dliosim was typed as a path."""
    beside = Path(program).with_name("mpiexec")
    return str(beside) if "/" in program and beside.exists() else "mpiexec"
