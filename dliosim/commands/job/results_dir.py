"""The directory of a run's results: checked before the run, and made after it.

So a run that ends without results leaves no directory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from dliosim.errors import HELP, UsageError
from dliosim.report.files.results import COMPARE, RESULTS

#: The files that a run and a comparison write last: where one exists, all other files exist too.
LAST = (RESULTS, COMPARE)


def check_output_directory(given: str | None) -> None:
    """Check that the results can go to the directory `given`, or to a new one below the current one.

    Raises UsageError where it has the results of another run or comparison, and OSError where no file can be made.
    """
    from tempfile import TemporaryFile  # for rank 0 alone

    if given == "":
        raise UsageError("--output is empty: name a directory")
    if given is not None and any((Path(given) / name).exists() for name in LAST):
        cure = f"write `--output {_find_free(given)}`, or move them away"
        raise UsageError(f"--output {given} has the results of another run{HELP}{cure}")
    place = Path(given or ".").absolute()
    while not os.path.lexists(place):
        place = place.parent
    try:
        with TemporaryFile(dir=place):
            return
    except OSError as error:
        # The original error names the temporary file, which the user does not know.
        raise OSError(error.errno, error.strerror, str(place)) from error


def _find_free(given: str) -> str:
    """Return the name of a directory that is not there yet, like the one given."""
    return next(name for name in (f"{given.rstrip('/')}-{number}" for number in count(2)) if not os.path.lexists(name))


@contextmanager
def results_directory(
    given: str | None, name: str, started: datetime, kind: str = "results"
) -> Iterator[Callable[[], Path]]:
    """Yield a function that returns the directory `given`, or a new one, made when it is first asked for.

    A new one is called `dliosim-{kind}-{name}-...`, for a run of workload `name`. If it is new and still empty when the
    block ends, it is removed. The function raises OSError, and FileExistsError where another run has written its
    results there during this run.
    """
    made: list[tuple[Path, bool]] = []

    def directory() -> Path:
        if not made:
            made.append(_make_directory(given, f"dliosim-{kind}-{name}", started))
        for last in LAST:
            if (made[0][0] / last).exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(made[0][0] / last))
        return made[0][0]

    try:
        yield directory
    finally:
        for path, is_new in made:
            if is_new:
                with suppress(OSError):
                    path.rmdir()


def _make_directory(given: str | None, stem: str, started: datetime) -> tuple[Path, bool]:
    if given is not None:
        directory = Path(given).absolute()
        is_new = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        return directory, is_new
    stem = f"{stem}-{started.strftime('%Y%m%dT%H%M%S')}"
    number = 0
    while True:
        directory = Path(f"{stem}-{number}" if number else stem).absolute()
        try:
            directory.mkdir()
        except FileExistsError:
            number += 1
        else:
            return directory, True
