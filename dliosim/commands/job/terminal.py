"""The user's terminal, which belongs to this process or to the launcher that carries its output; and its colours."""

from __future__ import annotations

import os
import stat
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from dliosim.commands.job.launcher import find_launchers
from dliosim.readable import printable

#: When to print colours, as `--colour` says: `auto`, `never` or `always`.
colour_choice = ["auto"]


def user_terminal(own: TextIO | None = None, descriptor: int = 2) -> TextIO | None:
    """Return the terminal that shows a stream of this process (default: standard error), or None.

    Under a launcher it is the terminal of the launcher on this node: the rank's own stream is a pipe to the launcher,
    or under Open MPI a pseudo-terminal whose text may go to a file. `own` and `descriptor` are the stream and its
    number.
    """
    own = own or sys.stderr
    launchers = find_launchers()
    for process in launchers:
        terminal = _open_terminal(Path(f"/proc/{process}/fd/{descriptor}"))
        if terminal is not None:
            return terminal
    return own if own.isatty() and not launchers and "OMPI_COMM_WORLD_RANK" not in os.environ else None


def _open_terminal(path: Path) -> TextIO | None:
    try:
        if not stat.S_ISCHR(path.stat().st_mode):
            return None
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    if not os.isatty(descriptor):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="replace")


def has_colours(own: TextIO, descriptor: int) -> bool:
    """Return True if a stream, standard output (1) or error (2), is shown on a terminal that takes colours.

    `--colour` decides first. NO_COLOR (https://no-color.org) and TERM=dumb refuse them, FORCE_COLOR asks for them if
    there is no terminal.
    """
    if colour_choice[0] != "auto":
        return colour_choice[0] == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    terminal = user_terminal(own, descriptor)
    if terminal is not None and terminal is not own:
        terminal.close()
    return terminal is not None


def print_text(text: str) -> None:
    """Print a text, in colours if they are shown. Raises OSError, but not for a closed pipe."""
    text = printable(text, lines=True)
    if has_colours(sys.stdout, 1):
        from dliosim.report.colours import add_colours

        text = add_colours(text)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        discard_output()
        if not isinstance(error, BrokenPipeError):
            raise


def open_streams() -> None:
    """Discard what goes to standard streams that are closed (`>&-`), and replace what these cannot encode by `?`.

    Otherwise a newly opened file would get the number of a closed stream, and libraries would write their messages into
    it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is not in use, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def discard_output() -> None:
    """Discard the output that Python still buffers, so that it does not fail a second time at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
