"""Ranks meet where a sync is due and nowhere else, and hear there of failures and of the end of the time.

The ranks are threads that meet at barriers, so that every order of their failures can be tried without a launcher.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.loop.loop_saves import StepSync
from dliosim.execute.mpi.world import World
from dliosim.model import Sync


class Meeting:
    """A meeting point for this many threads, which wait for each other some seconds at most."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.brought: dict[int, Any] = {}

    def exchange(self, rank: int, what: Any) -> list[Any]:
        self.barrier.wait(5)
        self.brought[rank] = what
        self.barrier.wait(5)
        return [self.brought[each] for each in range(self.size)]


class Ended(Exception):
    """The job was ended by one rank."""


class ThreadRanks:
    """Ranks that are threads; only what a sync needs of them."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.rank, self.size = rank, meeting.size
        self._meeting = meeting

    def allreduce(self, values: Any, operation: str) -> None:
        found = np.stack(self._meeting.exchange(self.rank, values.copy()))
        values[:] = found.sum(axis=0) if operation == "sum" else found.max(axis=0)

    def broadcast_object(self, value: Any, source: int = 0) -> Any:
        return self._meeting.exchange(self.rank, value)[source]


class _Threads(World):
    def abort(self, error: DliosimError) -> Any:
        raise Ended(f"{self.rank}: {error.message}")


def world_of_threads(meeting: Meeting, rank: int) -> World:
    """A world whose ranks are threads."""
    ranks: Any = ThreadRanks(meeting, rank)
    return _Threads(ranks, ranks, MPI.COMM_NULL, 1, False, "job")


def meet(size: int, action: Callable[[World], Any]) -> list[Any]:
    """Return the result or the error of the action on each rank; fail if any rank waits forever."""
    meeting = Meeting(size)
    results: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            results[rank] = action(world_of_threads(meeting, rank))
        except Exception as error:
            results[rank] = error
            if not isinstance(error, (DliosimError, Ended)):
                meeting.barrier.abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


KINDS = [Sync("barrier", 0, 1), Sync("allreduce", 1001, 1), Sync("allreduce", 1, 3), Sync("barrier", 0, 3)]


@pytest.mark.parametrize("sync", KINDS, ids=str)
@pytest.mark.parametrize("late", [None, 0, 2])
def test_the_time_is_up_for_all_if_it_is_for_one(sync: Sync, late: int | None) -> None:
    found = meet(3, lambda world: StepSync(world, sync, False).sync_step(world.rank == late))
    assert found == [late is not None] * 3
    found = meet(3, lambda world: StepSync(world, sync, False).end_epoch(world.rank == late))
    assert found == [late is not None] * 3


@pytest.mark.parametrize("sync", KINDS, ids=str)
def test_what_is_due_for_one_is_due_for_all(sync: Sync) -> None:
    def meets(world: World) -> list[list[int]]:
        syncer, found = StepSync(world, sync, False, 3), []
        for due in ([world.rank == 1, 0, world.rank == 2], [0, 0, 0], [0, 1, 0]):
            syncer.due[:] = due
            assert not syncer.sync_step(False)
            found.append(syncer.due.tolist())
        syncer.due[:] = [0, 0, world.rank == 0]
        assert not syncer.end_epoch(False)
        return [*found, syncer.due.tolist()]

    assert meet(3, meets) == [[[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]]] * 3


def test_an_allreduce_that_is_repeated_says_each_time_how_it_is_now() -> None:
    def thrice(world: World) -> list[bool]:
        syncer = StepSync(world, Sync("allreduce", 100, 1), False)
        return [syncer.sync_step(late) for late in (False, world.rank == 1, False)]

    assert meet(2, thrice) == [[False, True, False]] * 2


@pytest.mark.parametrize("sync", KINDS, ids=str)
@pytest.mark.parametrize("saves", [frozenset[int](), frozenset({1, 3})], ids=["no saves", "saves"])
@pytest.mark.parametrize("step", range(5))
def test_a_failure_in_any_step_is_heard_of_by_all_with_one_message(
    sync: Sync, saves: frozenset[int], step: int
) -> None:
    steps = 5

    def epoch(world: World) -> None:
        syncer = StepSync(world, sync, False)
        for each in range(steps):
            if world.rank == 1 and each == step:
                syncer.fail_all_ranks(ExecutionError("broken"), step, steps, saves)
            if (each + 1) % syncer.every == 0:
                syncer.sync_step(False)
            if each in saves:
                syncer.sync_before_save()
        syncer.end_epoch(False)

    for found in meet(3, epoch):
        assert isinstance(found, ExecutionError), found
        assert (found.message, found.shared) == ("rank 1: broken", True)


def test_two_ranks_that_fail_give_the_message_of_the_lower() -> None:
    def fails(world: World) -> None:
        syncer = StepSync(world, Sync("barrier", 0, 1), False)
        if world.rank:
            syncer.fail_all_ranks(ExecutionError(f"broken by {world.rank}"), 0, 3, frozenset())
        syncer.sync_step(False)

    assert [error.message for error in meet(3, fails)] == ["rank 1: broken by 1"] * 3


@pytest.mark.parametrize(("sync", "collective"), [(Sync("off", 0, 1), False), (Sync("barrier", 0, 1), True)])
def test_where_no_rank_can_be_notified_the_job_is_ended(sync: Sync, collective: bool) -> None:
    syncer = StepSync(world_of_threads(Meeting(2), 1), sync, collective)
    with pytest.raises(Ended, match="1: broken"):
        syncer.fail_all_ranks(ExecutionError("broken"), 0, 1, frozenset())


def test_what_all_know_is_raised_without_meeting() -> None:
    error = ExecutionError("known")
    error.shared = True
    with pytest.raises(ExecutionError, match="known"):
        StepSync(world_of_threads(Meeting(2), 1), Sync("off", 0, 1), False).fail_all_ranks(error, 0, 1, frozenset())


@pytest.mark.parametrize(("sync", "every"), [(Sync("off", 0, 1), 0), (Sync("barrier", 0, 4), 4)])
def test_how_often_ranks_meet(sync: Sync, every: int) -> None:
    assert StepSync(world_of_threads(Meeting(1), 0), sync, False).every == every


def test_the_first_allreduce_does_not_make_the_pages_of_its_buffer() -> None:
    class Alone(ThreadRanks):
        def allreduce(self, values: Any, operation: str) -> None:
            values *= 1

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

    ranks: Any = Alone(Meeting(1), 0)
    world = World(ranks, ranks, MPI.COMM_NULL, 1, False, "job")
    syncer = StepSync(world, Sync("allreduce", 128 << 20, 1), False)
    before = faults()
    assert not syncer.sync_step(False)
    assert faults() - before < 32  # it has 64 pages of the largest kind
