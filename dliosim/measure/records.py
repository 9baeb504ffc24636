"""What one rank knows of one epoch, or of one verb, when it ends; `summary` turns all ranks' records into figures."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.histogram import Histogram

#: What the last rank of a step had spent its time on, in the order of `EpochRecord.last_arrival`'s lowest three bits.
CAUSES = ("storage", "compute", "tool", "arrivals", "decode")

#: Fields of both records that a rank may not know, and which then are -1.
UNCERTAIN = ("rchar", "read_bytes", "distinct_bytes")

#: What an epoch alone has, and a rank may not know either.
CORE_WAITS = ("core_wait_ns", "reader_core_wait_ns")

_CAUSE_BITS = 3
_RANK_BITS = 22
_LONGEST_WAIT = (1 << 63 - _CAUSE_BITS - _RANK_BITS) - 1


def pack_arrival(wait_ns: int, rank: int, cause: int) -> int:
    """One word for `EpochRecord.last_arrival`: its minimum over ranks belongs to the rank that waited least.

    Waits are cut off at 2^38 ns, four and a half minutes, which changes no minimum that matters.
    """
    return min(wait_ns, _LONGEST_WAIT) << _RANK_BITS + _CAUSE_BITS | rank << _CAUSE_BITS | cause


def unpack_waits(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """The waits in words of `pack_arrival`, in ns."""
    return words >> _RANK_BITS + _CAUSE_BITS


def unpack_arrivals(words: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ranks and the causes (indices into `CAUSES`) in words of `pack_arrival`."""
    return words >> _CAUSE_BITS & (1 << _RANK_BITS) - 1, words & (1 << _CAUSE_BITS) - 1


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Steps between two checkpoints (or an epoch's ends), as DLIO takes its figures from them.

    `elapsed_ns` runs from the block's start to its end, barriers included, the checkpoint not. `first_ns` is the first
    step's wait for data, its processing in the step and its compute, `compute_ns` the compute, as slept, of the steps
    after it.
    """

    steps: int
    elapsed_ns: int
    first_ns: int
    compute_ns: int


@dataclass(slots=True)
class EpochRecord:
    """Counts, bytes, and nanoseconds (int) of one rank in one epoch of a loop.

    `steady_ns` is the wall time of the steps after the first, blocking checkpoints taken out, and `nominal_ns` the
    compute drawn (not slept) for those same steps: their quotient is the utilization. `steps` counts the steps done,
    `samples` and `bytes` what calls returned (kept in memory included in neither `bytes_moved` nor calls, but in
    `bytes`). `decode_ns` and `preprocess_ns` are added up over whoever read the batches; `processing_ns` is what of
    both lies in the steps themselves, 0 beside readers. `batch` is the samples of a full step of this rank. `open_ns`
    holds opening and closing. `rchar` and `read_bytes` are what /proc/self/io says, each -1 where it cannot tell.
    `core_wait_ns` is how long the thread that runs the steps could run and waited for a core, from the beginning of the
    first step to the end of the last, checkpoints taken out, and `reader_core_wait_ns` that of all reader threads added
    up; -1 where the kernel does not count it. `distinct_bytes` is this rank's share of what its node asked of storage,
    where each byte counts once; -1 is unknown.
    `unchecked_bytes` are those of which `--verify` knew nothing. `last_arrival` has one `pack_arrival` a step
    that ended in a sync: of the same length on every rank. `null` is whether it was run without I/O.

    `content_ns` is making the contents of checkpoints, which is no part of any other figure, `wall_ns` among them. Of
    the steps after the first those of `flush_steps` had a save in the background beside them on this rank, those of
    `clear_steps` none; `..._ns` is from their beginning to the end of their sync, `..._data_wait_ns` of it waiting.
    """

    phase: int
    epoch: int
    batch: int = 0
    null: bool = False
    steps: int = 0
    samples: int = 0
    bytes: int = 0
    bytes_moved: int = 0
    unchecked_bytes: int = 0
    calls: int = 0
    opens: int = 0
    wall_ns: int = 0
    steady_ns: int = 0
    steady_samples: int = 0
    nominal_ns: int = 0
    data_wait_ns: int = 0
    io_busy_ns: int = 0
    open_ns: int = 0
    view_ns: int = 0
    compute_ns: int = 0
    sync_wait_ns: int = 0
    arrival_wait_ns: int = 0
    checkpoint_ns: int = 0
    content_ns: int = 0
    flush_steps: int = 0
    flush_steps_ns: int = 0
    flush_data_wait_ns: int = 0
    clear_steps: int = 0
    clear_steps_ns: int = 0
    clear_data_wait_ns: int = 0
    decode_ns: int = 0
    preprocess_ns: int = 0
    processing_ns: int = 0
    oversleep_ns: int = 0
    order_hash: int = 0
    extent_hash: int = 0
    rchar: int = -1
    read_bytes: int = -1
    distinct_bytes: int = -1
    core_wait_ns: int = -1
    reader_core_wait_ns: int = -1
    batch_latency: Histogram = field(default_factory=Histogram)
    call_latency: Histogram = field(default_factory=Histogram)
    request_latency: Histogram = field(default_factory=Histogram)
    last_arrival: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    blocks: list[StepBlock] = field(default_factory=list)

    @property
    def call_ns(self) -> int:
        """The latencies of all read calls together, which by the time in which any was in flight is their depth."""
        return self.call_latency.sum_ns

    @property
    def tool_ns(self) -> int:
        """The rest of the wall time: neither waiting for data, arrivals or ranks, nor computing, decoding or saving."""
        named = self.data_wait_ns + self.compute_ns + self.sync_wait_ns + self.arrival_wait_ns + self.processing_ns
        return self.loop_ns - named

    @property
    def loop_ns(self) -> int:
        """The wall time of the steps themselves, blocking checkpoints taken out."""
        return self.wall_ns - self.checkpoint_ns

    @property
    def utilization(self) -> float | None:
        """Nominal compute by wall time of the steps after the first; None without compute or without such steps.

        None, too, where requests arrive by themselves: how busy they keep a rank says nothing about storage.
        """
        known = self.nominal_ns > 0 and self.steady_ns > 0 and not self.is_open_loop
        return self.nominal_ns / self.steady_ns if known else None

    @property
    def is_open_loop(self) -> bool:
        """Whether requests arrived by themselves, each of which then has a latency of its own."""
        return self.request_latency.count > 0


@dataclass(slots=True)
class VerbRecord:
    """Counts, bytes, and nanoseconds (int) of one rank in one verb that writes or reads files: prepare, save, restore.

    `wall_ns` holds everything, `call_ns` the reading or writing calls alone, `content_ns` making or checking the
    data, `encode_ns` what a format makes of them (checksums, compression, images), `send_ns` passing them to or from
    another rank, `rename_ns` moving complete files into place (of a checkpoint on rank 0 alone), `delete_ns` waiting
    for old checkpoints to be deleted, after the end of `wall_ns`. `uncounted_files` were written by a library whose
    calls and bytes nobody could count. `resident_bytes` of `examined_bytes` were in the page cache when it was last
    looked at. `hints` are those granted for the first file, None where this rank opened none.

    Of a save and a restore `wall_ns` leaves out `content_ns`. `serialize_ns` is the CPU's share before writing,
    `plan_ns` the gathering of all ranks' plans and the file of them, or reading it. `broadcast_ns` is, of a restore,
    passing on what one rank reads for others, and waiting for it. `stall_ns` is how long the caller was held: of a
    save in the background `wait_ns` for earlier ones still in flight and `stage_ns` for the copy to buffers; `flush_ns`
    is then the time from there until it is complete, and `wall_ns` both. `partner_ns`, of which `partner_bytes` were
    written, is that of the copy to a partner, which ends before the checkpoint is complete; `drain_ns` and
    `drain_bytes` are of its copying to another root afterwards. `commit_ns` is making a written checkpoint complete:
    telling rank 0 what was written, and waiting for it; there it has `directory_sync_ns`, `manifest_ns` and `rename_ns`
    in it.

    Of a restore `root` is where it was read from, `rchar`, `read_bytes` and `distinct_bytes` are as in an epoch; all
    but `root` -1 of what writes.
    """

    wall_ns: int = 0
    bytes: int = 0
    bytes_moved: int = 0
    files: int = 0
    uncounted_files: int = 0
    calls: int = 0
    opens: int = 0
    call_ns: int = 0
    content_ns: int = 0
    encode_ns: int = 0
    send_ns: int = 0
    open_ns: int = 0
    view_ns: int = 0
    file_sync_ns: int = 0
    rename_ns: int = 0
    commit_ns: int = 0
    manifest_ns: int = 0
    directory_sync_ns: int = 0
    delete_ns: int = 0
    serialize_ns: int = 0
    plan_ns: int = 0
    broadcast_ns: int = 0
    stall_ns: int = 0
    wait_ns: int = 0
    stage_ns: int = 0
    flush_ns: int = 0
    drain_ns: int = 0
    drain_bytes: int = 0
    partner_ns: int = 0
    partner_bytes: int = 0
    rchar: int = -1
    read_bytes: int = -1
    distinct_bytes: int = -1
    root: str | None = None
    resident_bytes: int = 0
    examined_bytes: int = 0
    call_latency: Histogram = field(default_factory=Histogram)
    hints: dict[str, str] | None = None
