"""The figures of one pass of a save or a restore: how long the job stalled, and in which operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dliosim.measure.histogram import Histogram
from dliosim.measure.phase import PhaseSummary


@dataclass(frozen=True, slots=True)
class StallPass:
    """One save, or one restore.

    Times are seconds of the rank that took longest in the operation. Counts and bytes are of all ranks.
    """

    block: int  #: block of the pass; 0: the warm-up
    position: int  #: number among all passes, in the order in which they ran
    variant: int  #: index of the variant
    #: time that the caller was held, without `content`: all of a save or restore; with `async on` `wait` and `stage`
    stall: float
    bytes: int  #: bytes of the state that are written or read
    bytes_moved: int  #: bytes of all calls
    bytes_once: int  #: `bytes` without those that a restore read on a node a second time
    files: int  #: files that were written or read
    calls: int  #: write or read calls
    opens: int  #: opens of files
    call: float  #: in write or read calls
    send: float  #: passing bytes between ranks
    open_close: float  #: opening and closing files
    view: float  #: setting file views
    file_sync: float  #: in fsync of files
    commit: float  #: making complete what was written
    manifest: float  #: writing the manifest, by rank 0
    directory_sync: float  #: in fsync of directories, by rank 0
    rename: float  #: renaming, by rank 0
    serialize: float  #: CPU time before writing
    plan: float  #: planning calls
    wait: float  #: waiting for earlier saves, with `async on`
    stage: float  #: copying to buffers, with `async on`
    flush: float  #: from the end of the stall until the checkpoint is complete, with `async on`
    drain: float  #: copying the complete checkpoint to another root
    partner: float  #: copying to partners
    content: float  #: making or checking the bytes that are moved
    #: share of the bytes in the page cache when it began; None: not known, or nothing is read
    resident_share: float | None
    latency: Histogram  #: latencies of calls

    @property
    def comparison_time(self) -> float:
        """The stall in seconds, at least the clock's resolution."""
        return max(self.stall, 1e-9)

    @property
    def core_wait_share(self) -> None:
        """Return None: only loops count it."""

    @property
    def completion_time(self) -> float:
        """Seconds until all bytes are written, or read."""
        return self.stall + self.flush

    @property
    def bytes_per_second(self) -> float | None:
        """`bytes_once` divided by `completion_time`; None where nothing is written or read."""
        return self.bytes_once / self.completion_time if self.bytes_once and self.completion_time > 0 else None


def make_stall_pass(
    phase: PhaseSummary, completing: Mapping[str, float], block: int, position: int, variant: int
) -> StallPass | None:
    """Return the figures of a verb's phase; None where this rank has none.

    `completing` has the seconds of `commit`, `manifest` and `directory_sync`, and is empty for a restore.
    """
    verb = phase.verb
    if verb is None:
        return None
    assert verb.calls is not None and verb.bytes_moved is not None  # they are unknown for some data sets only
    return StallPass(
        block=block,
        position=position,
        variant=variant,
        stall=verb.stall_seconds.max,
        bytes=verb.bytes,
        bytes_moved=verb.bytes_moved,
        bytes_once=verb.bytes_once,
        files=verb.files,
        calls=verb.calls,
        opens=verb.opens,
        call=verb.call_seconds.max,
        send=verb.send_seconds.max + verb.broadcast_seconds.max,  # a save sends, a restore broadcasts
        open_close=verb.open_seconds.max,
        view=verb.view_seconds.max,
        file_sync=verb.file_sync_seconds.max,
        commit=completing.get("commit", 0.0),
        manifest=completing.get("manifest", 0.0),
        directory_sync=completing.get("directory_sync", 0.0),
        rename=verb.rename_seconds.max,
        serialize=verb.serialize_seconds.max,
        plan=verb.plan_seconds.max,
        wait=verb.wait_seconds.max,
        stage=verb.stage_seconds.max,
        flush=verb.flush_seconds.max,
        drain=verb.drain_seconds.max,
        partner=verb.partner_seconds.max,
        content=verb.content_seconds.max,
        resident_share=phase.resident_share,
        latency=verb.call_latency,
    )
