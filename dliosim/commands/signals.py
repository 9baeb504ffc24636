"""Ctrl-C, SIGTERM and SIGUSR1: kept from a program's first line on, and acted on by a thread once MPI is there."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_ENDING = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}
_KEPT = (*_ENDING, signal.SIGUSR1)

#: How what `save` returns begins once the results are written, or being written.
OVER = "the run was over"


@cache
def capture_signals() -> int:
    """Keep those signals from now on; a descriptor from which the number of each can be read, as a byte.

    Nothing else happens until `handle_signals` reads them. A rank that ended before MPI is there would leave the others in
    MPI_Init for ever: MPICH's launcher takes no notice of one that ends so early.
    """
    told, teller = os.pipe()
    os.set_blocking(teller, False)
    for number in _KEPT:
        signal.signal(number, lambda number, frame: None)
        # A run that goes on after SIGUSR1 is to see nothing of it in its calls.
        signal.siginterrupt(number, False)
    signal.set_wakeup_fd(teller)
    return told


def handle_signals(
    rank: int, save: Callable[[str], str], end: Callable[[int], None], end_late: Callable[[str, int], None]
) -> None:
    """From now on let a thread act on signals, whatever call this rank is in, those included that came before.

    Python sees signals between two of its own instructions, and a rank that waits in MPI executes none. On rank 0
    `save` is given the signal's name and writes what there is, without MPI; what it returns is printed, and `end` is
    called with the exit status, except after SIGUSR1. Other ranks leave all of that to rank 0, which a terminal and a
    batch system tell as well; where SIGTERM came to one of them alone, `end_late` is called with a message.
    """
    told = capture_signals()

    def watch() -> None:
        while True:
            number = signal.Signals(os.read(told, 1)[0])
            if number not in _KEPT:
                continue
            status = 128 + number
            if rank == 0:
                _report_signal(number, save)
                if number in _ENDING:
                    end(status)
            elif number == signal.SIGTERM:
                end_late(f"error: rank {rank} was told to end by SIGTERM, and rank 0 has not ended the job", status)

    threading.Thread(target=watch, name="signals", daemon=True).start()


def ignore_sigusr1() -> None:
    """Have SIGUSR1 do nothing any more: while Python ends it would end the process, and take its status."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _report_signal(number: signal.Signals, save: Callable[[str], str]) -> None:
    try:
        found = save(number.name)
    except Exception as error:  # the job is to end whatever is wrong with its results
        found = f"the partial results could not be made: {error!r}"
    text = f"{_ENDING.get(number, number.name)}: {found}"
    if number not in _ENDING and not found.startswith(OVER):
        text += "; the run goes on"
    with suppress(OSError, ValueError):
        sys.stderr.write(f"\n{text}\n")
        sys.stderr.flush()
