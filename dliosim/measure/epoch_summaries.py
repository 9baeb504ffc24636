"""The figures of an epoch and of a verb over all ranks, each declared once: see `figures`. Only rank 0 has them."""

from __future__ import annotations

from dataclasses import dataclass

from dliosim.measure.figures import (
    BoundShares,
    Derived,
    Hash,
    Part,
    Reduced,
    Share,
    Signed,
    TimeSpread,
    figure,
    quotient,
)
from dliosim.measure.histogram import Histogram


def storage_byte_bound(asked: int, called: int | None, distinct: int | None, device: int | None) -> int:
    """Return the greatest part of the `asked` bytes that storage may have given.

    A rate of more bytes would be wrong. Where several ranks of a node ask for the same bytes, the page cache gives them
    to all but the first: then the bound is `distinct`, or `device` where that is more, as with reads past the cache.
    Where one rank reads for others, no more than `called` bytes went through read calls. None is unknown and bounds
    nothing.
    """
    given = asked if distinct is None else max(distinct, device or 0)
    return min(asked, given, asked if called is None else called)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSummary:
    """One epoch of a loop over all ranks; docs/metrics.md has the formula of every figure.

    Counts are sums over ranks. A figure is None where its input is missing (compute, a sync, /proc/self/io). The time
    of making the contents of checkpoints is in `content_seconds` only. Waiting for a core is a part of the other times,
    but the kernel does not say which.
    """

    #: number of the epoch, from 0
    epoch: int = figure(of=lambda ranks: ranks.most["epoch"])
    #: number of ranks
    ranks: int = figure(of=lambda ranks: ranks.ranks, saved=False)
    #: most steps of any rank
    steps: int = figure(of=lambda ranks: ranks.most["steps"])
    #: fewest steps of any rank
    fewest_steps: int = figure(of=lambda ranks: ranks.least["steps"])
    #: samples of the steps done
    samples: int
    #: bytes asked: those of the samples as stored, samples kept in memory included
    bytes: int
    #: bytes that calls moved, alignment included where the backend knows it
    bytes_moved: int
    #: read calls
    calls: int
    #: files opened
    opens: int
    #: greatest wall time of any rank, in s
    seconds: float = figure(of=lambda ranks: ranks.most["wall_ns"] * 1e-9)
    #: the same without blocking checkpoints, in s
    loop_seconds: float = figure(of=lambda ranks: ranks.most["loop_ns"] * 1e-9)
    #: samples/s over the steps after the first: ranks x batch / compute x utilization
    steady_samples_per_second: float | None = figure(of=Reduced.steady_rate)
    #: mean over ranks of nominal compute / wall time of the steps after the first; a ratio
    utilization: float | None = figure(of=lambda ranks: ranks.mean_ratio("utilization"))
    #: least of any rank; a ratio
    utilization_min: float | None = figure(of=lambda ranks: ranks.to_ratio(ranks.least, "utilization"))
    #: greatest of any rank; a ratio
    utilization_max: float | None = figure(of=lambda ranks: ranks.to_ratio(ranks.most, "utilization"))
    #: steps waiting for data while read calls ran
    data_wait_seconds: Part = figure("data\nwait", "times")
    #: at least one read call ran
    io_busy_seconds: TimeSpread = figure("I/O\nbusy", "times")
    #: opening and closing files, over a rank's readers
    open_seconds: TimeSpread = figure("open,\nclose", "times")
    #: setting MPI-IO file views, over a rank's readers
    view_seconds: TimeSpread = figure("view", "times", optional=True)
    #: decoding, added up over a rank's readers
    decode_seconds: TimeSpread = figure("decode", "times", optional=True)
    #: preprocessing, added up over a rank's readers
    preprocess_seconds: TimeSpread = figure("pre-\nprocess", "times", optional=True)
    #: waiting for requests to arrive
    arrival_wait_seconds: Part = figure("arrival\nwait", "times", optional=True)
    #: compute, as slept
    compute_seconds: Part = figure("compute", "times")
    #: waiting in syncs
    sync_wait_seconds: Part = figure("sync\nwait", "times")
    #: held by checkpoints, without making contents
    checkpoint_seconds: Part = figure("check-\npoint", "times")
    #: decoding and preprocessing in the steps themselves; 0 with readers
    processing_seconds: Part
    #: the rest of the wall time
    tool_seconds: Part = figure("tool", "times")
    #: the thread of the steps was ready but had no core; None where the kernel does not count it
    core_wait_seconds: TimeSpread | None = figure("core\nwait", "core waits", optional=True)
    #: the same for a rank's readers, added up
    reader_core_wait_seconds: TimeSpread | None = figure("readers'\ncore wait", "core waits", optional=True)
    #: making the contents of checkpoints; in no other time
    content_seconds: TimeSpread
    #: time that a step waited for data
    batch_latency: Histogram
    #: one read call
    call_latency: Histogram
    #: from a request's arrival to its answer; empty without requests
    request_latency: Histogram
    #: causes of late steps
    bound_by: BoundShares | None = figure(of=Reduced.cause_shares)
    #: the rank that was last most often
    slowest_rank: int | None = figure("rank most\noften last", "causes", of=Reduced.slowest_rank)
    #: share of the synced steps in which that rank was last
    slowest_rank_share: Share | None = figure("in\nsteps", "causes", of=Reduced.slowest_rank_share)
    #: sum over synced steps of the least sync wait of any rank, in s: the time of the syncs themselves
    least_sync_wait_seconds: float | None = figure(of=Reduced.least_sync_wait)
    #: compute time beyond the asked one / compute asked
    oversleep_share: Signed | None = figure("over-\nsleep", "causes", optional=True, of=Reduced.oversleep_share)
    #: bytes by read calls of the process / `bytes`
    amplification: float | None = figure("read() /\nasked", "checks", optional=True, of=quotient("rchar", "bytes"))
    #: bytes from the device / `bytes`
    storage_amplification: float | None = figure(
        "device /\nasked", "checks", optional=True, of=quotient("read_bytes", "bytes")
    )
    #: mean number of read calls in flight while any was
    depth: float | None = figure(of=quotient("call_ns", "io_busy_ns"))
    #: DLIO's AU, a ratio
    dlio_au: float | None = figure("DLIO's\nAU %", "DLIO", optional=True, of=lambda ranks: ranks.mean_ratio("dlio_au"))
    #: DLIO's throughput of all ranks, in samples/s
    dlio_samples_per_second: Signed | None = figure("DLIO's\nsamples/s", "DLIO", optional=True, of=Reduced.dlio_rate)
    #: hash of all samples in their order, modulo 2^64
    order_hash: Hash
    #: hash of all bytes read, modulo 2^64
    extent_hash: Hash
    #: True where nothing was read (`--null`); there is no bandwidth then
    null: bool = figure(of=lambda ranks: bool(ranks.most["null"]), saved=False)
    #: `seconds` of the same epoch without I/O, in s
    null_seconds: float | None = figure(of=lambda _: None)
    #: bytes read with contents that `--verify` does not know
    unchecked_bytes: int
    #: bytes that calls asked for; each counts once a node
    distinct_bytes: int | None
    #: steps of all ranks, without their first, that ran during a save in the background
    flush_steps: int
    #: mean time of these steps, from begin to the end of the sync, in s
    flush_step_seconds: float | None = figure(of=quotient("flush_steps_ns", "flush_steps", 1e-9))
    #: mean time that these steps waited for data, in s
    flush_data_wait_seconds: float | None = figure(of=quotient("flush_data_wait_ns", "flush_steps", 1e-9))
    #: steps of all ranks, without their first, that ran without a save in the background
    clear_steps: int
    #: mean time of these steps, in s
    clear_step_seconds: float | None = figure(of=quotient("clear_steps_ns", "clear_steps", 1e-9))
    #: mean time that these steps waited for data, in s
    clear_data_wait_seconds: float | None = figure(of=quotient("clear_data_wait_ns", "clear_steps", 1e-9))

    @property
    def bytes_from_storage(self) -> int:
        """Return the bytes of samples that read calls brought.

        Without samples kept by `cache memory`, and without bytes that are read around samples.
        """
        return min(self.bytes, self.bytes_moved)

    @property
    def unique_bytes(self) -> int:
        """Return `bytes_from_storage`, where known without what several ranks of a node asked for again."""
        asked = self.bytes_from_storage
        return asked if self.distinct_bytes is None else min(asked, self.distinct_bytes)

    @Derived
    def read_call_bytes(self) -> int | None:
        """Return the bytes of the ranks' read calls, as the kernel counts them; None where it does not."""
        return None if self.amplification is None else round(self.amplification * self.bytes)

    @Derived
    def device_bytes(self) -> int | None:
        """Return the bytes from the device, as the kernel counts them; None where it does not.

        The page cache of a node gives the others.
        """
        return None if self.storage_amplification is None else round(self.storage_amplification * self.bytes)

    @property
    def bytes_once(self) -> int:
        """Return the part of `bytes_from_storage` that storage may have given: see `storage_byte_bound`."""
        return storage_byte_bound(self.bytes_from_storage, self.read_call_bytes, self.distinct_bytes, self.device_bytes)

    @Derived
    def samples_per_second(self) -> float | None:
        """Return samples of all ranks / time of the slowest rank, without blocking checkpoints."""
        return self.samples / self.loop_seconds if self.loop_seconds > 0 else None

    @Derived
    def bytes_per_second(self) -> float | None:
        """Return bytes asked / time of the slowest rank, without blocking checkpoints.

        None where nothing was read.
        """
        return self.bytes / self.loop_seconds if self.loop_seconds > 0 and not self.null else None

    @Derived
    def slowdown(self) -> float | None:
        """Return the wall time / that of the same epoch without I/O; None where no such run was made."""
        return self.seconds / self.null_seconds if self.null_seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbSummary:
    """One verb that writes or reads files, over all ranks; docs/metrics.md has the formula of every figure.

    Counts are sums over ranks. A figure is None where it is not counted.
    """

    #: number of ranks
    ranks: int = figure(of=lambda ranks: ranks.ranks, saved=False)
    #: bytes of content that were asked
    bytes: int
    #: bytes that calls moved; None where a library does not report it
    bytes_moved: int | None = figure(of=lambda ranks: ranks.total_if_counted("bytes_moved"))
    #: files written or read
    files: int
    #: read or write calls; None where a library does not report them
    calls: int | None = figure(of=lambda ranks: ranks.total_if_counted("calls"))
    #: files opened
    opens: int
    #: greatest wall time of any rank, in s
    seconds: float = figure(of=lambda ranks: ranks.most["wall_ns"] * 1e-9)
    #: in read or write calls
    call_seconds: TimeSpread = figure("calls", "parts")
    #: making data to write, or checking data read
    content_seconds: TimeSpread = figure("making\ndata", "parts")
    #: the format's work: checksums, compression, images
    encode_seconds: TimeSpread = figure("encoding", "parts")
    #: work of the processor before writing (`serialize`)
    serialize_seconds: TimeSpread = figure("seri-\nalizing", "parts")
    #: passing data to or from the rank that writes
    send_seconds: TimeSpread = figure("sending", "parts")
    #: sending what one rank reads for others, and waiting for it
    broadcast_seconds: TimeSpread = figure("broad-\ncasting", "parts")
    #: opening and closing
    open_seconds: TimeSpread = figure("open,\nclose", "parts")
    #: setting MPI-IO file views
    view_seconds: TimeSpread = figure("view", "parts")
    #: fsync
    file_sync_seconds: TimeSpread = figure("sync", "parts")
    #: gathering and writing all ranks' plans, or reading them
    plan_seconds: TimeSpread = figure("plans", "completing")
    #: making a written checkpoint complete
    commit_seconds: TimeSpread = figure("commit", "completing")
    #: making directories durable
    directory_sync_seconds: TimeSpread = figure("dir.\nsync", "completing")
    #: writing the manifest
    manifest_seconds: TimeSpread = figure("mani-\nfest", "completing")
    #: moving complete files into place
    rename_seconds: TimeSpread = figure("rename", "completing")
    #: waiting for old checkpoints to be deleted
    delete_seconds: TimeSpread = figure("delete\nold", "completing")
    #: the caller was held
    stall_seconds: TimeSpread = figure("stall", "background")
    #: waiting for earlier saves in flight
    wait_seconds: TimeSpread = figure("waiting", "background")
    #: copying the state to buffers
    stage_seconds: TimeSpread = figure("copying", "background")
    #: from the end of the stall until the checkpoint is complete; 0 for a blocking save
    flush_seconds: TimeSpread = figure("flush", "background")
    #: copying a complete checkpoint to another root
    drain_seconds: TimeSpread = figure("drain", "background")
    #: the copy to a partner
    partner_seconds: TimeSpread = figure("partner", "background")
    #: one read or write call
    call_latency: Histogram
    #: of `examined_bytes`, those in the page cache
    resident_bytes: int
    #: bytes that were looked up in the page cache
    examined_bytes: int
    #: bytes copied to another root
    drain_bytes: int
    #: bytes written for a partner
    partner_bytes: int
    #: of a restore: bytes asked, each counted once a node
    distinct_bytes: int | None = figure("differ-\nent", "amounts")
    #: of a restore: bytes by read calls
    read_call_bytes: int | None = figure("read()", "amounts", of=lambda ranks: ranks.total_if_known("rchar"))
    #: of a restore: bytes from the device
    device_bytes: int | None = figure("device", "amounts", of=lambda ranks: ranks.total_if_known("read_bytes"))

    @property
    def bytes_once(self) -> int:
        """Return bytes written, or bytes read that storage may have given: see `storage_byte_bound`."""
        return storage_byte_bound(self.bytes, self.read_call_bytes, self.distinct_bytes, self.device_bytes)

    @Derived
    def bytes_per_second(self) -> float | None:
        """Return `bytes_once` / time of the slowest rank; None without any bytes.

        The time includes making the data, fsync and renaming.
        """
        return self.bytes_once / self.seconds if self.seconds > 0 and self.bytes else None

    @property
    def longest_stall_seconds(self) -> float:
        """Return the time that a save held the slowest rank, with deleting old ones where it waited for that."""
        return self.stall_seconds.max

    @Derived
    def resident_share(self) -> Share | None:
        """Return the share of the examined bytes that were in the page cache; None where none were examined."""
        return self.resident_bytes / self.examined_bytes if self.examined_bytes else None
