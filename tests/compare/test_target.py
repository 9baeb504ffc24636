"""The target of a comparison, and the short names of its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.compare.experiment import ComparisonPlan, parse_varied, verb_title
from dliosim.compare.variants import compile_variants
from dliosim.errors import UsageError
from dliosim.model import Job, Loop, Restore, Save

HEAD = 'dlio 1\nworkload tiny "a test"\n'

CHECKPOINT = """checkpoint c {
    part  weights 300 kB total
    part  rng 1001 B per rank
    path  "c"
}
"""

LOOP = """dataset d {
    samples  400
    size     4 kB
    path     "d"
    layout   shared file
}
prepare d
train {
    read        d
    batch       4 per rank
    checkpoint  c every epoch
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny.dlio"


def made(
    path: Path, text: str, *vary: str, loop: str | None = None, what: str | None = None, keep: bool = False
) -> ComparisonPlan:
    """The variants of a pattern."""
    path.write_text(HEAD + CHECKPOINT + text)
    return compile_variants(path, (), Job(4), parse_varied(vary), loop, what, keep)[0]


WRITERS = "writers=into file per rank,rank 0"


@pytest.mark.parametrize(
    ("text", "what", "expected"),
    [
        ("save c\nrestore c\n", None, "save c"),
        ("restore c\n", None, "restore c"),
        ("save c\nrestore c\n", "restore", "restore c"),
        ("repeat 2 {\n    save c\n}\n", "save c", "save c"),
        (LOOP, None, "train"),
        (LOOP, "save", "save c"),
        (LOOP, "restore c", "restore c"),
    ],
)
def test_a_loop_is_compared_if_there_is_one_else_a_save_else_a_restore(
    path: Path, text: str, what: str | None, expected: str
) -> None:
    found = made(path, text, WRITERS, what=what)
    assert found.what == expected and {verb_title(one.verb) for one in found.variants} == {expected}
    kept = [one.workload.checkpoint("c").writers.kind for one in found.variants]
    assert kept == ["file per rank", "rank"]


@pytest.mark.parametrize(
    ("vary", "given", "keep", "saved"),
    [
        ("api=posix,mpi-independent", (), False, False),
        ("api=posix,mpi-independent", (), True, True),
        ("api=posix,mpi-independent", (("train.checkpoint", "c at end"),), False, True),
        ("api=posix,mpi-independent", (("c.fsync", "off"),), False, False),
        (WRITERS, (), False, True),
        ("c.api=posix,mpi-independent", (), False, True),
        ("train.checkpoint=c at end,off", (), False, True),
    ],
)
def test_a_loop_is_compared_without_its_checkpoints_unless_they_are_asked_for(
    path: Path, vary: str, given: tuple[tuple[str, str], ...], keep: bool, saved: bool
) -> None:
    path.write_text(HEAD + CHECKPOINT + LOOP)
    found = compile_variants(path, given, Job(4), parse_varied([vary]), None, keep_saves=keep)[0]
    verbs = [one.verb for one in found.variants if isinstance(one.verb, Loop)]
    assert (bool(verbs[0].checkpoints), found.without_saves) == (saved, not saved)


def test_a_loop_whose_checkpoints_forbid_one_epoch_is_compared_with_one(path: Path) -> None:
    path.write_text(HEAD + CHECKPOINT + LOOP.replace("every epoch", "every 2 epochs\n    epochs 4"))
    found = compile_variants(path, (("train.epochs", "1"),), Job(4), parse_varied(["api=posix,mpi-independent"]), None)[
        0
    ]
    assert found.without_saves


def test_a_parameter_of_a_checkpoint_that_is_left_out_says_what_keeps_it(path: Path) -> None:
    path.write_text(
        HEAD + 'param who = rank 0 "who writes"\n' + CHECKPOINT.replace("path", "writers $who\n    path") + LOOP
    )
    with pytest.raises(UsageError, match="without its checkpoints, which --checkpoints keeps"):
        compile_variants(path, (), Job(4), parse_varied(["who=rank 0,into file per rank"]), None)


def test_of_several_checkpoints_one_must_be_named(path: Path) -> None:
    both = CHECKPOINT.replace("checkpoint c", "checkpoint e").replace('"c"', '"e"') + "save c\nsave e\n"
    with pytest.raises(UsageError, match=r'say which checkpoint to save: --what "save NAME"; checkpoints here: c, e'):
        made(path, both, "api=posix,mpi-independent")
    assert made(path, both, "api=posix,mpi-independent", what="save  e").variants[0].verb == Save("e")


@pytest.mark.parametrize(
    ("text", "loop", "what", "said"),
    [
        (LOOP, "train", "save", "one thing is compared at a time"),
        (LOOP, None, "train", "expected save or restore"),
        ("save c\n", None, "save e", "no such checkpoint; checkpoints here: c"),
        ("save c\n", "main", None, "no such loop; loops here: none"),
        ("barrier\n", None, None, "nothing to compare"),
    ],
)
def test_what_is_not_there_cannot_be_compared(
    path: Path, text: str, loop: str | None, what: str | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        made(path, text, "seed=1,2", loop=loop, what=what)


def test_a_short_name_is_a_setting_of_the_restore_or_of_its_checkpoint(path: Path) -> None:
    found = made(path, "save c\nrestore c\n", "reads=own part,everything", "transfer=4 kB,8 kB", what="restore")
    verbs = [one.verb for one in found.variants]
    assert [verb.everything for verb in verbs if isinstance(verb, Restore)] == [False, False, True, True]
    assert [one.access.transfer for one in found.variants] == [4000, 8000, 4000, 8000]


def test_a_short_name_is_a_setting_of_the_loop_before_its_checkpoint(path: Path) -> None:
    found = made(path, LOOP, "api=posix,mpi-independent", keep=True)
    assert [one.access.api for one in found.variants] == ["posix", "mpi-independent"]
    assert {one.workload.checkpoint("c").access.api for one in found.variants} == {"posix"}


def test_what_cannot_be_or_changes_nothing_is_listed_with_its_reason(path: Path) -> None:
    found = made(path, "save c\n", "writers=into file per rank,one per 1 ranks,rank 9,rank 0")
    assert [one.label for one in found.variants] == ["writers=into file per rank", "writers=rank 0"]
    reasons = {one.label: one.reason for one in found.not_run}
    assert reasons["writers=rank 9"] == "rank 9 does not exist"
    assert reasons["writers=one per 1 ranks"] == "`save c` does exactly what it does with writers=into file per rank"


def test_a_setting_of_saves_changes_nothing_for_restores(path: Path) -> None:
    with pytest.raises(UsageError, match="does exactly what it does with fsync=on"):
        made(path, "save c\nrestore c\n", "fsync=on,off", what="restore")


def test_what_other_ranks_wrote_is_not_restored(path: Path) -> None:
    found = made(
        path, "restore c {\n    shifted by 1 rank\n}\n", "written by=4 ranks,8 ranks", "shifted by=0 ranks,1 rank"
    )
    assert len(found.variants) == 2
    assert {one.reason for one in found.not_run} == {
        "a variant restores what it has saved itself, and 8 ranks wrote this one, not the 4 of this job"
    }


def test_the_library_s_own_hints_are_always_among_those_of_a_checkpoint(path: Path) -> None:
    found = made(path, "save c\n", "api=mpi-collective", "hints=no-aggregation", "writers=all ranks into shared file")
    assert [one.access.hint_set for one in found.variants] == ["no-aggregation", "library"]
    path.write_text(path.read_text().replace('path  "c"', 'path  "c"\n    api mpi-independent\n    hint "a" = "b"'))
    found = compile_variants(path, (), Job(4), parse_varied([WRITERS]), None)[0]
    assert [one.added != "" for one in found.variants] == [False, False, True, True]
    assert [one.access.hints for one in found.variants] == [(("a", "b"),), (("a", "b"),), (), ()]
