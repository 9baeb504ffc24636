"""The checkpoints that a loop saves: after steps, by seconds, after epochs and at its end; and the end of its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import get_native_id
from time import perf_counter_ns
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError, PlanError
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.checkpoints.save_steps import CheckpointSave
from dliosim.execute.mpi.world import World
from dliosim.execute.node.compute import core_wait, core_wait_since
from dliosim.execute.phases.context import Session
from dliosim.model import Cadence, Loop, Sync
from dliosim.model.verbs import is_due

# The first elements of the flags, which follow the gradient of an allreduce: ranks that failed, ranks whose time is up.
# After them one element for each line that may be due.
_FLAGS = 2


class StepSync:
    """The sync of one loop. `every` is the number of steps from one sync to the next, 0 without syncs.

    An error travels with a sync that is due anyway: a meeting for errors alone would be a hidden barrier. `alone` is
    true if no sync can carry an error: there are no syncs, or the other ranks may already wait in a collective read,
    or for the rank that reads for them. Then a rank that fails ends the job.

    `due` has one element for each timer, which is 1 if its save is due. A rank sets it by its own clock before a sync;
    after the sync it is 1 if it was 1 on any rank.
    """

    def __init__(self, world: World, sync: Sync, collective: bool, dues: int = 0) -> None:
        self._world = world
        self.rank = world.rank
        self.every = 0 if sync.kind == "off" else sync.every
        self.alone = collective or sync.kind == "off"
        self._gradient = _allocate_zeros(-(-sync.size // 4) + _FLAGS + dues) if sync.kind == "allreduce" else None
        self._flags = np.zeros(_FLAGS + dues, np.int64)
        self.due = self._flags[_FLAGS:]

    def sync_step(self, time_is_up: bool, error: DliosimError | None = None) -> bool:
        """Meet the other ranks; return whether any rank's time is up. Raises the error of a rank that failed."""
        if self._gradient is None:
            return self.end_epoch(time_is_up, error)
        world = self._world
        tail = self._gradient[-len(self._flags) :]
        tail[0] = error is not None
        tail[1] = time_is_up
        tail[_FLAGS:] = self.due
        world.allreduce(self._gradient, "sum")
        if tail[0]:
            world.agree_on_error(error)
        np.greater(tail[_FLAGS:], 0, out=self.due, casting="unsafe")
        return bool(tail[1])

    def fail_all_ranks(self, error: DliosimError, step: int, steps: int, saves: frozenset[int]) -> NoReturn:
        """Report an error of `step` to the other ranks where they next wait, and raise it on every rank.

        It joins each meeting that they reach, in their order: the syncs, the saves of `saves`, then the end of the
        epoch. With `alone` it ends the job.
        """
        if error.shared:
            raise error
        if self.alone:
            self._world.abort(error)
        for later in range(step, steps):
            if (later + 1) % self.every == 0:
                self.sync_step(False, error)
            if later in saves:
                self.sync_before_save(error)
        self.end_epoch(False, error)
        raise error

    def sync_before_save(self, error: DliosimError | None = None) -> None:
        """Meet the other ranks before a checkpoint; raise the error of a rank that failed since the last sync."""
        self._world.agree_on_error(error)

    def end_epoch(self, time_is_up: bool, error: DliosimError | None = None) -> bool:
        """Meet the other ranks after the last step, with any kind of sync; return whether any rank's time is up.

        Raises the error of a rank that failed.
        """
        world, flags = self._world, self._flags
        flags[0] = world.failure_flag(error)
        flags[1] = time_is_up
        world.allreduce(flags, "max")
        if flags[0]:
            world.raise_if_failed(int(flags[0]), error)
        return bool(flags[1])


def _allocate_zeros(count: int) -> NDArray[np.float32]:
    """Allocate `count` zeros and touch their pages: with np.zeros the first sync would wait for the kernel."""
    zeros = np.empty(count, np.float32)
    zeros.fill(0)
    return zeros


#: A perf_counter_ns that never comes.
NEVER = 1 << 62


class CheckpointTimers:
    """Timers of the `checkpoint` lines of a loop that save by seconds, by this rank's perf_counter_ns.

    Each rank looks at its own clock, and a sync makes all ranks agree. No line is due before `start`. The time of a
    line counts from the end of the stall of its last save, or from the start of the loop.
    """

    def __init__(self, cadences: Sequence[Cadence]) -> None:
        self.cadences = [cadence for cadence in cadences if cadence.unit == "seconds"]
        self._every = np.array([round(cadence.seconds * 1e9) for cadence in self.cadences], np.int64)
        self._next = np.full(len(self.cadences), NEVER)

    def start(self, now: int) -> None:
        """Start all timers at `now`, perf_counter_ns; do nothing if they run already."""
        if (self._next >= NEVER).all():
            self._next = now + self._every

    def mark_due(self, due: NDArray[np.int64], now: int) -> None:
        """Set `due` (lines,) in place: 1 for a line that is due at `now`, 0 for the others."""
        np.less_equal(self._next, now, out=due, casting="unsafe")

    def delay(self, ns: int) -> None:
        """Delay all timers by `ns`, a time that does not belong to the loop."""
        self._next += ns

    def restart_timer(self, line: int, now: int) -> None:
        """Restart the timer of a line (an index into `cadences`) at `now`, after it has saved."""
        self._next[line] = now + self._every[line]


class LoopSaves:
    """The checkpoints of one loop of one rank, and the end of the loop's time, which they put off.

    `run` runs an action on the thread that makes the loop's collective calls: two threads in such calls deadlock on
    ROMIO's lock. The methods that save are collective; they return the ns that saves held the ranks. What is left of
    the time went into making contents, which a training program has in its memory: the clocks of the loop leave it out.
    """

    def __init__(self, session: Session, manager: CheckpointSession, loop: Loop) -> None:
        """Raise PlanError on every rank for a checkpoint by seconds without a sync."""
        #: saves that the loop has begun, in order
        self.begun: list[CheckpointSave] = []
        #: the loop stops after this perf_counter_ns
        self.deadline = NEVER
        #: the steps of the epoch (from 0) after which checkpoints by steps are saved
        self.steps: frozenset[int] = frozenset()
        #: core wait of the stepping thread in the saves after steps of the epoch, ns
        self.core_wait_ns = 0
        self.run: Callable[[Callable[[], None]], None] | None = None
        self._session, self._manager, self._loop = session, manager, loop
        self._timers = CheckpointTimers(loop.checkpoints)
        by_seconds, access = self._timers.cadences, loop.access
        #: checkpoints by seconds may be due after a sync
        self.timed = bool(by_seconds)
        #: the sync of the loop
        self.syncer = StepSync(session.world, loop.sync, access.collective or access.scatter, len(by_seconds))
        if by_seconds and not self.syncer.every:
            what = f"`checkpoint {by_seconds[0].checkpoint}` by seconds in `{loop.name}`"
            raise PlanError(f"{what} needs a sync, in which ranks agree that it is time").mark_shared()

    def begin_epoch(self, steps: int) -> None:
        """Begin an epoch of `steps` steps; with the first of a run of the loop its clocks start."""
        now = perf_counter_ns()
        if self.deadline >= NEVER and self._loop.seconds is not None:
            self.deadline = now + round(self._loop.seconds * 1e9)
        self._timers.start(now)
        by_steps = (one for one in self._loop.checkpoints if one.unit == "steps")
        self.steps = frozenset(
            step for one in by_steps for step in range((one.first or one.every) - 1, steps, one.every)
        )
        self.core_wait_ns = 0

    def put_off(self, ns: int) -> None:
        """Put off the end of the loop's time, and its checkpoints, by a time that does not belong to the loop."""
        self.deadline += ns
        self._timers.delay(ns)

    def mark_due(self, now: int) -> None:
        """Tell the next sync which checkpoints by seconds are due on this rank."""
        self._timers.mark_due(self.syncer.due, now)

    def save_after_step(self, step: int) -> int:
        """Save what is due after a step (from 0), by steps or as the last sync found it by seconds."""
        this = [get_native_id()]
        waited = core_wait(this)
        held = self._save(self._pop_due("steps", step + 1))
        self.core_wait_ns += max(core_wait_since(waited, this), 0)
        return held

    def save_after_epoch(self, epoch: int) -> Iterator[tuple[int, int]]:
        """Save what is due after an epoch (from 1); yield the ns that each save held the loop, and of contents."""
        for cadence in self._pop_due("epochs", epoch):
            begun = perf_counter_ns()
            held = self._save([cadence])
            yield held, max(perf_counter_ns() - begun - held, 0)

    def save_at_end(self) -> None:
        """Save what the loop saves at its end, and wait until no flush of its checkpoints is under way."""
        self._save(one for one in self._loop.checkpoints if one.unit == "end")
        self._manager.settle(one.checkpoint for one in self._loop.checkpoints)

    def _pop_due(self, unit: str, number: int) -> list[Cadence]:
        due = [bool(each) for each in self.syncer.due]
        self.syncer.due[:] = 0
        by_seconds = (one for one, now in zip(self._timers.cadences, due, strict=True) if now)
        counted = (one for one in self._loop.checkpoints if one.unit == unit and is_due(one, number))
        return [*counted, *by_seconds]

    def _save(self, cadences: Iterable[Cadence]) -> int:
        held = 0
        for cadence in cadences:
            begun = perf_counter_ns()
            save = self._manager.save(self._session.workload.checkpoint(cadence.checkpoint), self.run)
            save.within = self._loop.name
            self.begun.append(save)
            now = perf_counter_ns()
            content = max(now - begun - save.held_ns, 0)
            self.put_off(content)
            if cadence in self._timers.cadences:
                self._timers.restart_timer(self._timers.cadences.index(cadence), now)
            held += save.held_ns
        return held
