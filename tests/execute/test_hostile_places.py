"""Whatever stands in the place of a file of ours, `prepare` and `restore` end soon, by success or with a word."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.checkpoints.restore import restore
from dliosim.execute.checkpoints.selection import CheckpointSearch
from dliosim.execute.datasets.open_dataset import measure_dataset_residency
from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.mpi.world import World
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.page_cache_residency import drop_caches
from dliosim.execute.store.manifest import NAME
from dliosim.model import (
    Access,
    Checkpoint,
    Dataset,
    Distribution,
    Job,
    Layout,
    Part,
    Prepare,
    Restore,
    Workload,
    Writers,
)
from dliosim.report.progress.progress_line import ProgressLine
from tests.examples import examples
from tests.execute.alone import world_of_one
from tests.execute.failing import failing

#: Seconds after which something hangs.
HANGS = 60

DATASET = Dataset("d", 1, 12, Distribution("constant", (100.0,)), Layout("files", 4, 2), "d")
CHECKPOINT = Checkpoint("c", 1, (Part("w", 5000, "total"),), Writers("file per rank"), Access(transfer=512), "c")
PREPARE = Prepare("d", Access())

#: What may stand in the place of something, made by a function of the place and of a directory elsewhere.
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "pipe": lambda path, _: os.mkfifo(path),
    "directory": lambda path, _: path.mkdir(),
    "socket": lambda path, _: bound(path),
    "link to itself": lambda path, _: path.symlink_to(path.name),
    "link out": lambda path, out: path.symlink_to(out),
    "link to a file out": lambda path, out: path.symlink_to(out / "file"),
    "dangling link": lambda path, out: path.symlink_to(out / "nothing"),
    "link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "empty file": lambda path, _: path.touch(),
    "nothing": lambda path, _: None,
}

OF_DATA = [
    "", NAME, f"{NAME}.partial",
    *map(DATASET.folder_name, range(2)),
    *map(DATASET.file_name, range(4)),
]  # fmt: skip
OF_CHECKPOINT = ["", "lock", "000002", "000003.partial", f"000002/{NAME}", "000002/000000.ckpt", "000001"]


def bound(path: Path) -> None:
    """A socket of that name, which may be longer than the system takes for one."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


@contextmanager
def soon() -> Iterator[None]:
    """A block that ends, or fails."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still not ended after {HANGS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def session(root: Path) -> Session:
    """A job of one rank."""
    workload = Workload("w", "", 1, Job(1), (DATASET,), (CHECKPOINT,), (PREPARE, Restore("c")))
    (root / "data").mkdir(exist_ok=True)
    world = world_of_one()
    return Session(workload, world, {"data": root / "data"}, Options(), ProgressLine(None))


def put(kind: str, path: Path, out: Path) -> None:
    """Have something else stand there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    KINDS[kind](path, out)


@contextmanager
def outside() -> Iterator[tuple[Path, Path]]:
    """A root, and a directory elsewhere that stays as it is."""
    with TemporaryDirectory() as made:
        out = Path(made, "out")
        out.mkdir()
        (out / "file").write_bytes(b"somebody's")
        yield Path(made), out
        assert [path.name for path in out.iterdir()] == ["file"]
        assert (out / "file").read_bytes() == b"somebody's"


@settings(max_examples=examples(60))
@given(kind=st.sampled_from([*KINDS]), place=st.sampled_from(OF_DATA), afresh=st.booleans())
def test_preparing_ends_whatever_stands_there(kind: str, place: str, afresh: bool) -> None:
    with outside() as (root, out), soon():
        own = session(root)
        prepare(own, PREPARE, DATASET)
        directory = own.directory("data", "d", DATASET.digest())
        put(kind, directory / place, out)
        try:
            prepare(session(root), replace(PREPARE, afresh=afresh), DATASET)
        except DliosimError as error:
            assert str(root) in error.message  # and so what is wrong
        else:
            assert directory.is_dir()
            assert not directory.is_symlink()
            drop_caches(session(root))


def test_caches_that_cannot_be_dropped_are_a_note_that_names_a_file() -> None:
    with outside() as (root, _):
        prepare(session(root), PREPARE, DATASET)
        assert not any("posix_fadvise" in note for note in drop_caches(session(root))[1])
        with failing("posix_fadvise", errno.EINVAL, DATASET.file_name(1)):
            record, notes = drop_caches(session(root))
    assert record.files == 4
    assert [note for note in notes if "posix_fadvise" in note and DATASET.file_name(1) in note]


@settings(max_examples=examples(60))
@given(kind=st.sampled_from([*KINDS]), place=st.sampled_from(OF_CHECKPOINT))
def test_restoring_and_saving_end_whatever_stands_there(kind: str, place: str) -> None:
    with outside() as (root, out), soon():
        own = session(root)
        with own.stores, CheckpointSession(own, [CHECKPOINT]) as saves:
            saves.save(CHECKPOINT)
            saves.save(CHECKPOINT)
        put(kind, own.save_directory(CHECKPOINT) / place, out)
        own = session(root)
        try:
            with own.stores:
                assert restore(own, CHECKPOINT, Restore("c"))[0].bytes == 5000
        except DliosimError as error:
            assert str(root) in error.message
        again = session(root)
        try:
            with again.stores, CheckpointSession(again, [CHECKPOINT]) as saves:
                saves.save(CHECKPOINT)
                assert restore(again, CHECKPOINT, Restore("c"))[0].bytes == 5000
        except DliosimError as error:
            assert str(root) in error.message


def test_a_manifest_without_files_is_of_no_checkpoint(tmp_path: Path) -> None:
    own = session(tmp_path)
    with CheckpointSession(own, [CHECKPOINT]) as saves:
        saves.save(CHECKPOINT)
        saves.save(CHECKPOINT)
    path = own.save_directory(CHECKPOINT) / "000002" / NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "files": {}}))
    notes = ("passed over 000002: has a manifest without files", "read 000001")
    assert restore(own, CHECKPOINT, Restore("c"))[1] == notes


def test_a_file_that_a_manifest_does_not_name_was_not_saved(tmp_path: Path) -> None:
    own = session(tmp_path)
    with CheckpointSession(own, [CHECKPOINT]) as saves:
        saves.save(CHECKPOINT)
        saves.save(CHECKPOINT)
    directory = own.save_directory(CHECKPOINT) / "000002"
    (directory / "other").touch()
    path = directory / NAME
    path.write_text(path.read_text().replace("000000.ckpt", "other").replace("5000", "0"))
    _, (note, read) = restore(own, CHECKPOINT, Restore("c"))
    assert note.startswith("passed over 000002: 000000.ckpt is not in the manifest (found after ")
    assert read == "read 000001"


@given(st.integers(0, DATASET.layout.files - 1), st.booleans())
def test_data_that_lost_a_file_while_they_were_written_are_not_said_to_be_whole(file: int, with_folder: bool) -> None:
    with outside() as (root, _):
        own = session(root)
        directory = own.directory("data", "d", DATASET.digest())
        gone = directory / DATASET.file_name(file)

        def remove() -> None:
            shutil.rmtree(gone.parent) if with_folder else gone.unlink()

        with mock.patch.object(World, "barrier", lambda world: remove()), pytest.raises(ExecutionError) as caught:
            prepare(own, PREPARE, DATASET)
        assert (caught.value.code, not (directory / NAME).exists()) == ("R401", True)
        assert str(gone.parent) in caught.value.message
        prepare(own, PREPARE, DATASET)
        assert (directory / NAME).exists()


def test_data_that_lost_an_index_while_they_were_written_are_not_said_to_be_whole(tmp_path: Path) -> None:
    dataset = replace(DATASET, format="indexed")
    own = session(tmp_path)
    own = replace(own, workload=replace(own.workload, datasets=(dataset,)))
    directory = own.directory("data", "d", dataset.digest())
    gone = (directory / dataset.file_name(2)).with_suffix(".idx")
    with mock.patch.object(World, "barrier", lambda world: gone.unlink()), pytest.raises(ExecutionError) as caught:
        prepare(own, PREPARE, dataset)
    assert (caught.value.code, not (directory / NAME).exists()) == ("R401", True)
    assert str(gone) in caught.value.message


@pytest.mark.parametrize("written", [False, True])
def test_data_with_a_file_that_cannot_be_looked_at_are_not_called_damaged(tmp_path: Path, written: bool) -> None:
    own = session(tmp_path)
    if written:
        prepare(own, PREPARE, DATASET)
    with failing("lstat" if not written else "stat", errno.EIO, r"\.raw$"), pytest.raises(ExecutionError) as caught:
        prepare(own, PREPARE, DATASET)
    assert caught.value.code == "R401"
    assert "nothing proves that it is damaged" in caught.value.message


@pytest.mark.parametrize("call", ["open", "pread"])
def test_data_whose_manifest_cannot_be_read_stay_as_they_are(tmp_path: Path, call: str) -> None:
    own = session(tmp_path)
    prepare(own, PREPARE, DATASET)
    files = sorted(own.directory("data", "d", DATASET.digest()).rglob("*.raw"))
    before = [path.stat() for path in files]
    with failing(call, errno.EIO, NAME), pytest.raises(ExecutionError, match="Input/output error: nothing") as caught:
        prepare(own, PREPARE, DATASET)
    assert caught.value.code == "R401"
    assert [path.stat() for path in files] == before


def test_what_cannot_be_measured_of_the_page_cache_is_noted_and_ends_nothing(tmp_path: Path) -> None:
    own = session(tmp_path)
    prepare(own, PREPARE, DATASET)
    with CheckpointSession(own, [CHECKPOINT]) as saves:
        saves.save(CHECKPOINT)
    with failing("fstat", errno.EIO, r"\.raw|ckpt$"):
        found = measure_dataset_residency(own, own.files(DATASET))
        record, (note, uncounted) = restore(own, CHECKPOINT, Restore("c"))
    assert found[:2] == (record.resident_bytes, record.examined_bytes) == (0, 0)
    for said, name in ((found.notes[0], "000000.raw"), (note, "000000.ckpt")):
        assert said.startswith("residency unknown: rank 0: ")
        assert said.endswith(f"{name}: Input/output error")
    assert uncounted.startswith("bytes from the device unknown: ")
    assert record.read_bytes == -1
    (own.directory("data", "d", DATASET.digest()) / DATASET.file_name(0)).unlink()
    with pytest.raises(ExecutionError, match="is damaged"):
        measure_dataset_residency(own, own.files(DATASET))


def test_no_rank_looks_for_a_checkpoint_below_a_link(tmp_path: Path) -> None:
    own = session(tmp_path)
    with CheckpointSession(own, [CHECKPOINT]) as saves:
        saves.save(CHECKPOINT)
    base = own.save_directory(CHECKPOINT)
    (base / "000001").rename(tmp_path / "out")
    (base / "000001").symlink_to(tmp_path / "out")
    with pytest.raises(DliosimError, match="000001 is a symbolic link") as caught:
        CheckpointSearch(own, CHECKPOINT, CHECKPOINT.split(1)).find()
    assert (caught.value.code, caught.value.exit_code) == ("E208", 2)
