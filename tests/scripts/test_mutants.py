"""Mutated patterns are answered or refused; scripts/dev/mutated_patterns.py tries them for as long as one likes."""

from __future__ import annotations

from collections import Counter
from itertools import count, islice
from pathlib import Path

import pytest

from tests.examples import ALL
from tests.scripts.fidelity import script

DRAWING, TRYING = script("mutants.drawing"), script("mutants.trying")

REFUSED = "error[E111]: a size is needed, not a count\n --> mutant.dlio:4:13\n  |\n"


def done(status: int = 0, out: str = "", err: str = "", command: str = "plan", **took: float) -> object:
    return TRYING.Done(command, status, took.get("seconds", 0.1), took.get("resident", 10**8), out, err)


def test_mutants_are_answered_or_refused(tmp_path: Path) -> None:
    """The same ones each time, on few ranks; the others are left to the script."""
    few = (mutant for mutant in map(DRAWING.draw, count(1)) if mutant.ranks <= 64)
    tries = script("mutated_patterns").Tries(tmp_path)
    tried = [tries.try_mutant(mutant) for mutant in islice(few, 40 if ALL else 25)]
    wrong = [f"{fault}    # --only {one.mutant.seed}" for one in tried for fault in one.wrong]
    assert wrong == [], "see scripts/dev/mutated_patterns.py"
    assert {0, 2} <= {one.done[0].status for one in tried}


def test_a_seed_draws_the_same_mutant_each_time() -> None:
    assert [DRAWING.draw(seed) for seed in range(50)] == [DRAWING.draw(seed) for seed in range(50)]


def test_mutants_are_of_all_patterns_and_numbers_of_ranks() -> None:
    drawn = [DRAWING.draw(seed) for seed in range(600)]
    assert {one.source for one in drawn} == DRAWING.sources().keys()
    assert {1, 65_536} <= {one.ranks for one in drawn} <= set(range(1, 65_537))
    assert all(1 <= one.nodes <= one.ranks and 0 <= one.rank < one.ranks for one in drawn)
    changed = Counter(one.text != DRAWING.sources()[one.source] for one in drawn)
    assert changed[True] > 500


@pytest.mark.parametrize(
    ("ended", "fault"),
    [
        (done(-9), "ended by SIGKILL"),
        (
            done(1, err='Traceback (most recent call last):\n  File "a/dliosim/x.py", line 3, in f\nKeyError: 1\n'),
            "traceback: KeyError in dliosim/x.py:3 f",
        ),
        (done(1, err="error: rank 0: a fault in dliosim itself; please report it\n"), "traceback"),
        (done(70), "exit status 70"),
        (done(0, "1 MB\n", seconds=5.1), "more than 5 s of processor"),
        (done(0, "1 MB\n", resident=2 * 10**9), "more than 1 GB resident"),
        (done(0, ""), "nothing printed"),
        (done(0, "train  nan s\n"), "no number"),
        (done(0, "train  -inf B\n"), "no number"),
        (done(0, "train  -18447 PB\n"), "a negative number"),
        (done(0, "0,3,a/0.bin,-4096,8\n", command="plan --csv"), "a negative number"),
        (done(2, err="error[E111]: a size is needed, not a count\n"), "without a line"),
        (done(2, err="no\n"), "without a reason"),
        (done(1, err=REFUSED), "no file is wrong"),
    ],
)
def test_what_is_wrong_is_said(ended: object, fault: str) -> None:
    assert any(fault in each for each in TRYING.faults(ended))


@pytest.mark.parametrize(
    "ended",
    [
        done(0, "infer, epoch 1  - 1 MB 4-5 a-1 inference nano\n"),
        done(2, err=REFUSED),
        done(1, err="error[R401]: data set `d`: there is no file a/*.h5\n --> mutant.dlio:4:13\n"),
        done(2, err="error: the pattern has no loop\n", command="plan --csv"),
    ],
)
def test_an_answer_and_a_refusal_are_not_wrong(ended: object) -> None:
    assert list(TRYING.faults(ended)) == []


def test_a_command_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: list[str]) -> int:
        while True:
            pass

    monkeypatch.setattr(TRYING.cli, "main", endless)
    monkeypatch.setattr(TRYING, "SECONDS", 1)
    monkeypatch.setattr(TRYING, "HARD_SECONDS", 2)
    ended = TRYING.attempt(["check", "a.dlio"], tmp_path / "errors")
    assert ended.status == -9
    assert 1 < ended.seconds < 4
    assert "in endless" in ended.err
