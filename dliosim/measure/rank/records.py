"""Records of one rank for one epoch or verb; `summary` turns the records of all ranks into figures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.reducer import Ints

#: Activities of the last rank of a step; the lowest three bits of `EpochRecord.last_arrival` are an index into this.
CAUSES = ("storage", "compute", "tool", "arrivals", "decode")

#: A field of a record that is reduced over ranks; one that is -1 by default is unknown if it is below 0.
Column: TypeAlias = int

#: A column that is a part of the wall time: what no part has is tool time.
PartColumn: TypeAlias = int

#: A column that ranks.h5 does not have.
InnerColumn: TypeAlias = int

#: `step_times.READINGS` that a `StepLog` has of each step, ns.
LOGGED = ("begun", "fetched", "compute_begun", "compute_ended", "sync_ended", "saved")

_CAUSE_BITS = 3
_RANK_BITS = 22
_LONGEST_WAIT = (1 << 63 - _CAUSE_BITS - _RANK_BITS) - 1


def pack_arrivals(waits: ArrayLike, rank: int, causes: ArrayLike) -> Ints:
    """Return words for `EpochRecord.last_arrival`; the minimum over ranks is the word of the rank that waited least.

    Waits are in ns, limited to 2^38, four and a half minutes; this changes no minimum that matters.
    """
    shown = np.minimum(np.asarray(waits, np.int64), _LONGEST_WAIT)
    return shown << _RANK_BITS + _CAUSE_BITS | rank << _CAUSE_BITS | np.asarray(causes, np.int64)


def unpack_waits(words: Ints) -> Ints:
    """Return the waits in words of `pack_arrivals`, in ns."""
    return words >> _RANK_BITS + _CAUSE_BITS


def unpack_arrivals(words: Ints) -> tuple[Ints, Ints]:
    """Return the ranks and the causes (indices into `CAUSES`) in words of `pack_arrivals`."""
    return words >> _CAUSE_BITS & (1 << _RANK_BITS) - 1, words & (1 << _CAUSE_BITS) - 1


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Steps between two checkpoints (or an epoch's ends), for the figures of DLIO."""

    #: number of steps
    steps: int
    #: from the start of the block to its end, barriers included, the checkpoint not
    elapsed_ns: int
    #: the first step's wait for data, its processing in the step and its compute
    first_ns: int
    #: compute, as slept, of the steps after the first
    compute_ns: int


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The reads of one of several data sets by one rank in one epoch of a loop."""

    #: name of the data set
    name: str
    #: its samples in the steps done
    samples: int
    #: bytes of these samples
    bytes: int
    #: hash of these samples in their order
    order_hash: int
    #: one read call
    call_latency: Histogram


@dataclass(slots=True)
class EpochRecord:
    """Counts, bytes, and nanoseconds (int) of one rank in one epoch of a loop.

    `nominal_ns` / `steady_ns` is the utilization. Fields with -1 are unknown.
    """

    #: number of the phase
    phase: int
    #: number of the epoch, from 1
    epoch: Column
    #: samples of a full step of this rank
    batch: int = 0
    #: True if it ran without I/O
    null: bool = False
    #: steps done
    steps: Column = 0
    #: samples of these steps
    samples: Column = 0
    #: bytes of these samples, with those kept in memory
    bytes: Column = 0
    #: bytes that calls moved, without those kept in memory
    bytes_moved: Column = 0
    #: bytes with contents that `--verify` does not know
    unchecked_bytes: InnerColumn = 0
    #: read calls
    calls: Column = 0
    #: files opened
    opens: Column = 0
    #: from the start of the clock to the end of the last step, checkpoints after it included, `content_ns` not
    wall_ns: Column = 0
    #: wall time of the steps after the first, without blocking checkpoints
    steady_ns: Column = 0
    #: samples of the steps after the first
    steady_samples: Column = 0
    #: bytes of these samples, as in `bytes`
    steady_bytes: InnerColumn = 0
    #: compute drawn (not slept) for the steps after the first
    nominal_ns: Column = 0
    #: waiting for data while read calls ran
    data_wait_ns: PartColumn = 0
    #: time with at least one read call under way
    io_busy_ns: Column = 0
    #: opening and closing files
    open_ns: Column = 0
    #: setting MPI-IO file views
    view_ns: Column = 0
    #: compute, as slept
    compute_ns: PartColumn = 0
    #: waiting in syncs
    sync_wait_ns: PartColumn = 0
    #: waiting for requests to arrive
    arrival_wait_ns: PartColumn = 0
    #: held by saves: the greatest stall of any rank for blocking ones, else the rank's own
    checkpoint_ns: PartColumn = 0
    #: the rest of the time of saves, mostly making contents; in no other figure, not even in `wall_ns`
    content_ns: Column = 0
    #: dropping the pages of the data set before the epoch; in no other figure
    drop_ns: Column = 0
    #: steps after the first that ran during a save in the background of this rank
    flush_steps: InnerColumn = 0
    #: time of these steps, from the start to the end of the sync
    flush_steps_ns: InnerColumn = 0
    #: of it, waiting for data
    flush_data_wait_ns: InnerColumn = 0
    #: steps after the first that ran without a save in the background
    clear_steps: InnerColumn = 0
    #: time of these steps, from the start to the end of the sync
    clear_steps_ns: InnerColumn = 0
    #: of it, waiting for data
    clear_data_wait_ns: InnerColumn = 0
    #: decoding, summed over all reading threads
    decode_ns: Column = 0
    #: preprocessing, summed over all reading threads
    preprocess_ns: Column = 0
    #: decoding and preprocessing in the steps themselves; 0 with readers
    processing_ns: PartColumn = 0
    #: compute beyond the time asked
    oversleep_ns: Column = 0
    #: hash of the samples in their order
    order_hash: int = 0
    #: hash of the extents read
    extent_hash: int = 0
    #: bytes by read calls (/proc/self/io); -1 unknown
    rchar: Column = -1
    #: bytes from the device (/proc/self/io); -1 unknown
    read_bytes: Column = -1
    #: this rank's share of what its node asked of storage, counting each byte once; -1 unknown
    distinct_bytes: InnerColumn = -1
    #: thread of the steps ready but without a core, from the first step to the last, without checkpoints; -1 unknown
    core_wait_ns: Column = -1
    #: the same for all reader threads, summed; -1 unknown
    reader_core_wait_ns: Column = -1
    #: time that a step waited for data
    batch_latency: Histogram = field(default_factory=Histogram)
    #: one read call
    call_latency: Histogram = field(default_factory=Histogram)
    #: from a request's arrival to its answer
    request_latency: Histogram = field(default_factory=Histogram)
    #: one of `pack_arrivals` for each step that ended in a sync; the same length on every rank
    last_arrival: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    #: time of the steps up to each sync, and of those after the last, without the epoch's first, int64 (syncs + 1, 3):
    #: with storage that needs no time, and with this one, if nothing else held them; see `storage_time`. The third
    #: column is minus the time when this rank left the sync, from an origin of all ranks (`align_syncs`)
    storage_ns: Ints = field(default_factory=lambda: np.zeros((1, 3), np.int64))
    #: steps between checkpoints, for the figures of DLIO
    blocks: list[StepBlock] = field(default_factory=list)
    #: reads of each data set, if the loop has several; the same ones on every rank
    sources: list[SourceRecord] = field(default_factory=list)

    @property
    def call_ns(self) -> int:
        """Return the sum of the latencies of all read calls; divided by I/O busy, it is the depth."""
        return self.call_latency.sum_ns

    @property
    def tool_ns(self) -> int:
        """Return the rest of the wall time: no waiting, computing, decoding or saving."""
        parts: int = sum(getattr(self, name) for name in column_names(type(self), "PartColumn"))
        return self.wall_ns - parts

    @property
    def loop_ns(self) -> int:
        """Return the wall time of the steps themselves, without blocking checkpoints."""
        return self.wall_ns - self.checkpoint_ns

    @property
    def utilization(self) -> float | None:
        """Return nominal compute / wall time of the steps after the first, a ratio.

        None without compute or without such steps. None with requests, too: they decide how idle the rank is, not the
        storage.
        """
        known = self.nominal_ns > 0 and self.steady_ns > 0 and not self.is_open_loop
        return self.nominal_ns / self.steady_ns if known else None

    @property
    def is_open_loop(self) -> bool:
        """Return True if requests arrived on their own schedule; then each has a latency."""
        return self.request_latency.count > 0


@dataclass(slots=True)
class VerbRecord:
    """Counts, bytes, and nanoseconds (int) of one rank in one verb that writes or reads files: prepare, save, restore.

    `wall_ns` holds all other times, except `content_ns` of a save or restore, and `delete_ns` and `drain_ns`, which
    come after it. For a save in the background it is `stall_ns` + `flush_ns`. Fields with -1 are unknown.
    """

    #: whole time of the verb
    wall_ns: Column = 0
    #: bytes of content
    bytes: Column = 0
    #: bytes that calls moved
    bytes_moved: Column = 0
    #: files written or read
    files: Column = 0
    #: files written by a library that reports neither calls nor bytes
    uncounted_files: Column = 0
    #: read or write calls
    calls: Column = 0
    #: files opened
    opens: Column = 0
    #: in read or write calls
    call_ns: Column = 0
    #: making the data, or checking them
    content_ns: Column = 0
    #: the format's work: checksums, compression, images
    encode_ns: Column = 0
    #: passing data to or from another rank
    send_ns: Column = 0
    #: opening and closing
    open_ns: Column = 0
    #: setting MPI-IO file views
    view_ns: Column = 0
    #: fsync
    file_sync_ns: Column = 0
    #: moving complete files into place; for a checkpoint on rank 0 only
    rename_ns: Column = 0
    #: making a written checkpoint complete: informing rank 0 of what was written, and waiting for it; on rank 0 it
    #: includes `directory_sync_ns`, `manifest_ns` and `rename_ns`, but not `plan_ns`
    commit_ns: Column = 0
    #: writing the manifest; on rank 0 only
    manifest_ns: Column = 0
    #: making directories durable; on rank 0 only
    directory_sync_ns: Column = 0
    #: waiting for old checkpoints to be deleted, after the end of `wall_ns`
    delete_ns: Column = 0
    #: work of the processor before writing (`serialize`)
    serialize_ns: Column = 0
    #: gathering and writing all ranks' plans, or reading them
    plan_ns: Column = 0
    #: of a restore: reading whole files before the ranges that are needed of them
    ahead_ns: Column = 0
    #: of a restore: sending what one rank reads for others, and waiting for it
    broadcast_ns: Column = 0
    #: the caller was held
    stall_ns: Column = 0
    #: of a save: waiting for earlier ones in flight
    wait_ns: Column = 0
    #: of a save with `at most N writers at a time`: waiting for the turn to write, or to send to a writer
    turn_ns: Column = 0
    #: of a save in the background: the copy to buffers
    stage_ns: Column = 0
    #: of a save in the background: from the end of the stall until it is complete
    flush_ns: Column = 0
    #: copying the complete checkpoint to another root
    drain_ns: Column = 0
    #: bytes copied to another root
    drain_bytes: Column = 0
    #: the copy to a partner, before the checkpoint is complete
    partner_ns: Column = 0
    #: bytes written for a partner
    partner_bytes: Column = 0
    #: of a restore: bytes by read calls (/proc/self/io); -1 unknown
    rchar: Column = -1
    #: of a restore: bytes from the device (/proc/self/io); -1 unknown
    read_bytes: Column = -1
    #: of a restore: this rank's share of what its node asked, counting each byte once; -1 unknown
    distinct_bytes: Column = -1
    #: of a restore: the root that was read
    root: str | None = None
    #: of `examined_bytes`, those in the page cache when last examined
    resident_bytes: Column = 0
    #: bytes that were looked up in the page cache
    examined_bytes: Column = 0
    #: of a `convert` or `stage`: bytes of the samples that it read
    source_bytes: Column = 0
    #: of a `convert` or `stage`: read calls
    source_calls: Column = 0
    #: of a `convert` or `stage`: files opened to read
    source_opens: Column = 0
    #: of a `convert` or `stage`: reading; of a `convert` with opening files and comparing what was read with what
    #: was prepared
    source_ns: Column = 0
    #: of a `convert`: decoding what was read
    decode_ns: Column = 0
    #: of a `convert`: preprocessing
    preprocess_ns: Column = 0
    #: of a `stage`: bytes that this rank's node copied in a second, until its ranks had copied theirs; -1 unknown
    node_rate: Column = -1
    #: one read or write call
    call_latency: Histogram = field(default_factory=Histogram)
    #: hints granted for the first file; None if this rank opened no file
    hints: dict[str, str] | None = None


def column_names(record: type, *kinds: str) -> tuple[str, ...]:
    """Return the names of a record's fields of these types, such as `Column`."""
    return tuple(one.name for one in fields(record) if one.type in kinds)


@dataclass(frozen=True, slots=True)
class LoggedEpoch:
    """The steps of one epoch of a loop."""

    #: verb of the loop: `train`, `evaluate` or `infer`
    kind: str
    #: samples of a full step of this rank
    batch: int
    #: clock reading at the start of the epoch, ns
    started: int
    #: readings of the clock, (steps, `LOGGED`), ns
    readings: Ints
    #: compute asked, (steps,), ns
    asked: Ints


@dataclass(frozen=True, slots=True)
class LoggedCheckpoint:
    """A save or a restore of this rank."""

    #: `save` or `restore`
    kind: str
    #: clock reading at its begin, ns
    begun: int
    #: `begun` and the time in which it held the slowest rank, ns
    ended: int
    #: bytes of the checkpoint over all ranks
    bytes: int


@dataclass(frozen=True, slots=True)
class StepLog:
    """Times of every step and checkpoint of this rank, for the whole run: results.json has those of 64 steps."""

    #: epochs of loops
    epochs: list[LoggedEpoch] = field(default_factory=list)
    #: saves and restores
    checkpoints: list[LoggedCheckpoint] = field(default_factory=list)
