"""A loop in one line: utilization, rate, latency, and the rate that storage needs for a utilization of 90 %."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dliosim.measure import aggregate
from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.phase import LoopPhase
from dliosim.plan.forecast.forecast_types import UTILIZATION, time_to_read
from dliosim.readable import count, percent, seconds, size
from dliosim.report.conditions import cache_state
from dliosim.report.text_table import WIDTH

#: Waiting for data is mentioned from this share of the time on.
_WAIT_WORTH_A_WORD = 0.05

#: From this share of the bytes asked on, a rate counts as the device's.
_ALL = 0.9

#: From this share of their busy time on, readers are reported to process rather than read.
_MOSTLY = 0.5


def headline(
    name: str, runs: Sequence[LoopPhase], epochs: Sequence[EpochSummary], doubtful: bool, counted: bool
) -> str:
    """Return the line over the epochs after the first (over the only one, if there is one).

    `doubtful` marks the utilization. `counted` is True if the kernel counts the bytes from a device.
    """
    later = epochs[1:] or epochs
    busy, rate = aggregate.utilization(later), aggregate.bytes_per_second(later)
    kind, late = aggregate.main_latency(later)
    phrases = [
        f"{percent(busy, 3)}{'?' if doubtful else ''} busy" if busy is not None else "",
        f"{size(rate, 3)}/s{_byte_source(later, counted)}" if rate is not None else "",
        f"{kind} p99 {seconds(late.p99, 3)}" if late is not None else "",
    ]
    when = " after the first epoch" if len(epochs) > 1 else ""
    state = "nothing was read" if runs[0].api == "null" else _start_state(runs[0])
    lines = [f"{name}: {', '.join(filter(None, phrases))}{when}; {state}", _rate_target(runs[0], later)]
    return "\n".join(textwrap.fill(line, WIDTH) for line in lines if line)


def _byte_source(epochs: Sequence[EpochSummary], counted: bool) -> str:
    """Return the device's share of a rate's bytes, or that memory kept them; empty where the device gave nearly all."""
    content = sum(epoch.bytes for epoch in epochs)
    if content and not any(epoch.bytes_from_storage for epoch in epochs):
        return " (none of it read: memory kept it)"
    device = [epoch.device_bytes for epoch in epochs if epoch.device_bytes is not None]
    if not counted or len(device) < len(epochs) or sum(device) >= _ALL * content:
        return ""
    return f" ({percent(sum(device) / content, 2)} of it from the device)"


def processing_note(phase: LoopPhase, epochs: Sequence[EpochSummary]) -> str:
    """Return a note that readers, or steps without readers, spent most of that time on processing; else empty."""
    share = aggregate.processing_share(epochs, phase.readers)
    if share <= _MOSTLY:
        return ""
    what = _processing_parts(epochs)
    if phase.readers:
        return f"readers spent {percent(share, 2)} of their busy time {what}, not reading"
    return f"of the time it took to have a batch {percent(share, 2)} was {what}, not reading"


def _processing_parts(epochs: Sequence[EpochSummary]) -> str:
    parts = {
        "decoding": any(epoch.decode_seconds.max for epoch in epochs),
        "preprocessing": any(epoch.preprocess_seconds.max for epoch in epochs),
    }
    return " and ".join(part for part, is_done in parts.items() if is_done)


def _busy_reason(was_enough: bool, hardly_waited: bool, overlapped: bool, processing: str) -> str:
    """Return why a loop was less busy than wanted, where the rates alone do not show it."""
    if processing and not (overlapped and hardly_waited):
        return f", {'yet' if was_enough else 'and'} {processing}"
    if hardly_waited:
        return f"{', so that' if was_enough else ', but steps hardly waited:'} the time went elsewhere (see below)"
    return ", yet steps waited: reading did not keep ahead of them" if was_enough else ""


def _start_state(phase: LoopPhase) -> str:
    state = cache_state(phase)
    return f"{state} at its start" if state.startswith("page cache") else state


def _rate_target(phase: LoopPhase, epochs: Sequence[EpochSummary]) -> str:
    """Return the rate for a utilization of 90 %, as `dliosim plan` computes it, and the rate that storage delivered.

    With readers, the delivered rate counts only the time with calls in flight: over the whole time it would be limited
    by compute and by waits for other ranks. What steps decode themselves leaves less time for reading.
    """
    content = sum(epoch.bytes_once for epoch in epochs)
    busy = aggregate.utilization(epochs)
    if busy is None or phase.api == "null" or not content:
        return ""
    compute = sum(epoch.compute_seconds.mean / (1 + (epoch.oversleep_share or 0.0)) for epoch in epochs)
    overlapped = phase.prefetch > 0
    waited = sum(epoch.data_wait_seconds.mean for epoch in epochs)
    time = sum(epoch.io_busy_seconds.mean for epoch in epochs) if overlapped else waited
    if compute <= 0 or time <= 0:
        return ""
    got, got_when = content / time, " while it was read from" if overlapped else ""
    left = time_to_read(compute, overlapped)
    processed = sum(epoch.decode_seconds.mean + epoch.preprocess_seconds.mean for epoch in epochs)
    if processed / max(phase.readers, 1) >= left:
        return "" if busy >= UTILIZATION else f"{_decode_limit(phase, epochs)}; it got {size(got, 3)}/s{got_when}"
    needed = content / (left if overlapped else left - processed)
    why = ""
    if busy < UTILIZATION:
        hardly_waited = waited < _WAIT_WORTH_A_WORD * sum(epoch.loop_seconds for epoch in epochs)
        # Without readers a fast enough rate took no more of a step than allowed.
        hardly_waited = hardly_waited or (got >= needed and not overlapped)
        why = _busy_reason(got >= needed, hardly_waited, overlapped, processing_note(phase, epochs))
    rates = (
        f"it needs {size(needed, 3)}/s{'' if overlapped else ' while steps wait'}; it got {size(got, 3)}/s{got_when}"
    )
    return f"to be {percent(UTILIZATION, 2)} busy {rates}{why}"


def _decode_limit(phase: LoopPhase, epochs: Sequence[EpochSummary]) -> str:
    """Return the line for a loop whose decoding alone takes as long as the whole step may."""
    who = f" on {count(phase.readers, 'reader')}" if phase.readers else ""
    time = f"the time for {_processing_parts(epochs)} alone is longer{who} than that allows"
    return f"no storage makes it {percent(UTILIZATION, 2)} busy: {time}"
