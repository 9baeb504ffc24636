"""A loop in one line: how busy, how fast, how late, and what it would take to be busy."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dliosim.measure import over_epochs
from dliosim.measure.figures import EpochSummary, PhaseSummary
from dliosim.plan.figures import UTILIZATION, time_to_read
from dliosim.readable import percent, seconds, size
from dliosim.report.grid import WIDTH
from dliosim.report.header import cache_state

#: The share of the time from which on waiting for data is worth a word.
_WAIT_WORTH_A_WORD = 0.05


def headline(name: str, runs: Sequence[PhaseSummary], epochs: Sequence[EpochSummary], doubtful: bool) -> str:
    """Over the epochs after the first (the only one, if there is one); `doubtful` marks the utilization."""
    later = epochs[1:] or epochs
    busy, rate = over_epochs.utilization(later), over_epochs.bytes_per_second(later)
    kind, late = over_epochs.latency(later)
    said = [
        f"{percent(busy, 3)}{'?' if doubtful else ''} busy" if busy is not None else "",
        f"{size(rate, 3)}/s" if rate is not None else "",
        f"{kind} p99 {seconds(late.p99, 3)}" if late is not None else "",
    ]
    when = " after the first epoch" if len(epochs) > 1 else ""
    state = "nothing was read" if runs[0].api == "null" else _began(runs[0])
    lines = [f"{name}: {', '.join(filter(None, said))}{when}; {state}", _needed(runs[0], later)]
    return "\n".join(textwrap.fill(line, WIDTH) for line in lines if line)


def _why(was_enough: bool, hardly_waited: bool) -> str:
    """Why a loop that was less busy than wished was so, where the rates alone do not say it."""
    if hardly_waited:
        return f"{', so that' if was_enough else ', but steps hardly waited:'} the time went elsewhere (see below)"
    return ", yet steps waited: reading did not keep ahead of them" if was_enough else ""


def _began(phase: PhaseSummary) -> str:
    state = cache_state(phase)
    return f"{state} at its start" if state.startswith("page cache") else state


def _needed(phase: PhaseSummary, epochs: Sequence[EpochSummary]) -> str:
    """What storage must deliver for a utilization of 90 %, as `dliosim plan` says it, and what it delivered.

    Beside readers that is what it delivered while calls were in flight: over all of the time it would be no more than
    what computing and waiting for others let a rank ask for.
    """
    content = sum(epoch.bytes_from_storage for epoch in epochs)
    busy = over_epochs.utilization(epochs)
    if busy is None or phase.api == "null" or not content:
        return ""
    compute = sum(epoch.compute_seconds.mean / (1 + (epoch.oversleep_share or 0.0)) for epoch in epochs)
    overlapped = phase.prefetch > 0
    waited = sum(epoch.data_wait_seconds.mean for epoch in epochs)
    time = sum(epoch.io_busy_seconds.mean for epoch in epochs) if overlapped else waited
    if compute <= 0 or time <= 0:
        return ""
    needed, got = content / time_to_read(compute, overlapped), content / time
    when = "" if overlapped else " while steps wait"
    why = ""
    if busy < UTILIZATION:
        why = _why(got >= needed, waited < _WAIT_WORTH_A_WORD * sum(epoch.loop_seconds for epoch in epochs))
    got_when = " while it was read from" if overlapped else ""
    rates = f"it needs {size(needed, 3)}/s{when}; it got {size(got, 3)}/s{got_when}"
    return f"to be {percent(UTILIZATION, 2)} busy {rates}{why}"
