"""Faults that are drawn are ones that a run can meet, and what does not hold of a run is complained of."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from tests.examples import examples
from tests.scripts.fidelity import script

drawing, judging, running = (script(f"faults.{name}") for name in ("drawing", "judging", "running"))

LOG = ["open - data/d/12/manifest.json", "pwrite w data/c/34/000001.partial/000000.ckpt", "fsync w data/c/34/lock"]


def calls(*lines: str) -> tuple[object, ...]:
    return tuple(drawing.Seen(*line.split(" ", 2)) for line in lines)


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 10**6), api=st.sampled_from(["posix", "mpi-independent", "mpi-collective"]))
def test_every_workload_is_a_pattern(seed: int, api: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    workload = drawing.draw_workload(random.Random(seed), api, direct=True)
    pattern = tmp_path_factory.mktemp("drawn") / "faults.dlio"
    for phase in drawing.PHASES:
        pattern.write_text(workload.pattern(workload.verbs(phase)))
        compile_pattern(pattern, [], Job(workload.ranks, 1))


@given(seed=st.integers(0, 10**6))
def test_a_fault_is_one_of_a_call_that_was_seen(seed: int) -> None:
    seen = [calls(*LOG * 3), calls(LOG[1])]
    fault = drawing.draw_fault(random.Random(seed), seen)
    named = [each for each in seen[fault.rank] if each.call == fault.call]
    assert fault.first < len(named)
    assert fault.last in (fault.first, drawing.NO_LAST)
    assert fault.kind != "errno" or fault.value in drawing.ERRORS[named[fault.first].title]
    assert drawing.draw_fault(random.Random(seed), seen) == fault


def done(status: int, text: str, hit: str, hung: bool = False, left: tuple[int, ...] = ()) -> object:
    return running.Done(status, text, (calls(hit),), calls(hit), hung, left)


MANIFEST, FILE, LOCK = LOG
FULL = f"error[R402]: write failed on /x/data/c/34/000001.partial/000000.ckpt: {'No space left on device'}"


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (done(1, FULL, FILE), []),
        (done(0, "", FILE), ["silent"]),
        (done(0, "", MANIFEST), []),
        (done(0, "", LOCK), []),
        (done(0, FULL, FILE), ["status"]),
        (done(1, "", FILE), ["ending"]),
        (done(1, f"{FULL}\n{FULL}", FILE), ["ending"]),
        (done(143, FULL, FILE), ["ending"]),
        (done(1, "error: write failed on /x/data/c/34/000001.partial/000000.ckpt", FILE), ["reason"]),
        (done(1, "error: rank 0 could not save: No space left on device", FILE), ["place"]),
        (done(1, "rank 0: a fault in dliosim itself; please report it\nTraceback", FILE), ["itself"]),
        (done(1, "Traceback", FILE), ["traceback"]),
        (done(1, FULL, FILE, left=(7,)), ["left"]),
        (done(-9, "", FILE, hung=True), ["hang"]),
    ],
)
def test_how_a_run_must_end_after_an_error(ended: object, words: list[str]) -> None:
    fault = drawing.Fault(0, "pwrite", 0, "errno", errno.ENOSPC, 0)
    assert [each.word for each in judging.complaints_of_end(ended, fault)] == words


@pytest.mark.parametrize(("kind", "value"), [("short", 1), ("delay", 200), ("errno", errno.EINTR)])
def test_what_is_no_error_must_be_survived(kind: str, value: int) -> None:
    fault = drawing.Fault(0, "pwrite", 0, kind, value, 0)
    assert judging.complaints_of_end(done(0, "", FILE), fault) == []
    assert [each.word for each in judging.complaints_of_end(done(1, FULL, FILE), fault)] == ["not survived"]


def test_the_number_restored_is_that_of_the_files_read_last() -> None:
    old, new = (f"pread r data/c/34/00000{number}/000000.ckpt" for number in (1, 2))
    assert running.last_checkpoint_read([calls(new, old, MANIFEST)]) == 1
    assert running.last_checkpoint_read([calls(MANIFEST)]) == 0


def test_what_is_there_is_distinguished() -> None:
    things = [
        "data/d/12/manifest.json.partial",
        "data/d/12/0.raw",
        "drained/c/34/000001/0.ckpt",
        "data/c/34/lock (deleted)",
    ]
    assert [drawing.Seen("open", "w", path).thing for path in things] == ["manifest", "data", "checkpoint", "lock"]
    folders = ["data/d/12", "data/c/34/000001.old.partial"]
    assert [drawing.Seen("open", "r", path).thing for path in folders] == ["directory", "directory"]
