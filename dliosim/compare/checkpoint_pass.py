"""One pass of a save or a restore as figures: how long the job stalled, and what for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dliosim.measure.histogram import Histogram
from dliosim.measure.phase import PhaseSummary


@dataclass(frozen=True, slots=True)
class StallPass:
    """One save, or one restore. Block 0 is the warm-up; `position` counts all passes in the order they ran.

    Times are seconds of the rank that took longest in it. `stall` is how long the caller was held, contents not
    counted: all of a save or restore, or with `async on` what it `wait`s for saves before it and the copy to buffers
    (`stage`), while `flush` goes on from there until the checkpoint is complete; `drain` and `partner` copy it
    further. `bytes_once` are `bytes` without those that a restore asked twice of a node. `call` is in write or read
    calls, `commit` making complete what was written (`manifest`, `directory_sync` and `rename` are what rank 0 does
    for it), `content` making or checking what they move. Counts and bytes are of all ranks.
    """

    block: int
    position: int
    variant: int
    stall: float
    bytes: int
    bytes_moved: int
    bytes_once: int
    files: int
    calls: int
    opens: int
    call: float
    send: float
    open_close: float
    view: float
    file_sync: float
    commit: float
    manifest: float
    directory_sync: float
    rename: float
    serialize: float
    plan: float
    wait: float
    stage: float
    flush: float
    drain: float
    partner: float
    content: float
    resident_share: float | None
    latency: Histogram

    @property
    def comparison_time(self) -> float:
        """The stall, no less than the clock can tell from nothing."""
        return max(self.stall, 1e-9)

    @property
    def core_wait_share(self) -> None:
        """Counted of loops alone."""

    @property
    def completion_time(self) -> float:
        """Seconds until all of it is written, or read."""
        return self.stall + self.flush

    @property
    def bytes_per_second(self) -> float | None:
        """`bytes_once` by the time until all of it is written, or read; None where nothing is."""
        return self.bytes_once / self.completion_time if self.bytes_once and self.completion_time > 0 else None


def make_stall_pass(
    phase: PhaseSummary, completing: Mapping[str, float], block: int, position: int, variant: int
) -> StallPass | None:
    """The figures of a verb's phase; None where this rank has none.

    `completing` has `commit`, `manifest` and `directory_sync`, and is empty for a restore.
    """
    verb = phase.verb
    if verb is None:
        return None
    assert verb.calls is not None and verb.bytes_moved is not None  # of data sets alone some may be unknown
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
        send=verb.send_seconds.max + verb.broadcast_seconds.max,  # of a save the one, of a restore the other
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
