"""The screen of `run --live`, as plain lines for a terminal, or as one line."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.progress.live import LiveFigures
from dliosim.measure.progress.stalled_ranks import format_ranks
from dliosim.readable import ABSENT, count, seconds, size

#: Characters of the names of rows, and of a bar at most.
_NAME, _BAR = 10, 30

#: Ranks are listed in at most this many characters, else counted.
_LONGEST_LIST = 16


def live_screen(title: str, run_time: float, figures: LiveFigures, columns: int, lines: int) -> list[str]:
    """Return the lines of a terminal of that size: each shorter than `columns`, and two fewer than `lines` at most.

    `run_time` is the seconds since the run began. Parts of a line that have no room are left out, from its end.
    """
    rows = [
        ("", [title, f"{duration(run_time)} so far"]),
        ("phase", [figures.label]),
        (figures.unit if figures.steps else "bytes", _progress_parts(figures)),
        ("time left", _rest_parts(figures)),
        ("bandwidth", _rate_parts(figures)),
        ("p99 wait", _wait_parts(figures)),
        ("waiting", _late_parts(figures)),
        ("slowest", _slowest_parts(figures)),
    ]
    shown = [_fit(name, parts, columns - 1) for name, parts in rows]
    return shown[: max(lines - 2, 1)]


def live_line(figures: LiveFigures) -> str:
    """Return one line for output that is no terminal, of any length."""
    left = _rest_parts(figures)
    parts = [
        figures.label,
        *_progress_parts(figures, bar=False)[:1],
        *_rate_parts(figures),
        *([f"p99 of batch waits {seconds(figures.p99, 3)}"] if figures.p99 is not None else []),
        *_late_parts(figures)[: 1 if figures.waiting else 0],
        *([f"slowest rank {figures.slowest[0]}"] if figures.slowest else []),
        *([f"{left[0]} left"] if figures.left is not None else []),
    ]
    return "live: " + ", ".join(part for part in parts if part != ABSENT)


def duration(value: float) -> str:
    """Return a time of people: `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if value < 60:
        return seconds(value, 2)
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _fit(name: str, parts: Sequence[str], columns: int) -> str:
    """Return a line of as many of the parts as fit, at least the first one, cut if it must be."""
    line = name.ljust(_NAME) + parts[0] if name else parts[0]
    for part in parts[1:]:
        if len(line) + 2 + len(part) > columns:
            break
        line += f", {part}"
    # A terminal may take other characters for two columns.
    line = line.encode("ascii", "replace").decode()
    return line if len(line) <= columns else f"{line[: max(columns - 3, 0)]}..."[:columns]


def _progress_parts(figures: LiveFigures, bar: bool = True) -> list[str]:
    done, total = (figures.step, figures.steps) if figures.steps else (figures.done, figures.total)
    if not figures.steps and not done:
        return [ABSENT]
    if figures.steps:
        first = f"{done} of {total}" if bar else f"{figures.unit} {done} of {total}"
    else:
        first = f"{size(done, 3)} of {size(total, 3)} of rank 0" if total else f"{size(done, 3)} of rank 0"
    parts = [first, f"[{'#' * min(_BAR * done // total, _BAR):.<{_BAR}}]"] if total and bar else [first]
    slow, fast = figures.step_range
    if figures.steps and fast - slow > 1:
        parts.append(f"ranks at {slow} to {fast}")
    return parts


def _rest_parts(figures: LiveFigures) -> list[str]:
    if figures.left is None or figures.left_of_all is None:
        return [ABSENT]
    if figures.left_of_all > figures.left:
        return [f"{duration(figures.left)} of this epoch", f"{duration(figures.left_of_all)} of {figures.phase}"]
    return [duration(figures.left)]


def _rate_parts(figures: LiveFigures) -> list[str]:
    if figures.now is None:
        return [ABSENT]
    mean = [f"{size(figures.mean, 3)}/s mean"] if figures.mean is not None else []
    return [f"{size(figures.now, 3)}/s now", *mean, f"{size(figures.moved, 3)} so far"]


def _wait_parts(figures: LiveFigures) -> list[str]:
    if figures.p99 is None:
        return [ABSENT]
    return [seconds(figures.p99, 3), f"last {count(figures.waits, 'batch', 'batches')} of rank 0"]


def _late_parts(figures: LiveFigures) -> list[str]:
    if not figures.waiting:
        return ["no rank waits for another"]
    verb = "waits" if len(figures.waiting) == 1 else "wait"
    late = _list_ranks(figures.late) if figures.late else "other nodes"
    parts = [f"{_list_ranks(figures.waiting)} {verb} for {late}"]
    if figures.quiet:
        parts.append(f"no progress for {duration(figures.quiet)}")
    return parts + ([figures.call] if figures.call else [])


def _slowest_parts(figures: LiveFigures) -> list[str]:
    if figures.slowest is None:
        return [ABSENT]
    rank, late, looks = figures.slowest
    return [f"rank {rank}", f"waited for in {late} of {count(looks, 'look')}"]


def _list_ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    text = format_ranks(ranks)
    return f"ranks {text}" if len(text) <= _LONGEST_LIST else f"{len(ranks)} ranks"
