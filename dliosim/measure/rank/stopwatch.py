"""The stopwatch of phases: it adds the time of a block to a record, less what blocks within it set aside."""

from __future__ import annotations

from threading import local
from time import perf_counter_ns


class _Innermost(local):
    """The stopwatch of each thread that runs innermost."""

    watch: Stopwatch | None = None


_thread = _Innermost()


class Stopwatch:
    """Adds the ns of a `with` block to a column of a record (or to a time of a meter).

    With `aside` no stopwatch around the block counts its time: it stands while the block runs, as the clock of a save
    does while the contents are made. Stopwatches nest within one thread. One costs a microsecond: not for each small
    file, where a writer reads the clock itself.
    """

    __slots__ = ("_apart_ns", "_aside", "_begun", "_column", "_outer", "_record")

    def __init__(self, record: object, column: str, aside: bool = False) -> None:
        self._record, self._column, self._aside = record, column, aside

    def __enter__(self) -> None:
        self._outer, _thread.watch = _thread.watch, self
        self._apart_ns, self._begun = 0, perf_counter_ns()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        spent, record, column, outer = perf_counter_ns() - self._begun, self._record, self._column, self._outer
        setattr(record, column, getattr(record, column) + spent - self._apart_ns)
        _thread.watch = outer
        if outer is not None:
            outer._apart_ns += spent if self._aside else self._apart_ns
