"""All figures of one job, as data: made of its trace and its results once, then shown, compared and judged."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

import numpy as np

from dliosim.analyze.figures.access import Access, describe_access
from dliosim.analyze.figures.breakdown import FileKind, Function, Layer, list_files, list_functions, list_layers
from dliosim.analyze.figures.ranks import Rank, Straggler, find_straggler, list_ranks
from dliosim.analyze.figures.time_split import Bandwidth, TimeSplit, measure_bandwidth, split_epochs, split_time
from dliosim.analyze.figures.view import View
from dliosim.measure.answers.sources import share_source
from dliosim.measure.answers.validity import doubt_of_core_waits
from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import count, printable, seconds, size
from dliosim.report.answer_sentences import sentence

#: Share of the job's time below which calls on pipes are not worth a note.
_LITTLE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Job:
    """The job that the trace is of."""

    source: str  #: what wrote it: dliosim, DFTracer, Darshan
    path: str  #: the file or folder that it was read from
    command: str  #: command line of the job; empty if it is not known
    loop: str  #: name of the loop with the longest epochs; `train` if none is known
    seconds: float  #: length of the job
    nodes: int  #: nodes; 0 if they are not known
    ranks: int  #: ranks; 0 if they are not known
    processes: int  #: processes, also those that are no ranks
    threads: int  #: threads with an event
    events: int  #: events
    operations: int  #: operations on files, each counted in the lowest layer that its file has
    #: I/O time of the slowest rank, s; of Darshan's counters that on its own files + the longest on each shared file
    time_by_slowest: float
    left_out: dict[str, int]  #: lines of the source that are no events, by what they are
    incomplete: tuple[str, ...]  #: sentences about what is missing
    notes: tuple[str, ...]  #: sentences about what to know of the figures
    settings: dict[str, str]  #: of the loop, in a run of dliosim
    #: readers of a rank that can have a core each, next to the ranks, in a run of dliosim; 0 if that is not known
    reader_cores: int = 0
    core_wait: str = ""  #: how long the loop of a run of dliosim waited for cores; empty if that is little or not known


@dataclass(frozen=True, slots=True)
class MpiWait:
    """Time in MPI-IO in which no file was read, written or looked at: ranks waited for others, or sent them data."""

    seconds: float  #: of a mean rank, s
    mpi_seconds: float  #: time of a mean rank in MPI-IO, s
    file: str  #: the file with most of it
    is_collective: bool  #: True if it has collective calls; independent ones wait for locks, not for ranks
    longest: float  #: longest time of a rank in the files themselves, s
    stripes: int  #: its stripe count on Lustre; 0 if it is not known
    busiest: float  #: share of its bytes that one rank moved, the one with most as far as the log says


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of one job."""

    job: Job  #: what the trace is of
    split: TimeSplit  #: where the time of the job went
    epochs: TimeSplit | None  #: where the time of the epochs of loops went; None if no epochs are known
    functions: tuple[Function, ...]  #: by function, the longest first
    layers: tuple[Layer, ...]  #: by layer
    access: Access  #: how bytes were accessed
    files: tuple[FileKind, ...]  #: by kind of file
    ranks: tuple[Rank, ...]  #: by rank
    straggler: Straggler | None  #: the rank that the others wait for; None for a single rank
    bandwidth: Bandwidth  #: over time
    mpi_wait: MpiWait | None = None  #: waits in MPI-IO; None if the log does not say


def measure_figures(view: View) -> Figures:
    """Return all figures of a trace."""
    ranks = list_ranks(view)
    return Figures(
        _describe_job(view, max((one.io for one in ranks), default=0.0)),
        split_time(view),
        split_epochs(view),
        list_functions(view),
        list_layers(view),
        describe_access(view),
        list_files(view),
        ranks,
        find_straggler(view, ranks),
        measure_bandwidth(view),
    )


def pipe_notes(pipes: Set[str], waited: float, job: float) -> tuple[str, ...]:
    """Return a sentence about pipes whose calls took `waited` s of a job of `job` s, if that could be seen."""
    if waited <= _LITTLE * job:
        return ()
    many = f"{count(len(pipes), 'pipe')}, such as {PurePosixPath(min(pipes)).name}," if len(pipes) > 1 else min(pipes)
    return (
        f"not counted: {seconds(waited, 4)} of opens, reads and writes of {many} in a job of {seconds(job, 4)}; they "
        "wait for another process, and no file system takes part",
    )


def _find_loop(view: View) -> str:
    """Return the name of the loop with the longest epochs, without its verb; `train` if no epoch is known."""
    events = view.events
    rows = np.flatnonzero(events.is_kind("epoch"))
    times = np.bincount(events.name[rows], events.duration[rows], 1)
    longest = events.names[int(times.argmax())] if len(rows) and events.names else "train"
    return longest.split(" ")[-1]


def _describe_job(view: View, time_by_slowest: float) -> Job:
    trace, events, loop = view.trace, view.events, _find_loop(view)
    hosts = {one.host for one in events.processes} - {""}
    threads = events.process.astype(np.int64) << 32 | (events.thread.astype(np.int64) & 0xFFFFFFFF)
    return Job(
        trace.source,
        trace.path,
        trace.command,
        loop,
        trace.duration / 1e9,
        len(hosts),
        len({one.rank for one in events.processes} - {-1}),
        len(events.processes),
        len(np.unique(threads)),
        len(events),
        int(view.basic.sum()),
        time_by_slowest,
        dict(trace.left_out),
        trace.incomplete,
        (*pipe_notes(*view.pipes, trace.duration / 1e9), *trace.notes),
        trace.settings.get(loop, {}),
    )


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
    waited = doubt_of_core_waits(environment, own, answer) if own else None
    device = _find_device_bytes(figures, run)
    job = replace(
        figures.job,
        reader_cores=max(environment.cores_per_node // max(environment.ranks_per_node, 1) - 1, 1),
        core_wait=sentence(waited) if waited else "",
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
            f"{size(device, 3)} of the {size(read, 3)} read came from the device; the rest came from memory, so these "
            "times and rates are not those of the storage"
        )


def _find_device_bytes(figures: Figures, run: RunSummary) -> int | None:
    """Return the bytes that devices gave; None if that is not counted, or is of other reads than the trace's."""
    epochs = [epoch for epoch in run.epochs if not epoch.null]
    device = [epoch.device_bytes for epoch in epochs]
    called = sum(epoch.read_call_bytes or 0 for epoch in epochs)
    read = figures.access.read.bytes
    if not epochs or None in device or abs(called - read) > _SAME * read:
        return None
    return sum(filter(None, device))
