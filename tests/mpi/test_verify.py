"""`dliosim verify`: what is right passes, what is wrong is named with the remedy, the same on any number of ranks."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dliosim.commands.verify import find_targets
from dliosim.errors import ExecutionError
from dliosim.execute.run.verify import Fault, Tally, Target, verify_target
from dliosim.execute.safe_open import open_for_read
from dliosim.execute.store.checkpoint_store import CheckpointStores
from dliosim.execute.store.manifest import CheckpointManifest
from dliosim.formats.protocols import LibraryReadable
from dliosim.formats.registry import bind
from dliosim.model import Dataset, Split
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import checkpoint_faults, world_of_one
from tests.execute.failing import failing
from tests.mpi.jobs import CHECKPOINT, CLI, DATASET, PREPARE, Place, only_error
from tests.mpi.waiting import run_command

UNREAD = "nothing proves that it is damaged: see why it cannot be read, and verify it again"
SETS = {
    "d": "",
    "records": "samples 41\n size 3 kB\n layout 5 files in 2 folders\n format tfrecord",
    "tokens": "samples 41\n size 4 KiB\n layout shared file\n format indexed",
    "arrays": "samples 41\n shape 10 x 10 of float32\n layout 2 files\n format hdf5",
    "packed": "samples 41\n shape 10 x 10 of float32\n layout 2 files\n format hdf5\n chunk 4 samples\n compress gzip",
    "tables": "samples 41\n shape 10 x 10 of float32\n layout 2 files\n format parquet",
    "images": "samples 4\n size 30 kB\n layout file per sample\n format png",
    "owned": "samples 41\n shape 300 of float32\n layout file per rank\n format npz",
}
SHARED = (
    CHECKPOINT.replace("checkpoint c", "checkpoint s")
    .replace('"c"', '"s"')
    .replace("}", "    writers all ranks into shared file\n    parallel tensor 1 pipeline 1 data 2\n}")
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data sets and checkpoints of two ranks."""
    place = Place(tmp_path_factory.mktemp("made"))
    sets = [f'dataset {name} {{\n {text}\n path "{name}"\n}}\n' for name, text in SETS.items() if text]
    prepares = [f"prepare {name}\n" for name in SETS]
    place.write(DATASET, *sets, CHECKPOINT, SHARED, *prepares, "repeat 3 {\n save c\n}\n", "save s\n")
    done = place.run(2)
    assert done.returncode == 0, done.stderr
    return place.data


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(made, tmp_path / "data"))


def verify(place: Path, ranks: int = 1) -> subprocess.CompletedProcess[str]:
    return run_command(ranks, ["verify", str(place)], place.parent, 60)


def lines(place: Path, done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what was printed about what is not right, with `DATA` for the directory, and the verdict."""
    assert done.stderr == ""
    text = re.sub(r"[0-9a-f]{16}", "DIGEST", done.stdout.replace(str(place), "DATA"))
    text = text.replace("filter returned failure during read", "filter failed")
    text = re.sub(r"CRC-32 \S+, not \S+", "CRC-32 X, not Y", re.sub(r" in [\d.]+ [mu]?s:", ":", text))
    return [line for line in text.splitlines() if not line.startswith("ok ")]


def flip(path: Path, at: int | None = None) -> None:
    """Change one bit."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_what_was_written_is_right(made: Path, ranks: int) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()}
    done = verify(made, ranks)
    assert done.returncode == 0, done.stdout
    [verdict] = lines(made, done)
    assert verdict == "8 data sets and 4 checkpoints, 32 files, 1.988 MB: all are right"
    assert sum(line.startswith("ok ") for line in done.stdout.splitlines()) == 12
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()} == before


def test_the_lock_on_a_copy_that_a_job_reads_is_no_surplus(data: Path) -> None:
    bases = [data / path for path in ("d", "records")]
    with CheckpointStores() as job:
        for base in bases:
            (directory,) = base.iterdir()
            job.lock_copy(directory, writes=False)
            assert (directory / "lock").exists()
        done = verify(data)
    assert (done.returncode, lines(data, done)[1:]) == (0, []), done.stdout


DAMAGES: dict[str, Callable[[Path], None]] = {
    "d/*/000000000.raw": lambda path: flip(path, 77),
    "records/*/0001/000000003.tfrecord": lambda path: flip(path, 12),
    "records/*/0000/000000002.tfrecord": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "records/*/0000/000000004.tfrecord": Path.unlink,
    "records/*/0001": lambda path: (path / "000000005.tfrecord").touch(),
    "tokens/*/000000000.idx": flip,
    "tokens/*/000000000.bin": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "arrays/*/000000001.hdf5": lambda path: flip(path, path.stat().st_size - 5),
    "packed/*/000000000.hdf5": flip,
    "tables/*/000000001.parquet": flip,
    "images/*/000000002.png": lambda path: path.symlink_to(path.rename(path.parents[3] / "moved")),
    "owned/*/000000001.npz": flip,
    "c/*/000001/000000.ckpt": flip,
    "c/*/000002/000001.ckpt": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "c/*/000003/manifest.json": Path.unlink,
    "s/*/000001/000000.ckpt": flip,
}

EXPECTED = """\
wrong  DATA/arrays/DIGEST: data set `arrays`, 2 files, 20.50 kB
       000000001.hdf5 byte 10043 is 0x44, not 0x40
       = help: `rm -r DATA/arrays/DIGEST`, then the next `prepare arrays` writes it again
wrong  DATA/c/DIGEST/000001: checkpoint `c`, 2 files, 302.0 kB
       000000.ckpt has CRC-32 X, not Y
       = help: restores pass over it; `rm -r DATA/c/DIGEST/000001` removes it
wrong  DATA/c/DIGEST/000002: checkpoint `c`, 1 file, 151.0 kB
       000001.ckpt has 151000 bytes, not 151001
       = help: restores pass over it; `rm -r DATA/c/DIGEST/000002` removes it
note   DATA/c/DIGEST/000003: checkpoint was never finished
       = help: it does not count, and the next save removes it
wrong  DATA/d/DIGEST: data set `d`, 1 file, 251.0 kB
       000000000.raw byte 77 is 0x04, not 0x00
       = help: `rm -r DATA/d/DIGEST`, then the next `prepare d` writes it again
wrong  DATA/images/DIGEST: data set `images`, 3 files, 90.00 kB
       000000002.png is a symbolic link, not a file
       = help: `rm -r DATA/images/DIGEST`, then the next `prepare images` writes it again
wrong  DATA/owned/DIGEST: data set `owned`, 2 files, 49.71 kB
       000000001.npz byte 12128 is 0x47, not 0x43
       = help: `rm -r DATA/owned/DIGEST`, then the next `prepare owned` writes it again
wrong  DATA/packed/DIGEST: data set `packed`, 2 files, 25.62 kB
       000000000.hdf5 cannot be read: HDF5 cannot read samples 4 to 7: Can't synchronously read data (filter failed)
       = help: `rm -r DATA/packed/DIGEST`, then the next `prepare packed` writes it again
wrong  DATA/records/DIGEST: data set `records`, 9 files, 101.9 kB
       0000/000000002.tfrecord has 24599 bytes, not 24600
       0000/000000004.tfrecord is missing
       0001/000000003.tfrecord byte 12 is 0x0e, not 0x0a
       0001/000000005.tfrecord does not belong there
       = help: `rm -r DATA/records/DIGEST`, then the next `prepare records` writes it again
       = help: move away what does not belong there: no loop and no restore reads it
wrong  DATA/s/DIGEST/000001: checkpoint `s`, 1 file, 302.0 kB
       000000.ckpt has CRC-32 X, not Y
       = help: restores pass over it; `rm -r DATA/s/DIGEST/000001` removes it
wrong  DATA/tables/DIGEST: data set `tables`, 2 files, 17.61 kB
       000000001.parquet has another sample 31 than was prepared
       = help: `rm -r DATA/tables/DIGEST`, then the next `prepare tables` writes it again
wrong  DATA/tokens/DIGEST: data set `tokens`, 1 file, 167.9 kB
       000000000.bin has 167860 bytes, not 167856
       000000000.idx byte 431 is 0xdc, not 0xd8
       = help: `rm -r DATA/tokens/DIGEST`, then the next `prepare tokens` writes it again
8 data sets and 3 checkpoints, 26 files, 1.479 MB: 11 are wrong
""".splitlines()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_all_that_is_wrong_is_named_with_its_remedy(data: Path, ranks: int) -> None:
    for pattern, damage in DAMAGES.items():
        [path] = data.glob(pattern)
        damage(path)
    done = verify(data, ranks)
    assert done.returncode == 1
    assert lines(data, done) == EXPECTED


def test_one_data_set_and_one_checkpoint_can_be_named(data: Path) -> None:
    [records], [second] = data.glob("records/*"), data.glob("c/*/000002")
    for place, verdict in (
        (records, "1 data set and 0 checkpoints, 10 files, 126.5 kB: all are right"),
        (records.parent, "1 data set and 0 checkpoints, 10 files, 126.5 kB: all are right"),
        (second, "0 data sets and 1 checkpoint, 2 files, 302.0 kB: all are right"),
        (second.parent, "0 data sets and 3 checkpoints, 6 files, 906.0 kB: all are right"),
    ):
        done = verify(place, 2)
        assert (done.returncode, lines(place, done)) == (0, [verdict])
        assert not list(data.rglob("lock"))


def test_what_was_never_finished_is_noted_and_a_data_set_of_it_is_wrong(data: Path) -> None:
    [base], [records] = data.glob("c/*"), data.glob("records/*")
    (base / "000003").rename(base / "000003.partial")
    done = verify(base)
    assert done.returncode == 0
    assert lines(base, done) == [
        "note   DATA/000003.partial: checkpoint was never finished",
        "       = help: it does not count, and the next save removes it",
        "0 data sets and 2 checkpoints, 4 files, 604.0 kB: all are right",
    ]
    done = verify(base / "000003.partial")
    assert (done.returncode, "checkpoint was never finished" in done.stdout) == (1, True)
    (records / "manifest.json").unlink()
    done = verify(records, 2)
    assert done.returncode == 1
    assert lines(records, done) == [
        "wrong  DATA: data set was never finished",
        f"       = help: {UNREAD}",
        "1 data set and 0 checkpoints, 0 files, 0 B: 1 is wrong",
    ]


def _change(manifest: Path, **more: object) -> None:
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **more}, indent=1))


@pytest.mark.parametrize(
    ("harm", "fault", "proves"),
    [
        (lambda path: path.write_text("["), "has something else where it should have its manifest.json", True),
        (
            lambda path: path.write_text("[" * 100_000),
            "has something else where it should have its manifest.json",
            True,
        ),
        (
            lambda path: _change(path, digest="0" * 16),
            "has something else where it should have its manifest.json",
            True,
        ),
        (lambda path: _change(path, pattern=[]), "has no description in its manifest.json", False),
        (lambda path: _change(path, pattern=[1]), "has no description in its manifest.json", False),
        (
            lambda path: _change(path, pattern=["dlio 1", "workload w", "barrier"]),
            "has the description of other data in its manifest.json",
            True,
        ),
        (lambda path: _change(path, pattern=["nonsense"]), "in its manifest.json that is refused: ", False),
        (lambda path: _change(path, pattern=["\ud800"]), "in its manifest.json that is refused: ", False),
        (lambda path: _change(path, bytes=True), "has the description of other data in its manifest.json", True),
    ],
)
def test_a_manifest_that_describes_no_such_data_set_is_wrong(
    data: Path, harm: Callable[[Path], None], fault: str, proves: bool
) -> None:
    [manifest] = data.glob("arrays/*/manifest.json")
    harm(manifest)
    done = verify(manifest.parent, 2)
    assert done.returncode == 1
    assert fault in lines(manifest.parent, done)[0]
    assert ("rm -r" in done.stdout, UNREAD in done.stdout) == (proves, not proves)


def test_data_of_a_format_whose_library_is_missing_may_be_right(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dliosim.formats.parquet.format.find_spec", lambda name: None)
    with CheckpointStores() as stores:
        [target] = find_targets(data / "tables", stores)
    assert target.fault is not None
    assert "format `parquet` is not available here" in target.fault.why
    assert target.fault.kind == "unread"


def test_a_description_is_read_in_any_locale(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET.replace('path     "d"', 'path     "d\u00e4"'), PREPARE)
    assert place.run(1).returncode == 0
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", *CLI, "verify", str(place.data)],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_bytes_of_files_that_a_library_made_are_those_of_the_manifest(data: Path) -> None:
    [manifest] = data.glob("packed/*/manifest.json")
    _change(manifest, bytes=7)
    done = verify(manifest.parent, 2)
    assert done.returncode == 1
    assert "manifest.json says that all files have 7 bytes, and they have 256" in done.stdout


def test_a_file_without_an_index_is_wrong_on_all_ranks(data: Path) -> None:
    [file] = data.glob("arrays/*/000000001.hdf5")
    file.write_bytes(b"no HDF5 file")
    done = verify(file.parent, 3)
    assert done.returncode == 1
    assert re.search(r"data set `arrays` .*000000001\.hdf5", lines(file.parent, done)[0])


def test_a_manifest_with_paths_that_lead_out_is_not_followed(data: Path) -> None:
    [manifest] = data.glob("c/*/000001/manifest.json")
    _change(manifest, files={"../000002/000000.ckpt": [1, 2]})
    done = verify(manifest.parent)
    assert done.returncode == 1
    assert "checkpoint has a manifest with invalid file entries" in done.stdout


def test_sizes_beyond_all_storage_are_no_memory(data: Path) -> None:
    [manifest] = data.glob("c/*/000001/manifest.json")
    _change(manifest, files={"000000.ckpt": [(1 << 63) - 1, 2], "000001.ckpt": [0, 0]})
    done = verify(manifest.parent, 2)
    assert done.returncode == 1
    assert f"000000.ckpt has 151001 bytes, not {(1 << 63) - 1}" in done.stdout


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_sums_are_made_in_blocks_of_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("dliosim.execute.run.verify._PIECE", 1000)
    monkeypatch.setattr("dliosim.execute.run.verify._PIECES", most)
    contents = {f"{number:06d}.ckpt": os.urandom(size) for number, size in enumerate((2500, 0, 1000, 6100, 1))}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "manifest.json").touch()
    files = {name: (len(content), zlib.crc32(content)) for name, content in contents.items()}
    saved = CheckpointManifest("c", "", "rename", 1, Split(1, 1, 1, 1), files)
    target = Target(tmp_path, "checkpoint", saved)

    def faults() -> dict[str, str]:
        found = verify_target(world_of_one(), ProgressLine(None), target)
        return {name: fault.why for name, fault in found.faults.items()}

    assert faults() == {}
    flip(tmp_path / "000003.ckpt", 6050)
    with failing("preadv", errno.EIO, "000000"):
        found = faults()
    assert found.keys() == {"000000.ckpt", "000003.ckpt"}
    assert found["000000.ckpt"] == "cannot be read: Input/output error"
    assert "has CRC-32" in found["000003.ckpt"]


def test_a_sparse_file_beyond_all_storage_takes_no_memory() -> None:
    with TemporaryDirectory(dir="/dev/shm") as place:  # on tmpfs a file may be that large
        directory, size = Path(place), 1 << 60
        with (directory / "000000.ckpt").open("wb") as file:
            file.truncate(size)
        (directory / "manifest.json").touch()
        saved = CheckpointManifest("c", "", "rename", 1, Split(1, 1, 1, 1), {"000000.ckpt": (size, 2)})
        with failing("preadv", errno.EIO, "000000"):
            found = verify_target(world_of_one(), ProgressLine(None), Target(directory, "checkpoint", saved))
    assert found.faults == {"000000.ckpt": Fault("cannot be read: Input/output error", "unread")}


def test_a_file_name_prints_no_line_of_its_own(data: Path) -> None:
    [base] = data.glob("d/*")
    (base / "x\nok     forged").touch()
    done = verify(base)
    assert "\nok     forged" not in done.stdout
    assert "x\ufffdok     forged does not belong there" in done.stdout
    place = base.parent.rename(data / "e\nok     forged")
    done = verify(data)
    assert "\nok     forged" not in done.stdout
    assert place.name.replace("\n", "\ufffd") in done.stdout


def test_a_directory_of_checkpoints_is_locked_no_longer_than_it_is_verified(data: Path) -> None:
    [first], [second] = data.glob("c/*"), data.glob("s/*")
    with CheckpointStores() as stores, CheckpointStores() as others:
        targets = find_targets(data, stores)
        assert next(target for target in targets if target.directory.parent == first)
        with pytest.raises(ExecutionError, match="another job reads from it"):
            others.open_to_save(first)
        assert next(target for target in targets if target.directory.parent == second)
        others.open_to_save(first)


def test_a_save_that_was_interrupted_is_a_note_with_each_way_to_commit(data: Path) -> None:
    [base] = data.glob("c/*")
    (base / "000002" / "manifest.json").unlink()
    manifest = base / "000003" / "manifest.json"
    manifest.write_text(manifest.read_text()[:-5])
    done = verify(base)
    assert done.returncode == 0
    assert lines(base, done) == [
        "note   DATA/000002: checkpoint was never finished",
        "       = help: it does not count, and the next save removes it",
        "note   DATA/000003: checkpoint was never finished",
        "       = help: it does not count, and the next save removes it",
        "0 data sets and 1 checkpoint, 2 files, 302.0 kB: all are right",
    ]
    manifest.write_text("other\n}")
    done = verify(base)
    assert done.returncode == 1
    assert "DATA/000003: checkpoint has no manifest that can be read" in "\n".join(lines(base, done))


def test_links_and_data_of_others_are_passed_over(data: Path, tmp_path: Path) -> None:
    [base] = data.glob("c/*")
    place = tmp_path / "place"
    (place / "theirs").mkdir(parents=True)
    (place / "theirs" / "manifest.json").write_text("{}")
    (place / base.name).symlink_to(base)
    assert "there is no data set or checkpoint of dliosim" in only_error(verify(place), 2)
    (place / "linked").symlink_to(base)
    done = verify(place / "linked")
    assert (done.returncode, len(lines(base, done))) == (0, 1)


def test_a_link_in_the_place_of_a_checkpoint_is_wrong(data: Path) -> None:
    [base] = data.glob("c/*")
    (base / "000004").symlink_to(base / "000003")
    done = verify(base)
    assert done.returncode == 1
    assert "DATA/000004: checkpoint DATA/000004 is a symbolic link" in lines(base, done)[0]


def test_checkpoints_that_another_job_saves_are_not_read(data: Path) -> None:
    [base] = data.glob("c/*")
    with CheckpointStores() as stores:
        stores.open_to_save(base)
        done = verify(data / "c", 2)
    assert done.returncode == 1
    assert "another job writes to it" in lines(base, done)[0]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_directory_that_is_not_there_is_one_error(tmp_path: Path, ranks: int) -> None:
    assert only_error(verify(tmp_path / "nowhere", ranks), 2).endswith("nowhere: there is no such directory")


def test_what_cannot_be_read_may_be_right(data: Path) -> None:
    """A file that the system cannot read is no damage, and nothing is to be removed for it."""
    [path] = data.glob("c/*/000001/000000.ckpt")
    with failing("preadv", errno.EIO, path.name):
        found = checkpoint_faults(path.parent)
    assert found == ["000000.ckpt cannot be read: Input/output error"]


@pytest.mark.parametrize(("call", "number"), [("listdir", errno.EIO), ("open", errno.EMFILE)])
def test_a_folder_that_cannot_be_listed_may_be_right(tmp_path: Path, call: str, number: int) -> None:
    tally = Tally()
    with failing(call, number, f"{tmp_path.name}$"):
        tally.find_surplus(tmp_path, "", lambda name: True)
    assert tally.faults == {".": Fault(os.strerror(number), "unread")}
    tally.find_surplus(tmp_path, "gone", lambda name: True)
    assert tally.faults["gone"].kind == "damaged"


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, "unread"), (errno.EMFILE, "unread"), (errno.ENOENT, "damaged"), (None, "damaged")]
)
def test_what_a_library_could_not_read_is_damaged_only_if_no_call_failed(number: int | None, kind: str) -> None:
    tally = Tally()
    with tally.catch_errors(Path("place"), "file"):
        try:
            raise OSError(number, "it failed") if number else OSError("filter returned failure")
        except OSError as error:
            raise ExecutionError("HDF5 cannot read samples 0 to 3", "R401") from error
    assert tally.faults["file"].kind == kind


def test_a_read_that_fails_within_hdf5_proves_no_damage(data: Path) -> None:
    [path] = data.glob("packed/*/000000000.hdf5")
    dataset = next(find_targets(path.parent, CheckpointStores())).made
    assert isinstance(dataset, Dataset)
    form, tally = bind(dataset), Tally()
    assert isinstance(form, LibraryReadable)
    with closing(form.open_library(path, None, False)) as file, tally.catch_errors(path.parent, path.name):
        [descriptor] = [int(one.name) for one in Path("/proc/self/fd").iterdir() if os.path.realpath(one) == str(path)]
        with open_for_read("/proc/self/mem") as failing_file:  # reads at small offsets of it are EIO
            os.dup2(failing_file, descriptor)
        file.read(0, 1, memoryview(bytearray(400)))
    assert "Input/output error" in tally.faults[path.name].why
    assert tally.faults[path.name].kind == "unread"


@pytest.mark.parametrize("name", ["packed", "arrays", "tables"])
def test_an_index_that_cannot_be_read_proves_no_damage(data: Path, name: str) -> None:
    [target] = find_targets(data / name, CheckpointStores())
    with failing("preadv", errno.EIO, "000000001"), failing("pread", errno.EIO, "000000001"):
        found = verify_target(world_of_one(), ProgressLine(None), target)
    assert "Input/output error" in found.faults["."].why
    assert found.faults["."].kind == "unread"
