"""Data that are missing, damaged, foreign or elsewhere: one message that names rank, file and call."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, only_error
from tests.mpi.launch import run_ranks

MANY = {"d.layout": "file per sample"}
APIS = ["posix", "mpi-independent", "mpi-collective"]


def prepared(tmp_path: Path, define: dict[str, str] | None = None, ranks: int = 1) -> Place:
    """Data of the one data set, and a pattern that only trains over them."""
    place = Place(tmp_path)
    place.write(DATASET, PREPARE)
    done = place.run(ranks, define=define)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(place.output)
    place.write(DATASET, TRAIN)
    return place


def test_data_that_were_not_prepared(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, TRAIN)
    error = only_error(place.run(2))
    assert error.startswith("error[R401]: data set `d` has not been prepared in ")
    assert error.endswith("put `prepare d` in front")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("sync", ["barrier", "off"])
def test_a_file_cut_short_while_ranks_read_it(api: str, sync: str, tmp_path: Path) -> None:
    place = prepared(tmp_path)
    [file] = place.files()
    os.truncate(file, file.stat().st_size - 3000)
    error = only_error(place.run(2, define={"train.api": api, "train.sync": sync}, seconds=30))
    call = {"posix": "preadv", "mpi-independent": "MPI_File_read_at", "mpi-collective": "MPI_File_read_at_all"}[api]
    assert error.startswith(("error[R401]: rank 0: ", "error[R401]: rank 1: "))
    assert f": {call} of " in error
    assert str(file) in error
    assert "shorter than planned" in error


@pytest.mark.parametrize("define", [{"train.readers": "2"}, {"train.readers": "2 by sample"}], ids=str)
def test_a_file_cut_short_while_threads_read_ahead(define: dict[str, str], tmp_path: Path) -> None:
    place = prepared(tmp_path)
    [file] = place.files()
    os.truncate(file, 3000)
    assert str(file) in only_error(place.run(3, define=define, seconds=30))


@pytest.mark.parametrize("api", APIS)
def test_bytes_that_are_not_what_was_prepared(api: str, tmp_path: Path) -> None:
    place = prepared(tmp_path)
    [file] = place.files()
    file.write_bytes(b"\0" * file.stat().st_size)
    error = only_error(place.run(2, define={"train.api": api}, seconds=30))
    assert error.startswith(("error[R401]: rank 0: sample ", "error[R401]: rank 1: sample "))
    assert file.name in error
    assert error.endswith("is not what was prepared; `prepare d afresh` writes it again")


def test_one_flipped_byte_is_found_by_verify_alone(tmp_path: Path) -> None:
    place = prepared(tmp_path)
    [file] = place.files()
    data = bytearray(file.read_bytes())
    data[100 + 1500] ^= 1  # in the middle of sample 0, which begins behind the header
    file.write_bytes(data)
    every = {"train.last batch": "keep"}
    assert place.run(2, define=every).returncode == 0
    error = only_error(place.run(2, "--verify", define=every))
    assert ": sample 0 of data set `d`, bytes [100, " in error
    assert f"{file}" in error


def remove(file: Path) -> None:
    file.unlink()


def make_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def make_link(file: Path) -> None:
    moved = file.with_suffix(".moved")
    file.rename(moved)
    file.symlink_to(moved)


@pytest.mark.parametrize("spoil", [remove, make_directory, make_link])
def test_something_else_in_the_place_of_a_file(spoil: object, tmp_path: Path) -> None:
    place = prepared(tmp_path, MANY)
    file = place.files()[17]
    spoil(file)  # type: ignore[operator]
    error = only_error(place.run(3, define=MANY, seconds=30))
    assert error.startswith("error[R401]: rank ")
    assert str(file) in error
    assert "Device" not in error


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    place = prepared(tmp_path, MANY)
    place.files()[17].chmod(0)
    error = only_error(place.run(2, define=MANY))
    assert str(place.files()[17]) in error
    assert "Permission denied" in error


def test_kept_data_are_looked_at_before_they_are_believed(tmp_path: Path) -> None:
    place = prepared(tmp_path, MANY)
    file = place.files()[0]
    os.truncate(file, 10)
    place.write(DATASET, PREPARE, TRAIN)
    error = only_error(place.run(2, define=MANY))
    assert error.startswith("error[R401]: ")
    assert f"{file} has 10 bytes, not " in error
    assert "`prepare d afresh`" in error


def test_a_manifest_that_is_no_manifest_counts_for_nothing(tmp_path: Path) -> None:
    place = prepared(tmp_path)
    manifest = place.files("d/*/manifest.json")[0]
    manifest.write_bytes(b"{" * 100_000)
    assert "has something else where it should have its manifest.json in" in only_error(place.run(2))


def test_files_per_rank_of_another_number_of_ranks(tmp_path: Path) -> None:
    place = prepared(tmp_path, {"d.layout": "file per rank"}, ranks=3)
    error = only_error(place.run(2, define={"d.layout": "file per rank"}))
    assert error.startswith("error[R401]: data set `d` was prepared by 3 ranks")
    assert "say `prepared by 3 ranks`" in error
    assert place.run(2, define={"d.layout": "file per rank", "d.prepared by": "3 ranks"}).returncode == 0


def test_a_path_that_leads_out_of_its_root_by_a_link(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE)
    outside = tmp_path / "outside"
    outside.mkdir()
    place.data.mkdir()
    (place.data / "d").symlink_to(outside)
    error = only_error(place.run(2), status=2)
    assert error.startswith("error[E208]: `d/")
    assert str(outside) in error
    assert not list(outside.iterdir())


def test_a_folder_that_leads_out_of_its_root_by_a_link(tmp_path: Path) -> None:
    folders = {"d.layout": "4 files in 2 folders"}
    place = prepared(tmp_path, folders)
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = place.files("d/*/0001")[0]
    shutil.rmtree(folder)
    folder.symlink_to(outside)
    place.write(DATASET, "prepare d afresh\n")
    error = only_error(place.run(2, define=folders), status=2)
    assert error.startswith("error[E208]: ")
    assert str(folder) in error
    assert not list(outside.iterdir())


def test_a_checkpoint_that_was_changed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    checkpoint = 'checkpoint c {\n    part weights 300 kB total\n    path "c"\n}\n'
    place.write(checkpoint, "save c\n")
    assert place.run(2).returncode == 0
    [file] = place.files("c/*/000001/000001.ckpt")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    place.write(checkpoint, "restore c\n")
    error = only_error(place.run(2))
    assert error.startswith("error[R404]: no complete checkpoint of `c` in ")
    assert "000001: 000001.ckpt differs from what was saved, at byte 149999" in error
    os.truncate(file, 10)
    error = only_error(place.run(2))
    assert error.startswith("error[R404]: no complete checkpoint of `c` in ")
    assert "000001: 000001.ckpt has 10 bytes, not 150000" in error


#: Ranks open a file together, and one may open no more files; each prints its error.
_OPENING = """\
import os, resource, sys
from contextlib import suppress
from mpi4py import MPI
from dliosim.errors import ExecutionError
from dliosim.execute.backends.mpiio_files import close_file, open_file

comm, path, poor, taken = MPI.COMM_WORLD, sys.argv[1], int(sys.argv[2]), []
close_file(open_file(comm, path, MPI.MODE_RDONLY, ()), path)
if comm.rank == poor:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    with suppress(OSError):
        while True:
            taken.append(os.dup(0))
try:
    open_file(comm, path, MPI.MODE_RDONLY, ())
except ExecutionError as error:
    for descriptor in taken:
        os.close(descriptor)
    heard = comm.gather((error.shared, error.message))
    if comm.rank == 0:
        print(*{said for said in heard})
"""


@pytest.mark.not_under("Open MPI", reason="OMPIO waits for ever in an open that fails on one rank")
@pytest.mark.parametrize(("ranks", "poor"), [(2, 1), (3, 2), (3, 0)])
def test_an_open_of_all_ranks_that_fails_on_one_says_why_and_on_which(tmp_path: Path, ranks: int, poor: int) -> None:
    (tmp_path / "file").write_bytes(b"some")
    done = run_ranks(ranks, "-c", _OPENING, str(tmp_path / "file"), str(poor), seconds=30)
    assert done.returncode == 0, done.stderr
    assert f"(True, 'rank {poor} of the {ranks} that open it: MPI_File_open failed on {tmp_path}/file: " in done.stdout
    assert done.stdout.count("rank ") == 1 and "Too many open files" in done.stdout
