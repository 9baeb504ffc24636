"""Bytes that ranks send to each other in the shared memory of a node.

The ranks are threads, and one runs at a time: each read and each write of that memory draws the next one. So the tests
see orders that are rare where ranks are processes.
"""

from __future__ import annotations

import mmap
import threading
from random import Random
from typing import Any

import pytest
from mpi4py import MPI

from dliosim.execute.mpi import node_memory
from dliosim.execute.mpi.node_memory import NodeMemory

RANKS = 3

#: To whom rank 0 sends; each is sent to again while it may still wait for the other one's turn to end.
TARGETS = (2, 1, 2, 1, 1, 2)

#: Orders that are tried.
ORDERS = 150


class _Turns:
    """Lets one of the threads that take part run at a time."""

    def __init__(self, seed: int) -> None:
        self._random, self._changed, self._own = Random(seed), threading.Condition(), threading.local()
        self._there, self._next = set(range(RANKS)), 0

    def begin(self, rank: int) -> None:
        self._own.rank = rank
        with self._changed:
            self._wait()

    def pass_on(self) -> None:
        if hasattr(self._own, "rank"):
            with self._changed:
                self._draw()
                self._wait()

    def leave(self) -> None:
        with self._changed:
            self._there.remove(self._own.rank)
            self._draw()

    def _draw(self) -> None:
        self._next = self._random.choice([*self._there] or [-1])
        self._changed.notify_all()

    def _wait(self) -> None:
        assert self._changed.wait_for(lambda: self._next == self._own.rank, 20)


class _Words:
    """Words of a row: a thread that reads or changes one may have to let others run."""

    def __init__(self, words: memoryview, turns: _Turns) -> None:
        self._words, self._turns = words, turns

    def __getitem__(self, place: int) -> int:
        found: int = self._words[place]
        self._turns.pass_on()
        return found

    def __setitem__(self, place: int, value: int) -> None:
        self._words[place] = value
        self._turns.pass_on()


class _Comm:
    def __init__(self, rank: int) -> None:
        self.rank, self.size = rank, RANKS

    def Ibarrier(self) -> MPI.Request:
        return MPI.REQUEST_NULL


def memories(patch: pytest.MonkeyPatch, turns: _Turns) -> list[NodeMemory]:
    """Those of all ranks."""
    whole: list[memoryview] = []

    class Shared:
        def __init__(self, comm: _Comm, size: int) -> None:
            if comm.rank == 0:
                whole.append(memoryview(mmap.mmap(-1, size)))
            self.view = whole[0]

        def close(self) -> None:
            pass

    patch.setattr(node_memory, "SharedMemory", Shared)
    patch.setattr(node_memory, "_timed_wait", lambda semaphore, until: turns.pass_on())
    comms: list[Any] = [_Comm(rank) for rank in range(RANKS)]
    made = [NodeMemory(comm, RANKS, first_ends_meetings=False) for comm in comms]
    for memory in made:
        patch.setattr(memory, "_row", lambda rank, row=memory._row: _Words(row(rank), turns))
    return made


def received(seed: int) -> dict[int, list[int]]:
    """The numbers of the messages that each rank got, in one order of turns."""
    turns, found = _Turns(seed), {rank: list[int]() for rank in range(1, RANKS)}
    with pytest.MonkeyPatch.context() as patch:
        made = memories(patch, turns)

        def send() -> None:
            turns.begin(0)
            for number, target in enumerate(TARGETS):
                made[0].send(memoryview(number.to_bytes(8, "little")), target)
            turns.leave()

        def receive(rank: int) -> None:
            turns.begin(rank)
            for _ in range(TARGETS.count(rank)):
                data = bytearray(b"\xff" * 8)
                made[rank].receive(memoryview(data), 0)
                found[rank].append(int.from_bytes(data, "little"))
            turns.leave()

        threads = [threading.Thread(target=send, daemon=True)]
        threads += [threading.Thread(target=receive, args=(rank,), daemon=True) for rank in range(1, RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        assert not any(thread.is_alive() for thread in threads), f"order {seed}: they wait for ever, after {found}"
        for memory in made:
            memory.close()
    return found


def test_who_waits_for_its_turn_gets_nothing_that_is_sent_to_another() -> None:
    meant = {rank: [number for number, target in enumerate(TARGETS) if target == rank] for rank in range(1, RANKS)}
    for seed in range(ORDERS):
        assert received(seed) == meant, f"order {seed}"
