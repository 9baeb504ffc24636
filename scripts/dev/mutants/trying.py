"""The commands that look at a pattern, each a process with limits, and what is wrong with what they say."""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from dliosim import cli

#: What each command may take: seconds of processor, and bytes of resident memory.
SECONDS = 5
RESIDENT = 10**9

#: Where a command is ended: seconds of processor, of the clock (others may have the processor: it hangs only if it uses
#: none), and bytes of address space, for the machine's sake.
HARD_SECONDS = 30
_CLOCK_SECONDS = 900
_ADDRESSES = 8 * 10**9

#: Bytes that are read of what a command prints; then the pipe is closed, as `head` does.
_READ = 1 << 21

_WRONG_FIGURE = re.compile(r"(?i)(?<![\w.$\"'`-])[-+]?(?:nan|inf|infinity)(?![\w.\"'`])")
_NEGATIVE = re.compile(r"(?<![\w.)\"-])(?<![\w)] )-[0-9][0-9_.]*")
#: The place of a mistake in a pattern.
PLACE = re.compile(r"^ *(?:-->|:::) .+:\d+:\d+$", re.MULTILINE)
_REASON = re.compile(r"^error(?:\[[ER]\d+\])?: \S.{9,}", re.MULTILINE)
_TRACED = re.compile(r'File "[^"]*?/(dliosim/[^"]+)", line (\d+),? in (\w+)')


@dataclass(frozen=True)
class Done:
    """The end of a command: status (a negative one is a signal), resources, and output."""

    command: str
    status: int
    seconds: float
    resident: int
    out: str
    err: str


def warm(pattern: Path) -> None:
    """Import and build all that the commands need, in this process, so that its forks need not."""
    with Path(os.devnull).open("w") as nowhere:
        before = sys.stdout
        sys.stdout = nowhere
        try:
            for command in ("check", "explain", "plan"):
                cli.main([command, str(pattern), "--ranks", "4"])
            cli.main(["plan", str(pattern), "--ranks", "4", "--csv"])
        finally:
            sys.stdout = before


def attempt(arguments: Sequence[str], errors: Path) -> Done:
    """Run a command of dliosim in a fork of this process; `errors` is a file for its standard error."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _run(arguments, writable, errors)
    os.close(writable)
    with os.fdopen(readable, "rb") as stream:
        out = stream.read(_READ)
    _, status, used = os.wait4(child, 0)
    return Done(
        " ".join(arguments[:1] + [each for each in arguments if each == "--csv"]),
        os.waitstatus_to_exitcode(status),
        used.ru_utime + used.ru_stime,
        used.ru_maxrss * 1024,
        out.decode(errors="replace"),
        errors.read_text(errors="replace"),
    )


def _run(arguments: Sequence[str], out: int, errors: Path) -> NoReturn:
    """Run the command in its process. After SECONDS of processor time it prints its stack once a second."""
    status = 70
    try:
        os.dup2(out, 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8") for number in (1, 2))  # noqa: PTH123, SIM115
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        faulthandler.register(signal.SIGXCPU, file=2, all_threads=False)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, HARD_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(_CLOCK_SECONDS)
        status = cli.main(list(arguments))
        sys.stdout.flush()
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 70
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        sys.stderr.flush()
        os._exit(status)


def faults(done: Done) -> Iterator[str]:
    """Return what is wrong with the end of a command; the same text for the same cause where it can be seen."""
    place = _stack_place(done.err)
    if done.status < 0:
        yield f"ended by {signal.Signals(-done.status).name}{place}"
    elif "Traceback (most recent call last)" in done.err or "fault in dliosim itself" in done.err:
        words = done.err.strip().splitlines()[-1].split(":")[0]
        yield f"traceback: {words}{place}"
    elif done.status not in (0, 1, 2):
        yield f"exit status {done.status}"
    if done.seconds > SECONDS and done.status >= 0:
        yield f"more than {SECONDS} s of processor{place}"
    if done.resident > RESIDENT:
        yield f"more than {RESIDENT / 1e9:g} GB resident, {done.command}"
    if done.status == 0:
        yield from _wrong_figures(done)
    elif done.status in (1, 2):
        yield from _poor_refusal(done)


def _stack_place(err: str) -> str:
    """Return the last line of dliosim in a stack: faulthandler has it first, a traceback last."""
    places = _TRACED.findall(err)
    if not places:
        return ""
    found = places[-1] if "Traceback (most recent call last)" in err else places[0]
    return f" in {found[0]}:{found[1]} {found[2]}"


def _wrong_figures(done: Done) -> Iterator[str]:
    if not done.out.strip():
        yield f"{done.command}: nothing printed"
    if done.command == "explain":
        return  # it repeats the pattern's own texts
    figures = "\n".join(line for line in done.out.splitlines() if "; digest " not in line)  # the pattern's title
    for what, form in (("no number", _WRONG_FIGURE), ("a negative number", _NEGATIVE)):
        found = form.search(figures)
        if found:
            line = figures[: found.end()].splitlines()[-1].strip()
            yield f"{done.command}: {what}: {re.sub(r'[0-9]+', 'N', line)[:60]}"


def _poor_refusal(done: Done) -> Iterator[str]:
    if not _REASON.search(done.err):
        yield f"{done.command}: status {done.status} without a reason"
    elif done.status == 1 and "error[R401]" not in done.err:
        yield f"{done.command}: status 1, and no file is wrong: {_REASON.search(done.err)[0][:60]}"
    elif done.command != "plan --csv" and ": add --root " not in done.err and not PLACE.search(done.err):
        yield f"{done.command}: a refusal without a line: {re.sub(r'[0-9]+', 'N', _REASON.search(done.err)[0])[:60]}"
