"""The figures of a run over all ranks, as values: what `summary` makes and reports show. Only rank 0 has them."""

from __future__ import annotations

from dataclasses import dataclass

from dliosim.measure.histogram import Histogram
from dliosim.measure.machine import Environment
from dliosim.measure.phase import PartialProgress, PhaseSummary


@dataclass(frozen=True, slots=True)
class TimeSpread:
    """A time of every rank, in seconds: its mean, least and greatest over ranks."""

    mean: float
    min: float
    max: float


NO_TIME = TimeSpread(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class BoundShares:
    """Shares of the steps that ended in a sync, by what the last rank to arrive had spent the step's time on."""

    storage: float
    compute: float
    tool: float
    arrivals: float
    decode: float


def storage_byte_bound(asked: int, called: int | None, distinct: int | None, device: int | None) -> int:
    """What of the bytes that ranks asked for storage may have given; a rate of more than that would be false.

    Of what several ranks of a node ask for the page cache gives all but the first its bytes: they are `distinct`, or
    what the `device` gave where that is more, as past the cache. Where one rank reads for others, no more than `called`
    went through read calls. What is None is not known, and bounds nothing.
    """
    given = asked if distinct is None else max(distinct, device or 0)
    return min(asked, given, asked if called is None else called)


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """One epoch of a loop over all ranks; docs/metrics.md has the formula of every figure.

    Counts are sums over ranks, `seconds` and `loop_seconds` the greatest of any rank. `steps` is the most of any rank
    and `fewest_steps` the least. `least_sync_wait_seconds` is the sum over synced steps of what the rank waited that
    waited least: what the syncs themselves took. `decode_seconds` and `preprocess_seconds` are added up over a rank's
    readers, and `processing_seconds` is what of both lies in the steps themselves. `depth` is the mean number of read
    calls in flight while any was. `null` is whether nothing was read (`--null`), so that there is no bandwidth. Figures
    that need what was not there (compute, a sync, /proc/self/io) are None. `distinct_bytes` are those that calls asked
    for, each counted once a node, however many of its ranks did.

    `core_wait_seconds` is how long ranks in their steps were ready and waited for a core, which is in the other times,
    nobody knows in which; `reader_core_wait_seconds` is that of a rank's readers, added up. None where a kernel does
    not count it.

    `content_seconds` is making the contents of checkpoints, which no other time has in it. Of the steps of all ranks
    after their first, `flush_steps` had a save in the background beside them and `clear_steps` none;
    `..._step_seconds` is how long one took on the mean, from its beginning to the end of its sync, and
    `..._data_wait_seconds` how long it waited for data.
    """

    epoch: int
    ranks: int
    steps: int
    fewest_steps: int
    samples: int
    bytes: int
    bytes_moved: int
    calls: int
    opens: int
    seconds: float
    loop_seconds: float
    steady_seconds: float
    steady_samples: int
    utilization: float | None
    utilization_min: float | None
    utilization_max: float | None
    data_wait_seconds: TimeSpread
    io_busy_seconds: TimeSpread
    open_seconds: TimeSpread
    view_seconds: TimeSpread
    compute_seconds: TimeSpread
    sync_wait_seconds: TimeSpread
    arrival_wait_seconds: TimeSpread
    checkpoint_seconds: TimeSpread
    processing_seconds: TimeSpread
    tool_seconds: TimeSpread
    decode_seconds: TimeSpread
    preprocess_seconds: TimeSpread
    batch_latency: Histogram
    call_latency: Histogram
    request_latency: Histogram
    bound_by: BoundShares | None
    slowest_rank: int | None
    slowest_rank_share: float | None
    least_sync_wait_seconds: float | None
    oversleep_share: float | None
    amplification: float | None
    storage_amplification: float | None
    depth: float | None
    dlio_au: float | None
    dlio_samples_per_second: float | None
    order_hash: int
    extent_hash: int
    null: bool = False
    null_seconds: float | None = None
    unchecked_bytes: int = 0
    distinct_bytes: int | None = None
    content_seconds: TimeSpread = NO_TIME
    core_wait_seconds: TimeSpread | None = None
    reader_core_wait_seconds: TimeSpread | None = None
    flush_steps: int = 0
    flush_step_seconds: float | None = None
    flush_data_wait_seconds: float | None = None
    clear_steps: int = 0
    clear_step_seconds: float | None = None
    clear_data_wait_seconds: float | None = None

    @property
    def bytes_from_storage(self) -> int:
        """Bytes of samples that read calls brought: without those that `cache memory` kept, and what is read beside."""
        return min(self.bytes, self.bytes_moved)

    @property
    def unique_bytes(self) -> int:
        """`bytes_from_storage` without what several ranks of a node asked for more than once, where that is known."""
        asked = self.bytes_from_storage
        return asked if self.distinct_bytes is None else min(asked, self.distinct_bytes)

    @property
    def read_call_bytes(self) -> int | None:
        """Bytes by read calls of the ranks, as the kernel counts; None where it does not."""
        return None if self.amplification is None else round(self.amplification * self.bytes)

    @property
    def device_bytes(self) -> int | None:
        """Bytes that came from the device, as the kernel counts: the page cache of a node gives the others."""
        return None if self.storage_amplification is None else round(self.storage_amplification * self.bytes)

    @property
    def bytes_once(self) -> int:
        """What of `bytes_from_storage` storage may have given; see `storage_byte_bound`."""
        return storage_byte_bound(self.bytes_from_storage, self.read_call_bytes, self.distinct_bytes, self.device_bytes)

    @property
    def samples_per_second(self) -> float | None:
        """Samples of all ranks by the time of the slowest, blocking checkpoints taken out."""
        return self.samples / self.loop_seconds if self.loop_seconds > 0 else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes asked by the time of the slowest rank, blocking checkpoints taken out; None where nothing was read."""
        return self.bytes / self.loop_seconds if self.loop_seconds > 0 and not self.null else None

    @property
    def steady_samples_per_second(self) -> float | None:
        """Samples per second over the steps after the first: ranks x batch / compute x utilization."""
        return self.steady_samples / self.steady_seconds if self.steady_seconds > 0 else None

    @property
    def slowdown(self) -> float | None:
        """Wall time by the wall time of the same epoch without I/O; None where no such run was made."""
        return self.seconds / self.null_seconds if self.null_seconds else None


@dataclass(frozen=True, slots=True)
class VerbSummary:
    """One verb that writes or reads files, over all ranks: counts are sums, `seconds` the greatest of any rank.

    Of a save `stall_seconds` is how long ranks were held: in the background by `wait_seconds` for earlier ones and by
    `stage_seconds`; `flush_seconds` follows. `bytes_moved` and `calls` are None where a library wrote files and nobody
    could count its calls. See `records.VerbRecord` for these and the others.
    Of a restore `bytes` are asked, by all ranks, `distinct_bytes` of them different ones (each once a node),
    `read_call_bytes` went through read calls, and `device_bytes` came from the device; None where nobody counts them.
    """

    ranks: int
    bytes: int
    bytes_moved: int | None
    files: int
    calls: int | None
    opens: int
    seconds: float
    call_seconds: TimeSpread
    content_seconds: TimeSpread
    encode_seconds: TimeSpread
    send_seconds: TimeSpread
    open_seconds: TimeSpread
    view_seconds: TimeSpread
    file_sync_seconds: TimeSpread
    rename_seconds: TimeSpread
    delete_seconds: TimeSpread
    call_latency: Histogram
    resident_bytes: int
    examined_bytes: int
    serialize_seconds: TimeSpread = NO_TIME
    plan_seconds: TimeSpread = NO_TIME
    broadcast_seconds: TimeSpread = NO_TIME
    commit_seconds: TimeSpread = NO_TIME
    directory_sync_seconds: TimeSpread = NO_TIME
    manifest_seconds: TimeSpread = NO_TIME
    stall_seconds: TimeSpread = NO_TIME
    wait_seconds: TimeSpread = NO_TIME
    stage_seconds: TimeSpread = NO_TIME
    flush_seconds: TimeSpread = NO_TIME
    drain_seconds: TimeSpread = NO_TIME
    partner_seconds: TimeSpread = NO_TIME
    drain_bytes: int = 0
    partner_bytes: int = 0
    distinct_bytes: int | None = None
    read_call_bytes: int | None = None
    device_bytes: int | None = None

    @property
    def bytes_once(self) -> int:
        """Bytes written, or what storage may have given of those that were asked; see `storage_byte_bound`."""
        return storage_byte_bound(self.bytes, self.read_call_bytes, self.distinct_bytes, self.device_bytes)

    @property
    def bytes_per_second(self) -> float | None:
        """`bytes_once` by the time of the slowest rank, with making the data, fsync and renaming; None without any."""
        return self.bytes_once / self.seconds if self.seconds > 0 and self.bytes else None

    @property
    def longest_stall_seconds(self) -> float:
        """How long a save held the slowest rank, deleting old ones included where it waited for that."""
        return self.stall_seconds.max

    @property
    def resident_share(self) -> float | None:
        """The share of the bytes looked at that were in the page cache; None where none were looked at."""
        return self.resident_bytes / self.examined_bytes if self.examined_bytes else None


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """An `expect` line, what was measured over the epochs named, and whether it held (None: nothing to measure).

    `reported_only` is why a figure that is not to be trusted fails no run, None where it is.
    """

    text: str
    measured: float | None
    unit: str
    held: bool
    over: str
    reported_only: str | None = None

    @property
    def is_missed(self) -> bool:
        """Whether the run fails for it."""
        return not self.held and self.reported_only is None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A whole run, at rank 0. `environment` is what results.json says of the machine and the libraries.

    `null` is a run without I/O, `verify` one in which every byte read was checked. `mtbf` and `restart_time` are what
    was said of failures, in seconds. `partial` is None of a run that is over.
    """

    name: str
    title: str
    pattern: str
    overrides: tuple[tuple[str, str], ...]
    digest: str
    ranks: int
    nodes: int
    environment: Environment
    started: str
    seconds: float
    phases: tuple[PhaseSummary, ...]
    expectations: tuple[ExpectationResult, ...] = ()
    arguments: tuple[str, ...] = ()
    null: bool = False
    verify: bool = False
    mtbf: float | None = None
    restart_time: float | None = None
    partial: PartialProgress | None = None

    def is_stored_on(self, phase: PhaseSummary, kinds: frozenset[str]) -> bool:
        """Whether the root that a phase reads or writes is on a file system of some kinds."""
        return self.environment.is_stored_on(phase.root, kinds)

    @property
    def order_hash(self) -> int:
        """The hash of all samples in their order: the sum over epochs, modulo 2^64."""
        return sum(epoch.order_hash for phase in self.phases for epoch in phase.epochs) % 2**64

    @property
    def extent_hash(self) -> int:
        """The hash of all bytes read: the sum over epochs, modulo 2^64."""
        return sum(epoch.extent_hash for phase in self.phases for epoch in phase.epochs) % 2**64

    @property
    def bytes_verified(self) -> int:
        """Bytes that were compared with what was prepared or saved: with `verify`, those of `verifiable_bytes` of which
        it is known what they hold.

        That is contents of samples, not what a format puts around them, and nothing of files that were there already.
        """
        if not self.verify:
            return 0
        # What is not known may be counted in whole units, of which samples are a part.
        loops = (max(0, one.bytes_from_storage - one.unchecked_bytes) for phase in self.phases for one in phase.epochs)
        return sum(loops) + self._bytes_restored

    @property
    def verifiable_bytes(self) -> int:
        """Bytes that loops and restores read.

        What `cache memory` keeps was checked when it was read, and what O_DIRECT reads beside samples is not looked at.
        """
        return sum(one.bytes_from_storage for phase in self.phases for one in phase.epochs) + self._bytes_restored

    @property
    def _bytes_restored(self) -> int:
        return sum(phase.verb.bytes for phase in self.phases if phase.verb and phase.kind == "restore")
