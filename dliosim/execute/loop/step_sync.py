"""How ranks meet after a step: a barrier or an allreduce that also carries errors and the end of the time."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError
from dliosim.execute.mpi.world import World
from dliosim.model import Sync

# The first float32 behind an allreduce's gradient: ranks that failed, ranks whose time is up. Then what is due.
_FLAGS = 2


class StepSync:
    """The sync of one loop. `every` is steps between two syncs, 0 where there are none.

    A failure travels with a sync that is due anyway: agreeing must not be a hidden barrier. `alone` says that no sync
    can carry it (none is made, or the others already wait in a collective read, or for the one who reads for them), so
    that the job must be ended.

    `due` has an element for each thing that is done after a sync when any rank says that it is time: whoever meets sets
    it to 1 or 0 before, and has what is due for all afterwards.
    """

    def __init__(self, world: World, sync: Sync, collective: bool, dues: int = 0) -> None:
        self._world = world
        self.rank = world.rank
        self.every = 0 if sync.kind == "off" else sync.every
        self.alone = collective or sync.kind == "off"
        self._gradient = _allocate_zeros(-(-sync.size // 4) + _FLAGS + dues) if sync.kind == "allreduce" else None
        self._flags = np.zeros(_FLAGS + dues, np.int64)
        self.due = self._flags[_FLAGS:]

    def sync_step(self, time_is_up: bool) -> bool:
        """Meet the others; return whether any rank's time is up. Raises the error of a rank that failed."""
        return self._sync_ranks(None, time_is_up)

    def _sync_ranks(self, error: DliosimError | None, time_is_up: bool) -> bool:
        if self._gradient is None:
            return self._allreduce_flags(error, time_is_up)
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
        """Let the others know of an error met in `step`, where they next wait; raise it on every rank."""
        if error.shared:
            raise error
        if self.alone:
            self._world.abort(error)
        for later in range(step, steps):
            if (later + 1) % self.every == 0:
                self._sync_ranks(error, False)
            if later in saves:
                self.sync_before_save(error)
        self._allreduce_flags(error, False)
        raise error

    def sync_before_save(self, error: DliosimError | None = None) -> None:
        """Meet the others before a checkpoint: a rank that failed since the last sync is heard of here."""
        self._world.agree_on_error(error)

    def end_epoch(self, time_is_up: bool) -> bool:
        """Meet the others after the last step, whatever the sync; return whether any rank's time is up."""
        return self._allreduce_flags(None, time_is_up)

    def _allreduce_flags(self, error: DliosimError | None, time_is_up: bool) -> bool:
        world, flags = self._world, self._flags
        flags[0] = world.failure_flag(error)
        flags[1] = time_is_up
        world.allreduce(flags, "max")
        if flags[0]:
            world.raise_if_failed(int(flags[0]), error)
        return bool(flags[1])


def _allocate_zeros(count: int) -> NDArray[np.float32]:
    """So many zeros in pages that are there: of np.zeros the kernel would make them in the first sync."""
    zeros = np.empty(count, np.float32)
    zeros.fill(0)
    return zeros
