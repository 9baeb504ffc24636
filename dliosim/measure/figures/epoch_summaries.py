"""The figures of an epoch and of a verb over all ranks, each declared once: see `figures`. Only rank 0 has them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from dliosim.measure.figures.declaration import (
    BoundShares,
    Derived,
    Hash,
    Part,
    Reduced,
    Share,
    Signed,
    Times,
    TimeSpread,
    figure,
    quotient,
)
from dliosim.measure.rank.histogram import Histogram


def storage_byte_bound(asked: int, called: int | None, distinct: int | None, device: int | None) -> int:
    """Return the greatest part of the `asked` bytes that storage may have given.

    A rate of more bytes would be wrong. If several ranks of a node ask for the same bytes, the page cache gives them
    to all but the first: then the bound is `distinct`, or `device` if that is more, as with reads past the cache.
    If one rank reads for others, no more than `called` bytes went through read calls. None is unknown and bounds
    nothing.
    """
    given = asked if distinct is None else max(distinct, device or 0)
    return min(asked, given, asked if called is None else called)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSummary:
    """The reads of one of several data sets in an epoch of a loop, over all ranks."""

    #: name of the data set
    name: str
    #: its samples in completed steps
    samples: int
    #: bytes of these samples, as in those of the epoch
    bytes: int
    #: `samples` / `loop_seconds` of the epoch
    samples_per_second: float | None
    #: `bytes` / `loop_seconds` of the epoch; `null` if nothing was read
    bytes_per_second: float | None
    #: one read call, as in the epoch's; a copy of `engine mmap` that holds samples of several data sets is in none
    call_latency: Histogram
    #: as `order_hash` of the epoch, of the samples of this data set
    order_hash: Hash


#: The reads of each data set, in the order of `read`.
SourceSummaries: TypeAlias = tuple[SourceSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSummary:
    """One epoch of a loop over all ranks; docs/metrics.md has the formula of every figure.

    Counts are sums over ranks. A figure is None if its input is missing (compute, a sync, /proc/self/io). Only
    `content_seconds` has the time of making the contents of checkpoints. Waits for a core are parts of the other times;
    the kernel does not say which.
    """

    #: number of the epoch, from 1; the numbers of an evaluation continue from run to run
    epoch: int = figure(of=lambda ranks: ranks.most["epoch"])
    #: number of ranks
    ranks: int = figure(of=lambda ranks: ranks.ranks, saved=False)
    #: most steps of any rank
    steps: int = figure(of=lambda ranks: ranks.most["steps"])
    #: fewest steps of any rank
    fewest_steps: int = figure(of=lambda ranks: ranks.least["steps"])
    #: samples of completed steps, over ranks
    samples: int
    #: bytes asked: those of these samples as stored (compressed, with the format's bytes around each, an even part of a
    #: unit that several share), with samples kept by `cache memory`
    bytes: int
    #: bytes that the calls moved, alignment included, without kept samples; if the backend does not know them, the
    #: bytes asked. More than `bytes` if units (chunks, row groups) are read whole. With `through library` everything
    #: that the process read by read calls, with indexes. *moved / asked* is this / `bytes`
    bytes_moved: int
    #: read calls; with `through library` calls of the library; with `engine mmap` copies of a reader's share of a step,
    #: or of each sample with `open each sample`
    calls: int
    #: files opened
    opens: int
    #: greatest `wall_ns` of any rank
    seconds: float = figure(of=lambda ranks: ranks.most["wall_ns"] * 1e-9)
    #: greatest `loop_ns` of any rank
    loop_seconds: float = figure(of=lambda ranks: ranks.most["loop_ns"] * 1e-9)
    #: samples of the steps after the first / greatest `steady_ns` of any rank
    steady_samples_per_second: float | None = figure(of=Reduced.steady_rate)
    #: compute asked / wall time of the steps after the first, mean over ranks: `nominal_ns` / `steady_ns`
    utilization: float | None = figure("utili-\nzation %", of=lambda ranks: ranks.mean_ratio("utilization"))
    #: summed over syncs: the most that any rank would take for its steps with storage that needs no time / the same
    #: with this storage: see "Storage-limited utilization"
    storage_utilization: Share | None = figure("storage\nlimited %", of=Reduced.storage_utilization)
    #: standard error of `storage_utilization`, from the times between syncs; `null` with fewer than two
    storage_utilization_error: float | None = figure(of=Reduced.storage_utilization_error)
    #: time that the steps after the first would take with this storage, if nothing else held them
    storage_step_seconds: float = figure(of=Reduced.storage_step_seconds)
    #: bytes of the steps after the first, as in `bytes`
    steady_bytes: int
    #: least utilization of any rank
    utilization_min: float | None = figure(of=lambda ranks: ranks.to_ratio(ranks.least, "utilization"))
    #: greatest utilization of any rank
    utilization_max: float | None = figure(of=lambda ranks: ranks.to_ratio(ranks.most, "utilization"))
    #: sum over steps: the part of the wait for the batch that was inside calls: see "Whose time a wait is"
    data_wait_seconds: Part = figure("data\nwait", "times")
    #: time in which at least one read call of the rank ran; without opening, closing and setting views
    io_busy_seconds: TimeSpread = figure("I/O\nbusy", "times")
    #: opening and closing files for the epoch, summed over readers; also before and after its clock
    open_seconds: TimeSpread = figure("open,\nclose", "times")
    #: setting MPI-IO file views, summed over readers
    view_seconds: TimeSpread = figure("view", "times", optional=True)
    #: the format's decoder, summed over all reading threads; not in I/O busy
    decode_seconds: TimeSpread = figure("decode", "times", optional=True)
    #: sleeping or working for `preprocess`, summed over all reading threads
    preprocess_seconds: TimeSpread = figure("pre-\nprocess", "times", optional=True)
    #: sum over steps: idle until the request arrived (`requests … every` only)
    arrival_wait_seconds: Part = figure("arrival\nwait", "times", optional=True)
    #: sum over steps: time that the sleep (or busy work) took, not the time asked
    compute_seconds: Part = figure("compute", "times", optional=True)
    #: sum over synced steps: end of the barrier or allreduce - own arrival at it; and the barrier before a save
    sync_wait_seconds: Part = figure("sync\nwait", "times", optional=True)
    #: time that saves after steps and epochs (not `at end`) held the rank: for a blocking save the greatest
    #: `stall_seconds` of any rank, for one in the background the rank's own
    checkpoint_seconds: Part = figure("check-\npoint", "times", optional=True)
    #: sum over steps: decoding and preprocessing in the step itself (`readers 0`, `scatter by node`), after the batch
    #: is in memory; 0 with readers, if they are part of the data wait
    processing_seconds: Part
    #: wall time - all other parts: work between calls, checking data, bookkeeping, the progress line
    tool_seconds: Part = figure("tool", "times")
    #: time in which the thread of the steps was ready to run but had no core: see "Waiting for a core"
    core_wait_seconds: TimeSpread | None = figure("core\nwait", "core waits", optional=True)
    #: the same for the rank's reader threads, summed; 0 without readers
    reader_core_wait_seconds: TimeSpread | None = figure("readers'\ncore wait", "core waits", optional=True)
    #: time of saves that `checkpoint_seconds` leaves out: making contents and their checksums, and waiting for ranks
    #: that make theirs; in no other time, not even in `seconds`
    content_seconds: TimeSpread
    #: `caches cold each epoch`: dropping the pages of the data set before the epoch; in no other time
    drop_seconds: TimeSpread = figure("dropping\ncaches", "times", optional=True)
    #: data wait of a step: the part of its wait that was inside calls
    batch_latency: Histogram = figure("batch")
    #: one read call, on the reader's thread; with `engine mmap` one copy, as in `calls`; with `engine queued` from
    #: submission to the kernel until its completion is seen, which may be some calls later
    call_latency: Histogram = figure("call")
    #: batch in memory (and decoded, if the step does that itself) - arrival of the request, plus its compute. Queueing
    #: counts; checking its contents and the tool's work between calls do not
    request_latency: Histogram = figure("request")
    #: share of synced steps by what took most of the last rank's time since the last sync: storage, compute, tool,
    #: arrivals, decode; see "Bound by"
    bound_by: BoundShares | None = figure(of=Reduced.cause_shares)
    #: rank that was last in most of the synced steps
    slowest_rank: int | None = figure(
        "rank most\noften last", "causes", optional=True, usual=math.nan, of=Reduced.slowest_rank
    )
    #: share of synced steps in which that rank was last
    slowest_rank_share: Share | None = figure(
        "in\nsteps", "causes", optional=True, usual=math.nan, of=Reduced.slowest_rank_share
    )
    #: sum over synced steps of the least sync wait of any rank: the time of the syncs themselves
    least_sync_wait_seconds: float | None = figure(of=Reduced.least_sync_wait)
    #: sum over ranks of (`compute_ns` - compute asked) / sum of compute asked
    oversleep_share: Signed | None = figure("over-\nsleep", "causes", optional=True, of=Reduced.oversleep_share)
    #: bytes of all read calls of the process (/proc/self/io, without reading that file); `null` (-1 in ranks.h5) if
    #: that file is missing on any rank or does not count these reads (`engine mmap`, `engine queued`)
    read_call_bytes: int | None = figure(of=lambda ranks: ranks.total_if_known("rchar"))
    #: bytes from storage below the page cache (/proc/self/io); `null` (-1 in ranks.h5) if the kernel does not count
    #: reads of the file system, as a page that is read before the loop shows
    device_bytes: int | None = figure(of=lambda ranks: ranks.total_if_known("read_bytes"))
    #: summed latencies of all read calls / summed I/O busy: mean number of calls in flight while any was, with `engine
    #: queued` or several readers. Otherwise 1, and then not in the table; `null` without calls
    depth: float | None = figure(
        "calls in\nflight", "checks", optional=True, usual=1.0, of=quotient("call_ns", "io_busy_ns")
    )
    #: compute as slept of the steps after the first / (block's time - first step's wait, processing and compute);
    #: step-weighted over blocks, mean over ranks: see "DLIO's own figures"
    dlio_au: float | None = figure("DLIO's\nAU %", "DLIO", optional=True, of=lambda ranks: ranks.mean_ratio("dlio_au"))
    #: (steps - 2) x batch / the time of `dlio_au`; step-weighted over blocks, summed over ranks; `null` if it is not
    #: above 0 on a rank
    dlio_samples_per_second: float | None = figure("DLIO's\nsamples/s", "DLIO", optional=True, of=Reduced.dlio_rate)
    #: sum of hashes of data set's name, epoch, step, rank, sample, length, and the loop of the run
    order_hash: Hash
    #: sum of hashes of data set's digest, file, offset, length, and the loop, for each range read from storage
    extent_hash: Hash
    #: the same figures of each data set, if the loop reads several; else empty
    datasets: SourceSummaries = figure(of=lambda ranks: ranks.sources)
    #: True if nothing was read (`--null`); there is no bandwidth then
    null: bool = figure(of=lambda ranks: bool(ranks.most["null"]), saved=False)
    #: `seconds` of the same epoch without I/O (`--with-null`)
    null_seconds: float | None = figure(of=lambda _: None)
    #: bytes read whose contents `--verify` does not know, in whole units if units are read whole
    unchecked_bytes: int
    #: bytes asked by calls that differ: a byte that several ranks of a node ask for, or one rank several times, counts
    #: once for that node; `null` beyond 4,194,304 ranges of a rank. With `through library` bytes of contents
    distinct_bytes: int | None
    #: steps of all ranks, without their first, next to a save in the background
    flush_steps: int
    #: mean time of a step next to a save, from its start to the end of its sync
    flush_step_seconds: float | None = figure(of=quotient("flush_steps_ns", "flush_steps", 1e-9))
    #: mean data wait of a step next to a save
    flush_data_wait_seconds: float | None = figure(of=quotient("flush_data_wait_ns", "flush_steps", 1e-9))
    #: steps of all ranks, without their first, with no save next to them
    clear_steps: int
    #: mean time of a step with no save next to it, from its start to the end of its sync
    clear_step_seconds: float | None = figure(of=quotient("clear_steps_ns", "clear_steps", 1e-9))
    #: mean data wait of a step with no save next to it
    clear_data_wait_seconds: float | None = figure(of=quotient("clear_data_wait_ns", "clear_steps", 1e-9))

    @property
    def late_compute_seconds(self) -> float:
        """Return the time that compute took longer than asked, mean over ranks; s."""
        return self.compute_seconds.mean * (1 - 1 / (1 + (self.oversleep_share or 0.0)))

    @property
    def bytes_from_storage(self) -> int:
        """Return the bytes of samples that read calls brought.

        Without samples kept by `cache memory`, and without bytes that are read around samples.
        """
        return min(self.bytes, self.bytes_moved)

    @property
    def asks_storage(self) -> bool:
        """Return whether calls asked for bytes of files: not if `cache memory` had them all, or files hold none."""
        return bool(self.bytes_moved) and self.distinct_bytes != 0

    @property
    def unique_bytes(self) -> int:
        """Return `bytes_from_storage`, if known without what several ranks of a node asked for again."""
        asked = self.bytes_from_storage
        return asked if self.distinct_bytes is None else min(asked, self.distinct_bytes)

    @partial(Derived, heading="read() /\nasked", table="checks", optional=True, usual=1.0)
    def amplification(self) -> float | None:
        """Return `read_call_bytes` / `bytes`; None if the first is unknown or the second is 0."""
        return None if self.read_call_bytes is None or not self.bytes else self.read_call_bytes / self.bytes

    @partial(Derived, heading="device /\nasked")
    def storage_amplification(self) -> float | None:
        """Return `device_bytes` / `bytes`; None if the first is unknown or the second is 0."""
        return None if self.device_bytes is None or not self.bytes else self.device_bytes / self.bytes

    @property
    def bytes_once(self) -> int:
        """Return the part of `bytes_from_storage` that storage may have given: see `storage_byte_bound`."""
        return storage_byte_bound(self.bytes_from_storage, self.read_call_bytes, self.distinct_bytes, self.device_bytes)

    @Derived
    def samples_per_second(self) -> float | None:
        """Return `samples` / `loop_seconds`: of all ranks, by the slowest, without checkpoints.

        None without samples.
        """
        return self.samples / self.loop_seconds if self.samples and self.loop_seconds > 0 else None

    @Derived
    def bytes_per_second(self) -> float | None:
        """Return `bytes` / `loop_seconds`; / 10^9 on a terminal. None if nothing was read."""
        return self.bytes / self.loop_seconds if self.bytes and self.loop_seconds > 0 and not self.null else None

    @Derived
    def slowdown(self) -> float | None:
        """Return `seconds` / `null_seconds`; None if no run without I/O was made."""
        return self.seconds / self.null_seconds if self.null_seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbSummary:
    """One verb that writes or reads files, over all ranks; docs/metrics.md has the formula of every figure.

    Counts are sums over ranks. A figure is None if it is not counted.
    """

    #: number of ranks
    ranks: int = figure(of=lambda ranks: ranks.ranks, saved=False)
    #: bytes of content over ranks; bytes that several ranks read count for each of them
    bytes: int = figure("bytes")
    #: bytes that the calls moved; for `prepare` those of the files, with headers, indexes and sidecars
    bytes_moved: int | None = figure(of=lambda ranks: ranks.total_if_counted("bytes_moved"))
    #: files written or read, over ranks
    files: int = figure("files")
    #: read or write calls
    calls: int | None = figure(of=lambda ranks: ranks.total_if_counted("calls"))
    #: files opened
    opens: int
    #: greatest wall time of any rank, from all ranks ready to files complete (with fsync and renaming). Saves and
    #: restores without making and checking contents; a save in the background: stall + flush
    seconds: float = figure("time", of=lambda ranks: ranks.most["wall_ns"] * 1e-9)
    #: each of the times below, of the rank that took longest
    slowest_rank_seconds: Times = figure(of=lambda ranks: ranks.slowest)
    #: time in write or read calls
    call_seconds: TimeSpread = figure("calls", "parts")
    #: making data to write, checking data read
    content_seconds: TimeSpread = figure("making\ndata", "parts")
    #: the format's work on the data: checksums, compression, images, records around samples
    encode_seconds: TimeSpread = figure("encoding", "parts")
    #: processor time of `serialize`, before writing
    serialize_seconds: TimeSpread = figure("seri-\nalizing", "parts")
    #: passing data to or from the writing rank
    send_seconds: TimeSpread = figure("sending", "parts")
    #: `at most N writers at a time`: waiting for the turn to write
    turn_seconds: TimeSpread = figure("turn", "parts")
    #: `read ahead whole file`: reading files before the ranges that are needed of them
    ahead_seconds: TimeSpread = figure("reading\nahead", "parts")
    #: `restore … once`: sending what one rank reads for others, and waiting for it
    broadcast_seconds: TimeSpread = figure("broad-\ncasting", "parts")
    #: opening and closing
    open_seconds: TimeSpread = figure("open,\nclose", "parts")
    #: setting MPI-IO file views
    view_seconds: TimeSpread = figure("view", "parts")
    #: fsync
    file_sync_seconds: TimeSpread = figure("sync", "parts")
    #: `metadata on`: gathering all ranks' plans and writing their file; for a `restore` reading it
    plan_seconds: TimeSpread = figure("plans", "parts")
    #: completing a written checkpoint: reporting to rank 0 what was written, and waiting for it. On rank 0 it includes
    #: the three below
    commit_seconds: TimeSpread = figure("commit", "parts")
    #: making directories durable
    directory_sync_seconds: TimeSpread = figure("dir.\nsync", "completing")
    #: writing, syncing and renaming the manifest
    manifest_seconds: TimeSpread = figure("mani-\nfest", "completing")
    #: moving complete files into place, and waiting for the rank that does it; for a checkpoint renaming its directory
    rename_seconds: TimeSpread = figure("rename", "completing")
    #: `keep N`: rank 0 deletes, the others wait. In a loop's checkpoint time, but not in the save's
    delete_seconds: TimeSpread = figure("delete\nold", "completing")
    #: for one save: time that it held the rank, without making contents. A blocking save: all of it, with deleting old
    #: ones; in the background: waiting + making the directory + copying
    stall_seconds: TimeSpread = figure("stall", "background")
    #: waiting for earlier saves, while the allowed number is in flight
    wait_seconds: TimeSpread = figure("waiting", "background")
    #: copying to buffers, or the time that `staging` gives it
    stage_seconds: TimeSpread = figure("copying", "background")
    #: end of the stall until the checkpoint is complete, with the checksums of its manifest; 0 for a blocking save
    flush_seconds: TimeSpread = figure("flush", "background")
    #: copying it to another root, after it is complete
    drain_seconds: TimeSpread = figure("drain", "background")
    #: the copy to a partner, before it is complete
    partner_seconds: TimeSpread = figure("partner", "background")
    #: one read or write call
    call_latency: Histogram = figure("p50 ... max")
    #: those of `examined_bytes` that were in the page cache
    resident_bytes: int
    #: bytes looked up in the page cache
    examined_bytes: int
    #: bytes copied to another root
    drain_bytes: int
    #: bytes written for a partner
    partner_bytes: int
    #: `convert`, `stage`: bytes of the samples that it read
    source_bytes: int
    #: `convert`, `stage`: read calls
    source_calls: int
    #: `convert`, `stage`: files opened to read
    source_opens: int
    #: `convert`, `stage`: reading; of a `convert` with opening files and comparing what was read with what was prepared
    source_seconds: TimeSpread = figure("reading", "parts")
    #: `convert`: the format's decoder
    decode_seconds: TimeSpread = figure("decode", "parts")
    #: `convert`: sleeping or working for `preprocess`
    preprocess_seconds: TimeSpread = figure("pre-\nprocess", "parts")
    #: `stage`: bytes that the slowest node copied in a second, until its ranks had copied theirs; `null` if none copied
    node_bytes_per_second: int | None = figure(
        of=lambda ranks: ranks.least["node_rate"] if ranks.known["node_rate"] else None
    )
    #: restores: as in "Amounts"; `null` for verbs that write, as are the next two
    distinct_bytes: int | None = figure("differ-\nent", "amounts")
    #: restores: bytes of the ranks' read calls while they read its files (without the file of all plans); `null` if
    #: they are not counted, as while a checkpoint drains
    read_call_bytes: int | None = figure("read()", "amounts", of=lambda ranks: ranks.total_if_known("rchar"))
    #: restores: bytes from storage in that time; `null` likewise, and if the kernel does not count reads of the file
    #: system
    device_bytes: int | None = figure("device", "amounts", of=lambda ranks: ranks.total_if_known("read_bytes"))

    @property
    def bytes_once(self) -> int:
        """Return bytes written, or bytes read that storage may have given: see `storage_byte_bound`."""
        return storage_byte_bound(self.bytes, self.read_call_bytes, self.distinct_bytes, self.device_bytes)

    @Derived
    def bytes_per_second(self) -> float | None:
        """Return `bytes` / `seconds`, over several runs the sums of both; None without any bytes.

        Of a restore only the bytes that storage can have given.
        """
        return self.bytes_once / self.seconds if self.seconds > 0 and self.bytes else None

    @Derived
    def source_bytes_per_second(self) -> float | None:
        """Return `source_bytes` / `seconds`; None if nothing was read to be written as another data set."""
        return self.source_bytes / self.seconds if self.seconds > 0 and self.source_bytes else None

    @property
    def longest_stall_seconds(self) -> float:
        """Return the time that a save held the slowest rank, with deleting old ones if it waited for that."""
        return self.stall_seconds.max

    @Derived
    def resident_share(self) -> Share | None:
        """Return `resident_bytes` / `examined_bytes` (*cached*): what `drop caches` left, or a `restore` found."""
        return self.resident_bytes / self.examined_bytes if self.examined_bytes else None
