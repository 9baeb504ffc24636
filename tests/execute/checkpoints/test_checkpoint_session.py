"""Saves in the background on one rank: what they leave behind, what waits for which, and how they fail."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints import background, checkpoint_session, state_writer
from dliosim.execute.checkpoints.checkpoint_session import (
    CheckpointSession,
    make_save_phase,
)
from dliosim.execute.checkpoints.restore import restore
from dliosim.execute.checkpoints.save_steps import CheckpointSave
from dliosim.execute.phases.context import Options, Session
from dliosim.model import Access, Checkpoint, Job, Part, Restore, Workload, Writers
from dliosim.model.checkpoint import Background, Pace
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import checkpoint_faults, world_of_one

STAGED = Checkpoint(
    "c",
    1,
    (Part("w", 50_001, "total"), Part("s", 333, "per rank")),
    Writers("file per rank"),
    Access(transfer=4096),
    "c",
    background=Background(),
)


def session(directory: Path, *checkpoints: Checkpoint, options: Options | None = None) -> Session:
    """A job of one rank, with two roots."""
    workload = Workload("w", "", 1, Job(1), (), checkpoints, ())
    world = world_of_one()
    roots = {"data": directory / "data", "local": directory / "local"}
    for root in roots.values():
        root.mkdir(exist_ok=True)
    return Session(workload, world, roots, options or Options(verify=True), ProgressLine(None))


def complete(base: Path | None) -> list[int]:
    """Return the numbers of the checkpoints under `base`; every byte must be as saved, with nothing else there."""
    assert base is not None
    found = sorted(path for path in base.iterdir() if path.is_dir())
    assert [checkpoint_faults(path) for path in found] == [[]] * len(found)
    return [int(path.name) for path in found]


class Gate:
    """Holds what is done in the background until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.opened = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)
        action: Callable[..., Any] = getattr(module, name)

        def held(*arguments: Any) -> Any:
            self.entered.release()
            assert self.opened.acquire(timeout=20)
            return action(*arguments)

        monkeypatch.setattr(module, name, held)

    def open(self) -> None:
        self.opened.release()


WAYS = {
    "staged": STAGED,
    "two in flight": replace(STAGED, background=Background(in_flight=2)),
    "simulated": replace(STAGED, background=Background(Pace(seconds=0.001), simulated=True)),
    "at a pace": replace(STAGED, background=Background(Pace(bytes_per_second=1e8))),
    "past the cache": replace(STAGED, access=Access(transfer=5000, cache="off")),
    "one call a part": replace(STAGED, access=Access()),
    "metadata last": replace(STAGED, metadata=True, commit="metadata"),
    "blocking": replace(STAGED, background=None),
}


@pytest.mark.parametrize("checkpoint", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("drain", [None, "local"], ids=["", "drained"])
def test_what_was_saved_is_restored_whole(tmp_path: Path, checkpoint: Checkpoint, drain: str | None) -> None:
    checkpoint = replace(checkpoint, drain=drain, keep=2)
    own = session(tmp_path, checkpoint)
    with CheckpointSession(own, [checkpoint]) as running:
        made = [running.save(checkpoint) for _ in range(4)]
    assert complete(own.save_directory(checkpoint)) == [3, 4]
    if drain:
        assert complete(own.drain_directory(checkpoint)) == [3, 4]
    record, _ = restore(own, checkpoint, Restore("c"))
    assert record.bytes == 50_334
    for save in made:
        assert save.is_over and save.error is None
        assert save.record.bytes == 50_334
        assert save.record.drain_bytes >= (50_334 if drain else 0)
        assert (save.record.flush_ns > 0) == (checkpoint.background is not None)
        assert (save.record.drain_ns > 0) == (drain is not None)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_copy_takes_the_time_of_its_pace(tmp_path: Path, simulated: bool) -> None:
    checkpoint = replace(STAGED, background=Background(Pace(seconds=0.05), simulated))
    with CheckpointSession(session(tmp_path, checkpoint), [checkpoint]) as running:
        save = running.save(checkpoint)
    assert save.record.stage_ns >= 50_000_000
    assert save.record.stall_ns >= save.record.wait_ns + save.record.stage_ns
    assert save.record.wall_ns == save.record.stall_ns + save.record.flush_ns


def test_a_flush_lasts_as_long_as_its_checksums_hold_up_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, slept = state_writer._FileRuns.add_call, 0.01

    def slow(own: Any, offset: int, data: memoryview) -> None:
        time.sleep(slept)
        found(own, offset, data)

    monkeypatch.setattr(state_writer._FileRuns, "add_call", slow)
    own = session(tmp_path, STAGED)
    with CheckpointSession(own, [STAGED]) as saving:
        save = saving.save(STAGED)
    assert save.record.calls > 10
    assert save.record.flush_ns >= save.record.calls * slept * 1e9
    assert save.record.content_ns == save.content_ns


def test_a_copy_that_is_slower_than_its_pace_says_so(tmp_path: Path) -> None:
    checkpoint = replace(STAGED, background=Background(Pace(bytes_per_second=1e15)))
    own = session(tmp_path, checkpoint)
    with CheckpointSession(own, [checkpoint]) as running:
        save = running.save(checkpoint)
    [note] = make_save_phase(own, save).summary.notes
    assert "the memory of this machine is slower than that pace" in note


@pytest.mark.parametrize("in_flight", [1, 2])
def test_as_many_are_in_flight_as_asked_and_the_next_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_flight: int
) -> None:
    checkpoint = replace(STAGED, background=Background(in_flight=in_flight))
    own = session(tmp_path, checkpoint)
    gate = Gate(monkeypatch, checkpoint_session, "write_checkpoint")
    made: list[CheckpointSave] = []
    with CheckpointSession(own, [checkpoint]) as running:
        for _ in range(in_flight):
            made.append(running.save(checkpoint))
        assert not any(save.is_over for save in made)
        assert complete_ones(own, checkpoint) == []
        opener = threading.Timer(0.05, gate.open)
        opener.start()
        made.append(running.save(checkpoint))
        assert made[0].is_over and not made[-1].is_over
        assert made[-1].record.wait_ns > 0
        for _ in range(in_flight):
            gate.open()
    assert complete(own.save_directory(checkpoint)) == list(range(1, in_flight + 2))


def complete_ones(own: Session, checkpoint: Checkpoint) -> list[str]:
    return [path.name for path in own.save_directory(checkpoint).iterdir() if path.name.isdecimal()]


def test_settling_waits_for_the_checkpoints_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(STAGED, name="o", path="o")
    own = session(tmp_path, STAGED, other)
    gate = Gate(monkeypatch, checkpoint_session, "write_checkpoint")
    with CheckpointSession(own, [STAGED, other]) as running:
        first, second = running.save(STAGED), running.save(other)
        running.settle(["nothing of that name"])
        gate.open()
        running.settle(["c"])
        assert first.is_over and not second.is_over
        assert running.count_complete([first, second]) == 1
        gate.open()
        running.finish()
        assert second.is_over


def broken(*arguments: Any) -> Any:
    raise ExecutionError("the disk is gone", "R402")


def test_a_flush_that_fails_is_heard_of_at_the_next_save_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = session(tmp_path, STAGED)
    monkeypatch.setattr("dliosim.execute.checkpoints.save_steps.write_state", broken)
    with pytest.raises(ExecutionError, match="the disk is gone") as caught, CheckpointSession(own, [STAGED]) as running:
        running.save(STAGED)
        running.save(STAGED)
        pytest.fail("the second save must raise")
    assert caught.value.shared and caught.value.code == "R402"
    assert complete(own.save_directory(STAGED)) == []


def test_a_flush_that_fails_is_heard_of_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = replace(STAGED, drain="local")
    own = session(tmp_path, checkpoint)
    monkeypatch.setattr("dliosim.execute.checkpoints.save_steps.write_state", broken)
    with pytest.raises(ExecutionError, match="the disk is gone"), CheckpointSession(own, [checkpoint]) as running:
        running.save(checkpoint)
    assert complete(own.save_directory(checkpoint)) == []
    assert not (own.drain_directory(checkpoint) or tmp_path).exists()


def test_what_cannot_be_made_complete_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = session(tmp_path, STAGED)

    def full(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dliosim.execute.store.manifest.write_manifest", full)
    match = "could not complete checkpoint `c`"
    with pytest.raises(ExecutionError, match=match) as caught, CheckpointSession(own, [STAGED]) as running:
        running.save(STAGED)
    assert caught.value.code == "R402"
    assert complete(own.save_directory(STAGED)) == []


def test_a_drain_that_fails_leaves_the_checkpoint_and_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = replace(STAGED, drain="local")
    own = session(tmp_path, checkpoint)
    monkeypatch.setattr(checkpoint_session, "copy_file", broken)
    with pytest.raises(ExecutionError, match="the disk is gone"), CheckpointSession(own, [checkpoint]) as running:
        running.save(checkpoint)
    assert complete(own.save_directory(checkpoint)) == [1]
    assert complete(own.drain_directory(checkpoint)) == []


def test_a_run_that_fails_otherwise_completes_what_is_in_flight(tmp_path: Path) -> None:
    own = session(tmp_path, STAGED)
    with pytest.raises(KeyError), CheckpointSession(own, [STAGED]) as running:
        running.save(STAGED)
        raise KeyError
    assert complete(own.save_directory(STAGED)) == [1]
    assert not [thread for thread in threading.enumerate() if thread.name in ("flush", "drain")]


def test_none_is_deleted_before_it_is_drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = replace(STAGED, background=None, drain="local", keep=1)
    own = session(tmp_path, checkpoint)
    gate = Gate(monkeypatch, checkpoint_session, "drain")
    with CheckpointSession(own, [checkpoint]) as running:
        made = [running.save(checkpoint) for _ in range(3)]
        assert complete(own.save_directory(checkpoint)) == [1, 2, 3]
        gate.open()
        assert made[0].drain is not None
        made[0].drain.wait()
        assert complete(own.save_directory(checkpoint)) == [2, 3]
        assert complete(own.drain_directory(checkpoint)) == [1]
        gate.open()
        gate.open()
    assert complete(own.save_directory(checkpoint)) == [3]
    assert complete(own.drain_directory(checkpoint)) == [3]


def test_times_at_work_are_those_of_flushes_and_drains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = session(tmp_path, STAGED)
    gate = Gate(monkeypatch, checkpoint_session, "write_checkpoint")
    with CheckpointSession(own, [STAGED]) as running:
        assert running.busy_intervals(0).shape == (0, 2)
        running.save(STAGED)
        assert gate.entered.acquire(timeout=20)
        [[begun, ended]] = running.busy_intervals(0).tolist()
        assert begun < ended == background.NEVER
        gate.open()
        running.finish()
        [[begun, ended]] = running.busy_intervals(begun).tolist()
        assert begun < ended < background.NEVER
        assert running.busy_intervals(ended + 1).tolist() == []


def test_without_io_a_save_is_nothing(tmp_path: Path) -> None:
    checkpoint = replace(STAGED, drain="local")
    own = session(tmp_path, checkpoint, options=Options(null=True))
    with CheckpointSession(own, [checkpoint]) as running:
        save = running.save(checkpoint)
    assert save.is_over and save.record.bytes == save.record.stall_ns == 0
    assert not list((tmp_path / "data").iterdir()) and not list((tmp_path / "local").iterdir())


@pytest.mark.parametrize("checkpoint", [STAGED, replace(STAGED, background=None, drain="local")], ids=str)
def test_an_mpi_without_threads_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint
) -> None:
    monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
    with pytest.raises(ExecutionError, match="needs an MPI with MPI_THREAD_MULTIPLE") as caught:
        CheckpointSession(session(tmp_path, checkpoint), [checkpoint])
    assert caught.value.code == "R403" and caught.value.shared


def test_the_next_number_is_above_those_of_copies_that_outlived_what_was_saved(tmp_path: Path) -> None:
    drained = replace(STAGED, root="local", drain="data")
    own = session(tmp_path, drained)
    for _ in range(2):
        with CheckpointSession(own, [drained]) as saves:
            saves.save(drained)
        # The disk of the node is gone with the node.
        own.stores.release()
        shutil.rmtree(tmp_path / "local" / "c")
        own = session(tmp_path, drained)
    assert complete(own.drain_directory(drained)) == [1, 2]


def test_what_was_written_is_forgotten_unless_it_is_drained(tmp_path: Path) -> None:
    plain = replace(STAGED, background=None)
    own = session(tmp_path, plain)
    with CheckpointSession(own, [plain, STAGED]) as saves:
        kept = [saves.save(plain), saves.save(STAGED)]
    assert [save.runs for save in kept] == [[], []]


def test_who_waits_for_a_flush_hears_nothing_of_its_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain may be over on one rank alone: if that one raised its error, the others would wait for ever."""
    own = replace(STAGED, drain="local")

    def fail(*given: object) -> None:
        raise ExecutionError("no drain today")

    monkeypatch.setattr(checkpoint_session, "drain", fail)
    with (
        pytest.raises(ExecutionError, match="no drain today"),
        CheckpointSession(session(tmp_path, own), [own]) as all_saves,
    ):
        save = all_saves.save(own)
        assert save.drain is not None
        save.drain.wait()
        all_saves.settle([own.name])  # raises nothing
        settled = True
        all_saves.finish()
    assert settled
