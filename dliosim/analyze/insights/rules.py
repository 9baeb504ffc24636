"""Insights: possible improvements, each with its figure, its threshold, the threshold's source, and the remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from dliosim.analyze.figures.job import Figures
from dliosim.analyze.insights import measures
from dliosim.analyze.insights.measures import AGGREGATORS, Measure, Measuring
from dliosim.report.cells import percent_cell, time_cell

#: Share of the job's time below which an insight is worth a line only.
_LITTLE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Insight:
    """One thing that may be wrong."""

    name: str  #: for `--explain`
    about: str  #: the fault in a few words
    figure: str  #: definition of the figure
    limit: float  #: value above which it is found
    source: str  #: where figure and threshold are from
    measure: Measuring  #: None if the trace cannot say
    cure: str  #: what to try
    own: str = ""  #: option for runs of dliosim; `{loop}`, `{checkpoint}` are names, `{readers}` their phrase
    least: int = 0  #: it is found only above this number of operations
    at_limit: bool = False  #: True if it is found at the limit, too
    unit: Callable[[float], str] = percent_cell  #: a value as text

    @property
    def threshold(self) -> str:
        """The threshold as text."""
        more = f" and > {self.least} operations" if self.least else ""
        limit = re.sub(r"\.0+(?= )", "", self.unit(self.limit))
        return f"{'>=' if self.at_limit else '>'} {limit}{more}"

    def is_met(self, found: Measure) -> bool:
        """Return True if a figure is beyond the threshold."""
        value = round(found.value, 9)  # a quotient that is the threshold may be a hair above it
        above = value >= self.limit if self.at_limit else value > self.limit
        return above and (not self.least or found.count > self.least)


@dataclass(frozen=True, slots=True)
class Finding:
    """An insight that was looked at."""

    insight: Insight  #: which
    found: Measure | None  #: its figure; None if the trace cannot say
    is_met: bool  #: True if it is beyond its threshold


def judge(figures: Figures) -> tuple[Finding, ...]:
    """Return all insights as they are in a trace: those that are met first, the most costly before the others."""
    measured = ((one, one.measure(figures)) for one in INSIGHTS)
    found = (Finding(one, figure, figure is not None and one.is_met(figure)) for one, figure in measured)
    return tuple(sorted(found, key=_costs_least))


def is_costly(one: Finding, figures: Figures) -> bool:
    """Return True if an insight concerns enough of the job's time to be worth a change."""
    cost = one.found.cost if one.found else 0.0
    return cost is None or cost > _LITTLE * figures.job.seconds


def _costs_least(one: Finding) -> tuple[bool, float]:
    """Return a key that is smallest for what is met and costs most, or puts all figures in doubt."""
    cost = one.found.cost if one.found else -1.0
    return not one.is_met, -math.inf if cost is None else -cost


_READ_AHEAD = (
    "read ahead: more workers of the data loader (PyTorch num_workers and prefetch_factor, tf.data prefetch and "
    "num_parallel_calls, DLIO reader.read_threads)"
)
_PACK = "pack samples into larger files and read many at once (TFRecord, WebDataset, HDF5 chunks), or a larger buffer"

#: A part of calls, those that tell, and what the part does.
_SMALL = ("small", "sized", "move less than 1 MiB")
_MISALIGNED = ("misaligned", "placed", "begin at no multiple of 4 KiB")
_RANDOM = ("random", "placed", "begin before the end of the one before in their file")


def _pair_insights(
    name: str,
    about: str,
    figure: str,
    limit: float,
    sources: tuple[str, str],
    measure: Callable[[str, Figures], Measure | None],
    cures: tuple[str, str],
    own: str = "",
    least: int = 0,
) -> Iterator[Insight]:
    """Yield the insights on reads and on writes, whose option for runs of dliosim is of reads alone."""
    for side, source, cure in zip(("read", "write"), sources, cures, strict=True):
        of_side, fault, formula = (text.replace("{}", side) for text in (name, about, figure))
        option = own if side == "read" else ""
        yield Insight(of_side, fault, formula, limit, source, partial(measure, side), cure, option, least)


#: All insights. Order is that of the page; a report has the most costly first.
INSIGHTS: Final = (
    Insight(
        "incomplete",
        "the trace is incomplete",
        "sentences about missing or damaged events",
        0.0,
        "dliosim; darshan#872",
        measures.missing_events,
        "trust no total before the trace is whole: let the job end by itself, trace its workers too, raise the "
        "tracer's memory limit (DARSHAN_MODMEM, DXT's)",
        unit=lambda value: f"{value:.0f}",
    ),
    Insight(
        "unoverlapped-io",
        "reads are not hidden behind compute",
        "I/O time without compute on the same rank, without writes and fsyncs / I/O time of the rank; within epochs if "
        "known",
        0.5,
        "DFAnalyzer unoverlapped_io, which includes writes",
        measures.io_alone,
        _READ_AHEAD,
        "-D {loop}.readers={readers}",
    ),
    Insight(
        "unoverlapped-writes",
        "writes are not hidden behind compute",
        "time of writes and fsyncs without compute on the same rank / time of the rank; within epochs if known",
        0.1,
        "dliosim",
        measures.writes_alone,
        "save in the background: copy the state to host memory and let threads write it (torch.distributed.checkpoint "
        "async_save); save less often, or to a faster tier first",
        "-D {checkpoint}.async=on",
    ),
    Insight(
        "data-wait",
        "steps wait for data",
        "time of fetching data / (time of fetching data + compute), mean over ranks",
        0.1,
        "MLPerf Storage: accelerators at least 90 % busy",
        measures.data_wait,
        _READ_AHEAD,
        "-D {loop}.readers={readers}",
    ),
    Insight(
        "straggler",
        "one rank is slower than the others",
        "time of the most costly rank / mean of the others - 1: its own work in steps, else I/O time of the job",
        0.15,
        "Drishti P19",
        measures.straggler_lag,
        "look at that rank's node and files first: a busy node, a slow disk or network port, larger files; deal out "
        "samples evenly",
    ),
    Insight(
        "mpi-io-wait",
        "ranks wait in MPI-IO, for each other or for locks",
        "(time in MPI-IO - time in POSIX calls on the same files) / time in MPI-IO, sums over ranks",
        0.5,
        "Darshan's skew heuristic; dliosim's threshold",
        measures.mpi_wait_share,
        f"on Lustre see first `lfs getstripe -c` of the file: with 1, `lfs setstripe -c 8` its folder before the file "
        f"is made, as ROMIO takes an aggregator for each stripe; then {AGGREGATORS}",
    ),
    Insight(
        "uneven-bytes",
        "ranks move different amounts",
        "(most bytes that a rank reads - least) / most; bytes written if no rank reads",
        0.3,
        "Drishti P18, P21, P22",
        measures.bytes_spread,
        "deal out samples, not files, to ranks; use files of one size",
        '-D {loop}.shard="by sample"',
    ),
    Insight(
        "uneven-time",
        "I/O takes ranks different times",
        "(longest I/O time of a rank - shortest) / longest",
        0.3,
        "Drishti P19, with the threshold for sizes",
        measures.time_spread,
        "if one writes the checkpoints of all, let more ranks write, or save in the background; if their bytes are "
        "equal, look at the slow ranks' nodes and storage targets; else deal out samples evenly",
        '-D {loop}.shard="by sample"',
    ),
    *_pair_insights(
        "small-{}s",
        "many {}s are small",
        "{}s of less than 1 MiB / {}s",
        0.1,
        ("Drishti P05", "Drishti P06"),
        partial(measures.share_of_calls, *_SMALL),
        (_PACK, "collect writes in a larger buffer; write one file for each rank or node; collective MPI-IO"),
        '-D {loop}.transfer="whole sample"',
        least=1000,
    ),
    *_pair_insights(
        "slow-small-{}s",
        "small {}s take most of the I/O time",
        "time of {}s below 1 MiB / time of all operations",
        0.5,
        ("DFAnalyzer small_reads, which uses the mean size", "DFAnalyzer small_writes, which uses the mean size"),
        measures.small_time_share,
        (_PACK, "collect writes in a larger buffer; write one file for each rank or node"),
        '-D {loop}.transfer="whole sample"',
    ),
    *_pair_insights(
        "misaligned-{}s",
        "{}s begin inside a block",
        "{}s whose offset is no multiple of 4096 / {}s of known offset",
        0.1,
        ("Drishti P08; Darshan uses the file's block size",) * 2,
        partial(measures.share_of_calls, *_MISALIGNED),
        (
            "pad samples and headers to 4 KiB (HDF5: H5Pset_alignment)",
            "pad what is written to 4 KiB, or to the stripe of the file system (HDF5: H5Pset_alignment)",
        ),
    ),
    *_pair_insights(
        "random-{}s",
        "{}s jump back",
        "{}s that begin before the end of the process's last one / {}s of known offset",
        0.2,
        ("Drishti P11; DFAnalyzer has 50 %", "Drishti P13; DFAnalyzer has 50 %"),
        partial(measures.share_of_calls, *_RANDOM),
        (
            "shuffle files and then samples within a buffer (tf.data shuffle, WebDataset), or sort a batch by offset",
            "write a file from its begin to its end; collective MPI-IO sorts the pieces",
        ),
        '-D {loop}.order="by offset"',
        least=1000,
    ),
    Insight(
        "read-again",
        "the same bytes are read again",
        "(bytes read - different bytes of files) / bytes read, over all processes; in a run of dliosim bytes of the "
        "device, if counted",
        0.1,
        "Drishti P09, corrected",
        partial(measures.again_share, "read", "read"),
        "keep the data in memory, or on a node's own disk, after the first epoch (tf.data cache)",
        '-D {loop}.cache="memory 8 GB"',
    ),
    Insight(
        "written-again",
        "the same bytes are written again",
        "(bytes written - different bytes of files) / bytes written, over all processes",
        0.1,
        "Drishti P10, corrected",
        partial(measures.again_share, "write", "written"),
        "write what changed, once: look for headers that are written after each piece",
    ),
    Insight(
        "metadata-seconds",
        "a rank is long in opens and stats",
        "time of the operations of a rank that move no bytes; the rank with most",
        30.0,
        "Drishti P17",
        measures.metadata_seconds,
        "fewer and larger files; keep files open; list directories once and pass the list to all ranks",
        "-D {loop}.open=once",
        unit=time_cell,
    ),
    Insight(
        "metadata-share",
        "most of the I/O time moves no bytes",
        "time of the operations that move no bytes / time of all operations",
        0.5,
        "DFAnalyzer excessive_metadata_access",
        measures.metadata_share,
        "fewer and larger files; keep files open; list directories once and pass the list to all ranks",
        "-D {loop}.open=once",
        at_limit=True,
    ),
    Insight(
        "independent-mpi-io",
        "shared files are accessed independently",
        "independent MPI-IO calls on shared files / MPI-IO calls on shared files",
        0.5,
        "Drishti M02, M03",
        partial(measures.share_of_mpi_calls, "collective", "shared_mpi_calls", " on shared files", "io"),
        "collective calls (MPI_File_read_at_all; HDF5: H5FD_MPIO_COLLECTIVE), if ranks read neighbouring pieces",
        "-D {loop}.api=mpi-collective",
        least=1000,
    ),
    Insight(
        "blocking-mpi-io",
        "MPI-IO calls all wait",
        "MPI-IO calls that block / MPI-IO calls",
        0.999,
        "Drishti M06, M07",
        partial(measures.share_of_mpi_calls, "nonblocking", "mpi_calls", "", "unoverlapped_io"),
        "nonblocking calls (MPI_File_iread_at) before the compute that does not need them",
        '-D {loop}.engine="queued depth 4"',
        least=1000,
    ),
    Insight(
        "stdio",
        "bytes go through stdio",
        "bytes moved by stdio / bytes moved",
        0.1,
        "Drishti S01",
        measures.stdio_share,
        "read and write by larger unbuffered calls, or set a larger buffer (setvbuf)",
    ),
    Insight(
        "operation-mix",
        "calls are mostly of one direction",
        "|reads - writes| / (reads + writes)",
        0.1,
        "DFAnalyzer operation_imbalance; Drishti P01, P02",
        partial(measures.mix_share, "count", "the calls that move bytes"),
        "nothing: it only tells what to tune for",
    ),
    Insight(
        "size-mix",
        "bytes are mostly of one direction",
        "|bytes read - bytes written| / (bytes read + bytes written)",
        0.1,
        "DFAnalyzer size_imbalance; Drishti P03, P04",
        partial(measures.mix_share, "bytes", "the bytes"),
        "nothing: it only tells what to tune for",
    ),
)
