"""The sync after a step: a barrier or an allreduce that also carries errors, the end of the time and due saves."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError
from dliosim.execute.mpi.world import World
from dliosim.model import Sync

# The first elements of the flags, which follow the gradient of an allreduce: ranks that failed, ranks whose time is up.
# After them one element for each line that may be due.
_FLAGS = 2


class StepSync:
    """The sync of one loop. `every` is the number of steps from one sync to the next, 0 without syncs.

    An error travels with a sync that is due anyway: a meeting for errors alone would be a hidden barrier. `alone` is
    true where no sync can carry an error: there are no syncs, or the other ranks may already wait in a collective read,
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
