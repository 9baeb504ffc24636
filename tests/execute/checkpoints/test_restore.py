"""Restore on one rank: which checkpoint is read, and the notes about those that are not."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints import restore as restore_module
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.checkpoints.restore import restore
from dliosim.execute.checkpoints.selection import CheckpointSearch
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.store.manifest import load_manifest, write_manifest
from dliosim.model import Access, Checkpoint, Job, Part, Restore, Split, Workload, Writers
from dliosim.report.progress.progress_line import ProgressLine
from tests.examples import examples
from tests.execute.alone import world_of_one
from tests.execute.failing import NO_PROOF, failing

PARTS = (Part("w", 5000, "total"), Part("t", 6000, "columns", 60, 2), Part("n", 30, "whole"))
CHECKPOINT = Checkpoint("c", 1, PARTS, Writers("file per rank"), Access(transfer=512), "c", fsync=False)
TOTAL = 11030


@pytest.fixture(autouse=True)
def _counted_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the note on what the kernel counts, which depends on the file system of the tests."""
    monkeypatch.setattr(restore_module, "find_uncounted_reads", lambda session, path: "")


def session(directory: Path, checkpoint: Checkpoint = CHECKPOINT) -> Session:
    """A job of one rank."""
    workload = Workload("w", "", 1, Job(1), (), (checkpoint,), ())
    world = world_of_one()
    roots = {"data": directory / "data", "far": directory / "far"}
    for root in roots.values():
        root.mkdir(exist_ok=True)
    return Session(workload, world, roots, Options(), ProgressLine(None))


def save(own: Session, checkpoint: Checkpoint) -> None:
    """Save once, and wait for what of it runs in the background."""
    with CheckpointSession(own, [checkpoint]) as saves:
        saves.save(checkpoint)


def file_of(directory: Path, number: str, name: str = "000000.ckpt") -> Path:
    (path,) = directory.glob(f"data/c/*/{number}/{name}")
    return path


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x80
    path.write_bytes(data)


@pytest.mark.parametrize("place", [0, 4999, 5000, 10_999, 11_029])
def test_a_flipped_bit_anywhere_is_found_and_the_one_before_is_read(tmp_path: Path, place: int) -> None:
    job = session(tmp_path)
    save(job, CHECKPOINT)
    save(job, CHECKPOINT)
    flip(file_of(tmp_path, "000002"), place)
    for pieces in ("by tensor", "whole"):
        record, (note, read) = restore(job, replace(CHECKPOINT, pieces=pieces), Restore("c"))
        assert read == "read 000001"
        assert note.startswith(f"passed over 000002: 000000.ckpt differs from what was saved, at byte {place} (found")
        assert (record.bytes, record.files, record.opens) == (TOTAL, 1, 1)
        assert record.calls == (10 + 12 + 1 if pieces == "by tensor" else 22)


@pytest.mark.parametrize("api", ["posix", "mpi-independent", "mpi-collective"])
@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 700), os.unlink], ids=["cut", "removed"])
def test_what_is_cut_or_removed_under_our_hands_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, change: Callable[[Path], None]
) -> None:
    checkpoint = replace(CHECKPOINT, access=Access(api, 512), writers=Writers("shared file"))
    job = session(tmp_path, checkpoint)
    save(job, checkpoint)
    save(job, checkpoint)
    looked = restore_module.measure_file_residency
    newest = file_of(tmp_path, "000002")

    def look_and_change(*arguments: object) -> tuple[int, int]:
        found = looked(*arguments)  # type: ignore[arg-type]
        if newest.exists() and newest.stat().st_size == TOTAL:
            change(newest)
        return found

    monkeypatch.setattr(restore_module, "measure_file_residency", look_and_change)
    record, (note, _) = restore(job, checkpoint, Restore("c"))
    assert note.startswith("passed over 000002: ")
    assert "000000.ckpt" in note
    assert str(tmp_path) not in note
    assert record.bytes == TOTAL
    # Only what was read in the end counts.
    assert record.calls == 23


@settings(max_examples=examples(50))
@given(
    failure=st.sampled_from(
        [
            ("open", "000002/manifest"),
            ("pread", "000002/manifest"),
            ("lstat", "ckpt$"),
            ("open", "000002/.*ckpt$"),
            ("preadv", "000002/.*ckpt$"),
        ]
    ),
    number=st.sampled_from(NO_PROOF),
)
def test_what_cannot_be_read_is_no_reason_to_restore_an_older_one(failure: tuple[str, str], number: int) -> None:
    call, where = failure
    with TemporaryDirectory() as made:
        job = session(Path(made))
        save(job, CHECKPOINT)
        save(job, CHECKPOINT)
        with failing(call, number, where) as failed, pytest.raises(ExecutionError) as caught:
            restore(job, CHECKPOINT, Restore("c"))
        assert failed
        assert caught.value.code == ("R402" if number == errno.ENOMEM else "R401")
        assert f": {os.strerror(number)}" in caught.value.message
        assert "000002" in caught.value.message
        assert restore(job, CHECKPOINT, Restore("c"))[1] == ()


def test_the_clock_holds_reading_and_not_comparing(tmp_path: Path) -> None:
    job = session(tmp_path)
    save(job, CHECKPOINT)
    record, _ = restore(job, CHECKPOINT, Restore("c"))
    assert record.content_ns > 0
    assert record.call_ns + record.open_ns <= record.wall_ns


def test_the_newest_of_two_roots_is_read(tmp_path: Path) -> None:
    checkpoint = replace(CHECKPOINT, drain="far")
    job = session(tmp_path, checkpoint)
    save(job, checkpoint)
    save(job, checkpoint)
    far = job.drain_directory(checkpoint)
    assert far is not None
    assert restore(job, checkpoint, Restore("c"))[1] == ("read 000002 from root `data`",)
    shutil.rmtree(file_of(tmp_path, "000002").parent)
    assert restore(job, checkpoint, Restore("c"))[1] == ("read 000002 from root `far`",)
    flip(far / "000002/000000.ckpt", 7)
    flip(file_of(tmp_path, "000001"), 8)
    first, second, read = restore(job, checkpoint, Restore("c"))[1]
    assert first.startswith("passed over 000001: 000000.ckpt differs from what was saved, at byte 8 (found after ")
    assert first.endswith("(root `data`)")
    assert second.startswith("passed over 000002: 000000.ckpt differs from what was saved, at byte 7 (found after ")
    assert second.endswith("(root `far`)")
    assert read == "read 000001 from root `far`"


def test_the_file_of_all_plans_is_read_first_and_checked(tmp_path: Path) -> None:
    checkpoint = replace(CHECKPOINT, metadata=True)
    job = session(tmp_path, checkpoint)
    save(job, checkpoint)
    save(job, checkpoint)
    record, notes = restore(job, checkpoint, Restore("c"))
    assert (notes, record.opens, record.bytes) == ((), 2, TOTAL)
    assert 0 < record.plan_ns < record.wall_ns
    flip(file_of(tmp_path, "000002", "metadata.json"), 10)
    _, (note, _) = restore(job, checkpoint, Restore("c"))
    assert note.startswith("passed over 000002: metadata.json differs from what was saved (found after")


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (Split(1, 1, 4, 1), "restore c { written by tensor 1 pipeline 1 data 4 subset 1 }"),
        (Split(2, 1, 1, 1), "restore c { written by tensor 2 pipeline 1 data 1 subset 1 }"),
    ],
)
def test_what_others_have_saved_is_said(tmp_path: Path, split: Split, said: str) -> None:
    job = session(tmp_path)
    save(job, replace(CHECKPOINT, parallel=split))
    with pytest.raises(ExecutionError, match=r"nothing was ever saved there[^\n]*\n  = help: put `save ") as caught:
        restore(job, CHECKPOINT, Restore("c"))
    assert caught.value.code == "R404"
    assert caught.value.message.endswith(f"; others have saved it there: say `{said}`")
    with pytest.raises(ExecutionError, match="a checkpoint of another description is there, in "):
        restore(job, replace(CHECKPOINT, seed=2), Restore("c"))


def test_what_nothing_proves_complete_is_said(tmp_path: Path) -> None:
    checkpoint = replace(CHECKPOINT, commit="none")
    job = session(tmp_path, checkpoint)
    save(job, checkpoint)
    assert restore(job, checkpoint, Restore("c"))[1] == ("000001: `commit none`: nothing proves that it is complete",)


def keep_copy(file: Path) -> None:
    """Copy the file as a partner would keep what the only rank has saved."""
    directory, copied = file.parent, "partner_of_000000.ckpt"
    shutil.copy(file, directory / copied)
    saved = load_manifest(directory)
    write_manifest(directory, replace(saved, files={**saved.files, copied: saved.files[file.name]}).manifest_content())


@pytest.mark.parametrize(
    ("api", "writers"), [("posix", "file per rank"), ("posix", "shared file"), ("mpi-collective", "shared file")]
)
def test_what_a_file_held_is_read_from_a_partner(tmp_path: Path, api: str, writers: str) -> None:
    checkpoint = replace(CHECKPOINT, writers=Writers(writers), access=Access(api, 512))
    job = session(tmp_path, checkpoint)
    save(job, checkpoint)
    save(job, checkpoint)
    newest = file_of(tmp_path, "000002")
    keep_copy(newest)
    checkpoint = replace(checkpoint, partner=1)
    assert restore(job, checkpoint, Restore("c"))[1] == ()
    copied = "what it held was read from partners' copies"
    flip(newest, 6000)
    record, (note,) = restore(job, checkpoint, Restore("c"))
    assert note.startswith("000002: 000000.ckpt differs from what was saved, at byte 6000 (found after ")
    assert note.endswith(copied)
    assert record.bytes == TOTAL
    newest.unlink()
    assert restore(job, checkpoint, Restore("c"))[1] == (f"000002: 000000.ckpt: No such file or directory; {copied}",)
    flip(newest.with_name("partner_of_000000.ckpt"), 10_000)
    note, _ = restore(job, checkpoint, Restore("c"))[1]
    assert note.startswith("passed over 000002: partner_of_000000.ckpt differs from what was saved, at byte 10000")


def test_a_file_is_lost_once_whatever_a_manifest_names(tmp_path: Path) -> None:
    job = session(tmp_path)
    save(job, CHECKPOINT)
    newest = file_of(tmp_path, "000001")
    keep_copy(newest)
    # The beginning of the name of what a partner keeps, which every error there is about, too.
    other = newest.with_name("partner_of_")
    other.write_bytes(b"x")
    saved = load_manifest(newest.parent)
    files = {**saved.files, other.name: (1, 0)}
    write_manifest(newest.parent, replace(saved, files=files).manifest_content())
    for path in (newest, newest.with_name("partner_of_000000.ckpt")):
        flip(path, 0)
    with pytest.raises(ExecutionError, match="differs from what was saved, at byte 0"):
        restore(job, replace(CHECKPOINT, partner=1), Restore("c"))


def test_no_manifest_decides_how_much_memory_is_taken(tmp_path: Path) -> None:
    described = replace(CHECKPOINT, metadata=True)
    own = session(tmp_path, described)
    save(own, described)
    size = 1 << 28
    os.truncate(file_of(tmp_path, "000001", "metadata.json"), size)
    manifest = file_of(tmp_path, "000001", "manifest.json")
    content = json.loads(manifest.read_text())
    content["files"]["metadata.json"][0] = size
    manifest.write_text(json.dumps(content, indent=1))
    tracemalloc.start()
    try:
        with pytest.raises(ExecutionError, match="differs from what was saved"):
            restore(own, described, Restore("c"))
        assert tracemalloc.get_traced_memory()[1] < size // 2
    finally:
        tracemalloc.stop()


def test_the_oldest_of_a_run_are_those_that_keep_has_left(tmp_path: Path) -> None:
    kept = replace(CHECKPOINT, keep=2)
    own = session(tmp_path, kept)
    for _ in range(5):
        save(own, kept)
    search = CheckpointSearch(own, kept, kept.split(1))
    assert search.list_oldest(1, range(1, 6)) == [4]
    assert search.list_oldest(2, ()) == search.list_oldest(2, range(1, 6)) == [4, 5]
    with pytest.raises(ExecutionError, match=r"3 checkpoints .* and 2 are there, .*; 5 were saved and `keep 2` has"):
        search.list_oldest(3, range(1, 6))
