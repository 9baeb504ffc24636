"""Figures of a run of dliosim that its trace does not have: cores, waits for them, and where bytes came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dliosim.analyze.figures import Figures
from dliosim.measure.answers.sources import share_source
from dliosim.measure.answers.validity import doubt_of_core_waits
from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import printable, size

#: Bytes that the trace and the results read may differ by this share, as with a trace of a part of a run.
_SAME = 0.01

#: Sentences about where the bytes of a loop came from, by `Answer.source`; there is none for those of a device.
_SOURCES = {
    "memory": "the bytes of {loop} came from memory: their times and rates are not those of storage",
    "mixed": "bytes of {loop} came from memory in part: their times and rates are not those of storage",
    "unknown": "whether the bytes of {loop} came from memory or from storage is not known",
}


def add_run(figures: Figures, run: RunSummary) -> Figures:
    """Return the figures of a trace with those of the results of its run."""
    environment, loops = run.environment, run.loops
    own = [phase for phase in loops if phase.name == figures.job.loop]
    answer = next((one for one in run.answers if one.loop == figures.job.loop), None)
    waited = doubt_of_core_waits(environment, own, answer) if own else ""
    device = _find_device_bytes(figures, run)
    job = replace(
        figures.job,
        reader_cores=max(environment.cores_per_node // max(environment.ranks_per_node, 1) - 1, 1),
        core_wait=waited,
        notes=(*_say_sources(figures.access.read.bytes, device, run), *figures.job.notes),
    )
    read = replace(figures.access.read, from_device=device)
    return replace(figures, job=job, access=replace(figures.access, read=read))


def _say_sources(read: int, device: int | None, run: RunSummary) -> Iterator[str]:
    """Yield sentences about bytes that did not come from devices."""
    if device is None:
        answers = [one for one in run.answers if one.source in _SOURCES]
        yield from (_SOURCES[one.source].format(loop=printable(one.loop)) for one in answers)
    elif read and share_source(device / read) != "device":
        yield (
            f"of {size(read, 3)} read the device gave {size(device, 3)}: memory gave the others, whose times and rates "
            "are not those of storage"
        )


def _find_device_bytes(figures: Figures, run: RunSummary) -> int | None:
    """Return the bytes that devices gave; None where that is not counted, or is of other reads than the trace's."""
    epochs = [epoch for epoch in run.epochs if not epoch.null]
    device = [epoch.device_bytes for epoch in epochs]
    called = sum(epoch.read_call_bytes or 0 for epoch in epochs)
    read = figures.access.read.bytes
    if not epochs or None in device or abs(called - read) > _SAME * read:
        return None
    return sum(filter(None, device))
