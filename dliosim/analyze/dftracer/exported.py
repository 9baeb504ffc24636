"""Metadata of an export of dliosim in DFTracer's form: ranks, threads, and the job.

DFTracer's events have no ranks, and epochs and steps are guessed for them. An export has them all.
"""

from __future__ import annotations

from typing import Any, Final

_MOST: Final = 1 << 62


class Exported:
    """Metadata of an export; values of other types and ranges are passed over."""

    def __init__(self, args: dict[str, Any]) -> None:
        #: True for the trace of a run of dliosim
        self.is_own = args.get("value") == "dliosim"
        #: length of the job, ns
        self.duration = _whole(args.get("duration"), 0)
        #: command line of the job
        self.command = "".join(_texts([args.get("command")]))
        #: sentences about what is missing, and about what to know
        self.incomplete, self.notes = _texts(args.get("incomplete")), _texts(args.get("notes"))
        #: rank, and id, of each process by its number in the file
        self.processes: dict[int, tuple[int, int]] = {}
        self._threads: dict[tuple[int, int], int] = {}

    def add_name(self, kind: str, document: dict[str, Any], args: dict[str, Any]) -> None:
        """Note a line that names a process or a lane of it."""
        number, lane = _whole(document.get("pid"), -1), _whole(document.get("tid"), -1)
        if kind == "process_name":
            self.processes[number] = _whole(args.get("rank"), -1), _whole(args.get("process"), -1)
        else:
            self._threads[number, lane] = _whole(args.get("thread"), 0)

    def thread_of(self, process: Any, lane: Any) -> int:
        """Return the thread whose events are in a lane: several, where calls of one were under way together."""
        return self._threads.get((process, lane), 0)


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(each for each in values if type(each) is str) if type(values) is list else ()


def _whole(value: Any, other: int) -> int:
    return value if type(value) is int and 0 <= value < _MOST else other
