"""The common part of the benchmark scripts: start of ranks, an end that leaves nothing, medians, markdown rows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn, TypeVar

Work = TypeVar("Work")

ROOT = Path(__file__).resolve().parents[2]

_OF_A_LAUNCHER = ("PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "HYDI_")


def is_of_launcher(name: str) -> bool:
    """Return True for a variable that a launcher sets for its ranks, False for one that its user sets."""
    return name.startswith(_OF_A_LAUNCHER) and not name.startswith("OMPI_ALLOW_RUN_AS_ROOT")


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: What a started command has to end by itself, and to end its own processes; seconds.
_GRACE = 10.0


def orderly(main: Callable[[], int | None]) -> NoReturn:
    """Exit with what `main` returns. Ctrl-C, SIGTERM and SIGHUP unwind it, as an error would.

    What it started is then ended, its data are removed, a line says so, and the status is 128 and the signal's number.
    Not so in a rank: that has to end at once, even inside a call of MPI, and its launcher's caller cleans up.
    """
    if any(map(is_of_launcher, os.environ)):
        sys.exit(main())
    # nohup, or a shell's background, has some of them ignored.
    handled = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]

    def unwind(number: int, _: object) -> NoReturn:
        for each in handled:
            signal.signal(each, signal.SIG_IGN)  # a second one would cut the cleaning up short
        raise KeyboardInterrupt(signal.Signals(number))

    for each in handled:
        signal.signal(each, unwind)
    try:
        status = main()
    except KeyboardInterrupt as interrupt:
        (number,) = interrupt.args
        print(f"{Path(sys.argv[0]).name}: {number.name}: ended what it started, removed its data", file=sys.stderr)
        status = 128 + number
    sys.exit(status)


@contextmanager
def _hold_signals() -> Iterator[None]:
    """Delay signals that have a handler until the block ends: what it begins is then known, what it removes is gone.

    They are not blocked by a mask, which a started command would inherit.
    """
    came: list[int] = []
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda caught, _: came.append(caught))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def mpiexec() -> str:
    """Return the launcher next to this interpreter, or on the path; ends the script where there is none."""
    neighbour = Path(sys.executable).with_name("mpiexec")
    found = str(neighbour) if neighbour.exists() else shutil.which("mpiexec")
    if found is None:
        sys.exit("no mpiexec next to this Python nor on the path: install the extra `mpich`, or load the site's MPI")
    return found


def environment() -> dict[str, str]:
    """Return the environment without a launcher's variables, in which `import dliosim` finds this checkout."""
    inherited = {name: value for name, value in os.environ.items() if not is_of_launcher(name)}
    inherited["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
    return inherited


def run(command: Sequence[str], seconds: float, extra: dict[str, str] | None = None) -> str:
    """Return the output of a command; ends its process group after `seconds`, and the script where it fails.

    A command fails with any status but 0.
    """
    process: subprocess.Popen[str] | None = None
    try:
        with _hold_signals():
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment(), **(extra or {})},
                start_new_session=True,
            )
        out, errors = process.communicate(timeout=seconds)
    except BaseException as ended:
        # Ctrl-C reaches this script alone: what it has started stands in a group of its own.
        out, errors = _end(process) if process is not None else ("", "")
        if isinstance(ended, subprocess.TimeoutExpired):
            sys.exit(f"{' '.join(command)}: took more than {seconds} s\n{out}\n{errors}")
        raise
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}\n{out}\n{errors}")
    return out


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a command and its process group; return what it has printed.

    SIGKILL comes second: fio and mpiexec have processes in further groups, and end them if they are asked to.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_GRACE)
    return "", ""  # what still holds its pipes is in another group


def run_ranks(ranks: int, script: str, *arguments: str, seconds: float = 300) -> Any:
    """Return the JSON that a script prints last when it runs on these ranks; all of them end if one raises."""
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "mpi4py", script, *arguments]
    return json.loads(run(command, seconds).splitlines()[-1])


@contextmanager
def scratch(place: str) -> Iterator[Path]:
    """Yield a directory below `place` that is removed after the block."""
    directory = tempfile.TemporaryDirectory(prefix="dliosim-bench-", dir=place)
    try:
        yield Path(directory.name)
    finally:
        with _hold_signals():
            directory.cleanup()


def middle(values: Sequence[float], digits: int = 2, unit: float = 1.0) -> str:
    """Return the median, the least and the greatest value as text."""
    low, high = min(values) * unit, max(values) * unit
    return f"{statistics.median(values) * unit:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def row(*cells: object) -> None:
    """Print one row of a markdown table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(*cells: str) -> None:
    """Print the head of a markdown table."""
    row(*cells)
    print("|" + "---|" * len(cells), flush=True)


def one_by_one(rows: Sequence[tuple[str, float, Work]]) -> Iterator[Work]:
    """Yield the work of each row (name, seconds expected, work); print on standard error which row begins.

    What is left is by the pace so far, once a row is done.
    """
    began, done, whole = monotonic(), 0.0, sum(seconds for _, seconds, _ in rows)
    for number, (name, seconds, work) in enumerate(rows, 1):
        pace = (monotonic() - began) / done if done else 1.0
        print(
            f"row {number} of {len(rows)}: {name} (roughly {roughly((whole - done) * pace)} left)",
            file=sys.stderr,
            flush=True,
        )
        yield work
        done += seconds


def roughly(seconds: float) -> str:
    """Return a time as text: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def write_whole(path: Path, text: str) -> None:
    """Write a file that is never there in part."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
