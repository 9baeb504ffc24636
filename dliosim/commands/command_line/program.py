"""The name of the program as the user typed it, for every command line that is shown."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def load_named(place: str) -> Any:
    """Return a function or class of `dliosim` by its place, `module:name`."""
    module, name = place.split(":")
    return getattr(import_module(f"dliosim.{module}"), name)


def find_program() -> str:
    """Return the command or path that starts dliosim."""
    import shutil  # for rank 0 alone

    return name_program(sys.argv[0], shutil.which("dliosim"))


def name_program(started: str, on_path: str | None) -> str:
    """Return the command that starts dliosim: the path `started`, if it has a folder and PATH leads elsewhere."""
    path = Path(started)
    is_typed = path.name == "dliosim" != started and str(path.absolute()) != on_path
    return started if is_typed else "dliosim"


def insert_program(text: str, program: str | None = None) -> str:
    """Return a text whose command lines begin with the dliosim of this environment, and with the mpiexec next to it."""
    program = program or find_program()
    if program == "dliosim":
        return text
    from dliosim.commands.command_line.command_table import COMMANDS
    from dliosim.measure.answers.advice import find_mpiexec

    names = "|".join(COMMANDS)
    text = re.sub(r"(?<![\w./-])mpiexec(?= -n \d+ dliosim )", lambda found: find_mpiexec(program), text)
    return re.sub(rf"(?<![\w./-])dliosim(?= (?:(?:{names})\b|COMMAND|--))", lambda found: program, text)
