"""The directory of a run's results: checked before the run, and made and filled after it.

So a run that ends without results leaves no directory.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from dliosim.commands.job.terminal import print_text
from dliosim.errors import HELP, UsageError
from dliosim.execute.io_errors import rank_0_error
from dliosim.readable import printable
from dliosim.report.files.results import COMPARE, PARTIAL, RESULTS

#: The files that a run and a comparison write last: if one exists, all other files exist too.
LAST = (RESULTS, COMPARE)

#: All files that results have: `saturate` begins with one rank, and several runs have a folder each.
ANY = (*LAST, *(f"{name}/{RESULTS}" for name in ("0001", "run_*", "warm_up_*")))


def check_directory(option: str, given: str | None, what: str, patterns: Sequence[str]) -> None:
    """Check that files can be made in the directory that an option gives, or in a new one below the current one.

    Raises UsageError if it has files of these patterns, which are `what`, and OSError if no file can be made.
    """
    from tempfile import TemporaryFile  # for rank 0 alone

    if given == "":
        raise UsageError(f"{option} is empty: name a directory")
    if given is not None and any(path for pattern in patterns for path in Path(given).glob(pattern)):
        names = (f"{given.rstrip('/')}-{number}" for number in count(2))
        name = shlex.quote(next(name for name in names if not os.path.lexists(name)))
        raise UsageError(f"{option} {given} has {what}{HELP}write `{option} {name}`, or move them away")
    place = Path(given or ".").absolute()
    while not os.path.lexists(place):
        place = place.parent
    try:
        with TemporaryFile(dir=place):
            return
    except OSError as error:
        # The original error names the temporary file, which the user does not know.
        raise OSError(error.errno, error.strerror, str(place)) from error


class ResultsDirectory:
    """The directory `given`, or a new one called `dliosim-{kind}-{name}-...` for a run of workload `name`.

    The directory is made when it is first asked for. If it is new and still empty when the context ends, it is removed.
    """

    def __init__(self, given: str | None, name: str, started: datetime, kind: str = "results") -> None:
        self._given, self._stem = given, f"dliosim-{kind}-{name}-{started.strftime('%Y%m%dT%H%M%S')}"
        self._made: Path | None = None
        self._is_new = False

    def __enter__(self) -> ResultsDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        if self._made is not None and self._is_new:
            with suppress(OSError):
                self._made.rmdir()

    def make(self) -> Path:
        """Return the directory; OSError if it cannot be made, or if another run has written its results there."""
        if self._made is None:
            self._made, self._is_new = _make_directory(self._given, self._stem)
        for last in LAST:
            if (self._made / last).exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._made / last))
        return self._made

    def remove_partial(self) -> None:
        """Remove partial results, for a command that ends without results. Raises OSError."""
        if self._made is not None:
            (self._made / PARTIAL).unlink(missing_ok=True)


def _make_directory(given: str | None, stem: str) -> tuple[Path, bool]:
    if given is not None:
        directory = Path(given).absolute()
        is_new = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        return directory, is_new
    number = 0
    while True:
        directory = Path(f"{stem}-{number}" if number else stem).absolute()
        try:
            directory.mkdir()
        except FileExistsError:
            number += 1
        else:
            return directory, True


def write_and_print(
    directory: ResultsDirectory, write: Callable[[Path], None], report: Callable[[Path | None], str]
) -> tuple[Path | None, bool]:
    """Write results and print their report; return their directory, and whether both succeeded.

    `write` writes all files to an existing directory. `report` returns the text, for None if the files cannot be
    written, so that the figures of a long run are not lost.
    """
    failures: list[str] = []
    written: Path | None = None
    try:
        place = directory.make()
        write(place)
        written = place
    except OSError as error:
        failures.append(f"{rank_0_error('write the results', error)}\n")
    finally:
        text = report(written)
        try:
            print_text(text)
        except OSError as error:
            failures.append(f"{rank_0_error('print the tables', error)}\n{results_line(written)}")
    sys.stderr.write("".join(failures))
    return written, not failures


def results_line(place: Path | None) -> str:
    """Return the line that says where results are; empty if there are none."""
    return f"results: {printable(str(place))}\n" if place is not None else ""
