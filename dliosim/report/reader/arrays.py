"""Read ranks.h5 (the figures of every rank) and timeline.h5 (the times of events), from any source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import UsageError
from dliosim.measure.figures.declaration import column_of, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.phase import LoopPhase
from dliosim.readable import printable
from dliosim.report.files.results import ARRAYS_VERSION
from dliosim.report.reader.typed_json import check_file, check_version

#: The largest HDF5 file that is read; bytes.
MAX_HDF5_BYTES = 1 << 30
#: The most numbers that are read from one file: 1 GB of memory.
MAX_NUMBERS = 1 << 27

_MAX_GROUPS = 100_000

# The longest bin and the longest time that are accepted: a month.
_LONGEST_NS = 31 * 86_400 * 10**9

#: Columns of ranks.h5 that pictures need: the parts of the wall time; their sum is the wall time.
TIME_COLUMNS = tuple(column_of(part) for part in time_parts(EpochSummary))

Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEpoch:
    """The events of one epoch; times are ns since its start on each rank's own clock.

    R is the number of ranks with rows. docs/report.md says for how many ranks and calls there are events.
    """

    #: number of the epoch, from 1
    epoch: int
    #: number of steps
    steps: int
    #: length of a bin; ns
    bin_ns: int
    #: the ranks that have rows; (R,)
    ranks: Ints
    #: bytes read in each bin; (R, bins)
    bytes: Ints
    #: data wait in each bin; ns; (R, bins)
    data_wait_ns: Ints
    #: time with calls in flight in each bin; ns; (R, bins)
    io_busy_ns: Ints
    #: compute in each bin; ns; (R, bins)
    compute_ns: Ints
    #: sync wait in each bin; ns; (R, bins)
    sync_wait_ns: Ints
    #: time that saves held the rank in each bin; ns; (R, bins)
    checkpoint_ns: Ints
    #: largest batch latency in each bin; ns; (R, bins)
    batch_latency_max_ns: Ints
    #: begun, ready, compute begun, compute ended, sync ended, saved, of the first W steps; ns; (R, W, 6); -1 if the
    #: rank did not do a step
    window_ns: Ints
    #: rank, reader thread, begin, end of each read; (n, 4)
    reads_ns: Ints
    #: rank, step, file, offset of each call; (n, 4)
    offsets: Ints
    #: upper edge in ns, and the count from the edge before to below it; (buckets, 2)
    batch_latency: Ints
    #: as `batch_latency`; (buckets, 2)
    call_latency: Ints

    @property
    def bin_count(self) -> int:
        """The number of bins up to the last one with an event."""
        times = (self.bytes, self.data_wait_ns, self.compute_ns, self.sync_wait_ns, self.checkpoint_ns)
        used = np.flatnonzero(sum(one.any(axis=0) for one in times))
        return int(used[-1]) + 1 if used.size else 0

    @property
    def seconds(self) -> float:
        """The time of the bins in use; s."""
        return self.bin_count * self.bin_ns * 1e-9


def read_rank_times(path: Path, loops: Sequence[LoopPhase], ranks: int) -> list[dict[str, Ints]]:
    """Return for each loop the `TIME_COLUMNS`, (epochs, ranks) each; UsageError if it does not fit results.json."""
    with _open_loops(path, loops) as groups:
        return [
            # Tool time is a remainder, and may be slightly below 0.
            {name: group.array(name, (epochs, ranks), -_LONGEST_NS, _LONGEST_NS) for name in TIME_COLUMNS}
            for group, epochs in groups
        ]


def read_timelines(path: Path, loops: Sequence[LoopPhase], ranks: int) -> list[list[RecordedEpoch]]:
    """Return for each loop the recorded epochs; UsageError if the file does not fit results.json."""
    with _open_loops(path, loops) as groups:
        return [[_read_epoch(*one, ranks, epochs) for one in group.groups()] for group, epochs in groups]


def _read_epoch(name: str, group: _Group, ranks: int, epochs: int) -> RecordedEpoch:
    if not name.isdecimal() or not 1 <= int(name[:12]) <= epochs:
        raise UsageError(f"{name} is not the number of an epoch; there are {epochs}")
    bin_ns, rows = group.whole("bin_ns"), group.array("ranks", (None,), 0, ranks - 1)
    content = group.array("bytes", (len(rows), None))
    bins = content.shape[1]
    if not 1 <= bin_ns <= _LONGEST_NS or bins * bin_ns > _LONGEST_NS:
        raise UsageError(f"{bins} bins of {bin_ns} ns")
    return RecordedEpoch(
        epoch=int(name),
        steps=group.whole("steps"),
        bin_ns=bin_ns,
        ranks=rows,
        bytes=content,
        window_ns=group.array("window_ns", (len(rows), None, 6), -1, _LONGEST_NS),
        reads_ns=group.array("reads_ns", (None, 4), most=_LONGEST_NS),
        offsets=group.array("offsets", (None, 4)),
        batch_latency=group.array("batch_latency", (None, 2)),
        call_latency=group.array("call_latency", (None, 2)),
        **{key: group.array(key, (len(rows), bins), most=_LONGEST_NS) for key in _BINNED},
    )


_BINNED = ("data_wait_ns", "io_busy_ns", "compute_ns", "sync_wait_ns", "checkpoint_ns", "batch_latency_max_ns")


@contextmanager
def _open_loops(path: Path, loops: Sequence[LoopPhase]) -> Iterator[list[tuple[_Group, int]]]:
    """Yield the groups of an HDF5 file, which are the loops of results.json, each with its number of epochs.

    UsageError if they are not, and if the file is none, too large or damaged, also while it is read.
    """
    import h5py  # takes 100 ms: tables alone do not need it

    check_file(path, MAX_HDF5_BYTES)
    try:
        with h5py.File(path, "r", locking=False) as file:
            root = _Group(file, [MAX_NUMBERS])
            check_version(root.whole("schema_version"), ARRAYS_VERSION)
            groups = [group for _, group in root.groups()]
            here = [(group.text("name"), group.text("kind")) for group in groups]
            there = [(loop.name, loop.kind) for loop in loops]
            if here != there:
                raise UsageError(f"its loops are not those of results.json next to it: {here[:5]}, not {there[:5]}")
            yield [(group, len(loop.epochs)) for group, loop in zip(groups, loops, strict=True)]
    except UsageError as error:
        raise UsageError(f"{path}: {printable(error.message)}") from error
    # h5py and HDF5 may raise any of these for broken files.
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read as HDF5: {printable(str(error))[:300]}") from error


@dataclass(slots=True)
class _Group:
    """A group of an open HDF5 file. Methods raise UsageError if a member is missing or has another type."""

    content: Any  #: h5py.Group
    left: list[int]  #: one number: how many numbers may still be read from the file; shared by its groups

    def groups(self) -> list[tuple[str, _Group]]:
        """Return the groups inside with their names, in the order of names."""
        import h5py

        names = sorted(self.content.keys())
        if len(names) > _MAX_GROUPS:
            raise self._error("", f"has more than {_MAX_GROUPS} groups")
        found = [(str(name), self._member(name)) for name in names]
        return [(name, _Group(one, self.left)) for name, one in found if isinstance(one, h5py.Group)]

    def text(self, name: str) -> str:
        """Return an attribute that is a text."""
        value = self.content.attrs.get(name)
        if not isinstance(value, str):
            raise self._error(name, "is not an attribute with a text")
        return printable(value)

    def whole(self, name: str) -> int:
        """Return an attribute that is a whole number, 0 or more."""
        value = self.content.attrs.get(name)
        if not isinstance(value, (int, np.integer)) or not 0 <= int(value) < 2**63:
            raise self._error(name, "is not an attribute with a whole number")
        return int(value)

    def array(self, name: str, shape: tuple[int | None, ...], least: int = 0, most: int = 1 << 53) -> Ints:
        """Return a data set of whole numbers from `least` to `most`; None in `shape` is any length."""
        import h5py

        found = self._member(name)
        if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
            raise self._error(name, "is not a data set of this file")
        if found.dtype.kind not in "iu":
            raise self._error(name, "does not hold whole numbers")
        expected = tuple(there if long is None else long for there, long in zip(found.shape, shape, strict=False))
        if len(found.shape) != len(shape) or found.shape != expected:
            raise self._error(name, f"has the shape {found.shape}, not {shape}".replace("None", "any"))
        self.left[0] -= found.size
        if self.left[0] < 0:
            raise self._error(name, f"brings the numbers of the file above {MAX_NUMBERS}")
        values = found[()]
        if values.size and not least <= int(values.min()) <= int(values.max()) <= most:
            raise self._error(name, f"holds numbers that are not between {least} and {most}")
        whole: Ints = values.astype(np.int64)
        return whole

    def _member(self, name: str) -> Any:
        """Return a member of this file; a link is refused, as it may lead to another file."""
        import h5py

        link = self.content.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise self._error(name, "is missing" if link is None else "is a link")
        return self.content[name]

    def _error(self, name: str, what: str) -> UsageError:
        place = f"{self.content.name}/{name}".replace("//", "/")
        return UsageError(f"{printable(place)[:200]} {what}")
