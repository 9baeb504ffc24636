"""Existing files: which names match, what counts as a file, and the errors of bad files."""

from __future__ import annotations

import os
from dataclasses import replace
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.formats.contract_tests import write_framed
from dliosim.formats.megatron import Indexed
from dliosim.model import Dataset, FileSurvey, Layout, Shape, constant
from dliosim.model.dataset import UNKNOWN_SIZE
from dliosim.report.progress.progress_line import ProgressLine
from tests.formats.datasets import dataset


def described(source: str, form: str = "raw", shape: Shape | None = None, root: str = "data") -> Dataset:
    layout = Layout("shared file", 1)
    return Dataset("d", 1, 1, UNKNOWN_SIZE, layout, ".", root=root, format=form, shape=shape, source=source)


def finder_in(root: Path) -> FileFinder:
    return FileFinder({"data": root}, ProgressLine(None))


def names(root: Path, source: str) -> list[str]:
    finder = finder_in(root)
    return finder.sources[finder(described(source)).digest].names


def look(root: Path, source: str, form: str, shape: Shape | None = None) -> FileSurvey:
    return finder_in(root)(described(source, form, shape))


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")


def test_files_that_are_not_below_the_root_are_looked_for_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"= help: write `--dir DIR`"):
        names(tmp_path / "dliosim-data", "mydata/*.h5")
    touch(tmp_path, "mydata/a.h5")
    with pytest.raises(UsageError, match=r"= help: write `--dir \."):
        names(tmp_path / "dliosim-data", "mydata/*.h5")


def test_names_match_within_a_folder_and_stars_stand_for_folders(tmp_path: Path) -> None:
    touch(tmp_path, "b.dat", "a.dat", "a.txt", "x/c.dat", "x/y/d.dat", "z/y/e.dat")
    assert names(tmp_path, "*.dat") == ["a.dat", "b.dat"]
    assert names(tmp_path, "?/*.dat") == ["x/c.dat"]
    assert names(tmp_path, "**/*.dat") == ["a.dat", "b.dat", "x/c.dat", "x/y/d.dat", "z/y/e.dat"]
    assert names(tmp_path, "**/y/*") == ["x/y/d.dat", "z/y/e.dat"]
    assert names(tmp_path, "x/**/**/*.dat") == ["x/c.dat", "x/y/d.dat"]
    assert names(tmp_path, "[az]*") == ["a.dat", "a.txt"]


def test_names_may_hold_any_bytes(tmp_path: Path) -> None:
    odd = ["a b.dat", "é.dat", "new\nline.dat", "[1].dat", os.fsdecode(b"\xff.dat")]
    touch(tmp_path, *odd)
    assert names(tmp_path, "*.dat") == sorted(odd)


def test_folders_and_pipes_are_no_files(tmp_path: Path) -> None:
    touch(tmp_path, "data/a.dat")
    (tmp_path / "data/folder.dat").mkdir()
    os.mkfifo(tmp_path / "data/pipe.dat")
    assert names(tmp_path, "data/*.dat") == ["data/a.dat"]


def test_links_to_files_below_the_root_count_by_their_own_names(tmp_path: Path) -> None:
    touch(tmp_path, "x/blobs/1f", "x/blobs/2e", "other/a.dat")
    (tmp_path / "x/snapshots/abc").mkdir(parents=True)
    (tmp_path / "x/snapshots/abc/a.dat").symlink_to("../../blobs/2e")
    (tmp_path / "x/snapshots/abc/b.dat").symlink_to(tmp_path / "x/blobs/1f")
    assert names(tmp_path, "x/**/*.dat") == ["x/snapshots/abc/a.dat", "x/snapshots/abc/b.dat"]


def test_a_link_to_a_folder_is_followed_where_the_pattern_names_it(tmp_path: Path) -> None:
    touch(tmp_path, "v3/a.dat")
    (tmp_path / "current").symlink_to("v3")
    (tmp_path / "v3/again").symlink_to("..")
    assert names(tmp_path, "current/*.dat") == ["current/a.dat"]
    assert names(tmp_path, "*/*.dat") == ["current/a.dat", "v3/a.dat"]
    assert names(tmp_path, "**/*.dat") == ["v3/a.dat"]
    assert names(tmp_path, "v3/*/*/*.dat") == ["v3/again/current/a.dat", "v3/again/v3/a.dat"]


def test_a_root_that_is_a_link_is_where_it_leads(tmp_path: Path) -> None:
    touch(tmp_path, "real/blob")
    (tmp_path / "real/a.dat").symlink_to("blob")
    (tmp_path / "root").symlink_to("real")
    assert names(tmp_path / "root", "*.dat") == ["a.dat"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../outside/b.dat", "leads out of the root .*give a root that holds both"),
        ("absent", "No such file or directory .a symbolic link leads nowhere"),
        ("a.dat", "symbolic links lead in a circle"),
        ("folder", "leads to a directory"),
        ("pipe", "leads to no regular file"),
    ],
)
@pytest.mark.parametrize("form", ["raw", "npy"])
def test_a_link_that_leads_to_no_file_below_the_root_is_refused(
    tmp_path: Path, target: str, said: str, form: str
) -> None:
    root = tmp_path / "root"
    touch(tmp_path, "outside/b.dat")
    (root / "folder").mkdir(parents=True)
    os.mkfifo(root / "pipe")
    (root / "a.dat").symlink_to(target)
    with pytest.raises(ExecutionError, match=f"{root}/a.dat.*{said}") as raised:
        look(root, "*.dat", form)
    assert raised.value.code == "R401"


def test_what_stands_next_to_a_file_may_be_a_link_within_the_root_too(tmp_path: Path) -> None:
    root, tokens = tmp_path / "root", described("*.bin", "indexed", Shape((4,), "uint16"))
    blobs = root / "blobs"
    blobs.mkdir(parents=True)
    write_framed(Indexed(dataset("indexed", 10, shape=Shape((5,), "uint16"))), blobs / "t.bin", np.full(3, 10))
    (root / "t.bin").symlink_to("blobs/t.bin")
    (root / "t.idx").symlink_to("blobs/t.idx")
    assert finder_in(root)(tokens).files == 1
    (blobs / "t.idx").rename(tmp_path / "t.idx")
    (root / "t.idx").unlink()
    (root / "t.idx").symlink_to(tmp_path / "t.idx")
    with pytest.raises(ExecutionError, match=r"t.idx: a symbolic link leads out"):
        finder_in(root)(tokens)


LETTERS = st.sampled_from("abc")
LEAVES = st.sampled_from(["x.dat", "y.dat", "a", "b"])
TARGETS = st.sampled_from(["..", "../..", ".", "a", "b/a", "../b", "x.dat", "../x.dat", "a/y.dat", "OUT", "OUT/x.dat"])
STEPS = st.tuples(st.lists(LETTERS, max_size=2).map("/".join), LEAVES, st.none() | st.just("file") | TARGETS)


def grow(root: Path, steps: list[tuple[str, str, str | None]]) -> None:
    """Make a tree of folders, files and links; some links lead out of it, nowhere, or back."""
    outside = root.with_name("outside")
    touch(outside, "x.dat", "a/x.dat")
    for folder, leaf, target in steps:
        path = root / folder / leaf
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            inside = str(path.parent.resolve()).startswith(str(root))
            if inside and not os.path.lexists(path):
                if target is None:
                    path.mkdir()
                elif target == "file":
                    path.write_bytes(b"x")
                else:
                    path.symlink_to(target.replace("OUT", str(outside)))
        except (OSError, RuntimeError):
            continue  # a link stands where a folder should be


def judged(root: Path, pattern: str) -> tuple[list[str], bool]:
    """Names that match and are files, by `realpath`; and whether one of them, or on the way, is a link to refuse."""
    own, parts, names = os.path.realpath(root), pattern.split("/"), [""]
    if parts[0] == "**":
        parts, names = parts[1:], [f"{one}/".removeprefix(f"{root}/") for one, _, _ in os.walk(root)]
    refused = False
    for number, part in enumerate(parts, 1):
        last, matching = number == len(parts), []
        for name in names:
            matching += [f"{name}{one.name}" for one in (root / name).iterdir() if fnmatch(one.name, part)]
        names = []
        for name in matching:
            real = Path(os.path.realpath(root / name))
            bad = not real.is_relative_to(own) or not (real.is_file() if last else real.exists())
            refused |= (root / name).is_symlink() and bad
            if not bad and (last or real.is_dir()):
                names.append(name if last else f"{name}/")
    return sorted(set(names)), refused


@given(st.lists(STEPS, max_size=12), st.sampled_from(["*.dat", "*/*.dat", "**/*.dat", "a/*/*", "**/a/*", "?/?/?.dat"]))
def test_in_any_tree_of_links_files_below_the_root_are_found_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str | None]], pattern: str
) -> None:
    root = tmp_path_factory.mktemp("tree") / "root"
    root.mkdir()
    grow(root, steps)
    expected, refused = judged(root, pattern)
    if refused or not expected:
        with pytest.raises(ExecutionError if refused else UsageError) as raised:
            names(root, pattern)
        assert raised.value.code == ("R401" if refused else "E103")
        return
    finder = finder_in(root)
    source = finder.sources[finder(described(pattern, "raw")).digest]
    assert source.names == expected
    own = os.path.realpath(root)
    assert source.linked == [os.path.realpath(root / name) != f"{own}/{name}" for name in expected]


def test_who_reads_something_else_of_the_same_files_has_an_index_of_it(tmp_path: Path) -> None:
    for root, order in ("fast", "ab"), ("slow", "ba"):
        (tmp_path / root).mkdir()
        with h5py.File(tmp_path / root / "0.h5", "w") as file:
            for name in order:
                file[name] = np.arange(12, dtype="u4").reshape(4, 3)
    finder = FileFinder({root: tmp_path / root for root in ("fast", "slow")}, ProgressLine(None))
    offsets = set()
    for root in "fast", "slow":
        for name in "a", "b":
            asked = replace(described("*.h5", "hdf5", root=root), names=(name,))
            [index] = finder.sources[finder(asked).digest].indexes
            offsets.add((root, int(index.columns[0].offset[0])))
    assert len(offsets) == len(finder.sources) == 4


def test_no_match_is_an_error_that_names_the_pattern(tmp_path: Path) -> None:
    for source in ("none/*.dat", "*.dat"):
        with pytest.raises(UsageError, match=r"there is no file .*\*\.dat") as raised:
            names(tmp_path, source)
        assert (raised.value.code, raised.value.exit_code) == ("E103", 2)


def test_a_root_that_was_not_given_is_a_mistake_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--root fast=DIR") as raised:
        finder_in(tmp_path)(described("*", root="fast"))
    assert raised.value.code is None


def test_files_of_different_numbers_of_samples_are_counted_one_by_one(tmp_path: Path) -> None:
    for number, rows in enumerate([3, 9, 1]):
        np.save(tmp_path / f"{number}.npy", np.zeros((rows, 5), "i2"))
    found = look(tmp_path, "*.npy", "npy", Shape((5,), "int16"))
    assert (found.samples, found.files, found.size) == (13, 3, constant(10))
    assert found.counts is not None and found.counts.array.tolist() == [3, 9, 1]
    np.save(tmp_path / "1.npy", np.zeros((3, 5), "i2"))
    np.save(tmp_path / "2.npy", np.zeros((3, 5), "i2"))
    assert look(tmp_path, "*.npy", "npy", Shape((5,), "int16")).counts is None


def test_the_digest_is_one_of_names_sizes_and_counts(tmp_path: Path) -> None:
    touch(tmp_path, "a", "b")
    first = look(tmp_path, "*", "raw").digest
    assert look(tmp_path, "*", "raw").digest == first
    (tmp_path / "b").write_bytes(b"xy")
    assert look(tmp_path, "*", "raw").digest != first


def test_samples_have_a_constant_size_only_where_they_are_read_as_they_are(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["x"] = np.zeros((8, 4), "f4")
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((8, 4), "f4"), chunks=(4, 4), compression="gzip")
    with h5py.File(tmp_path / "absent.h5", "w") as file:
        file.create_dataset("x", (8, 4), "f4", chunks=(4, 4), fillvalue=1)[0] = 2
    assert look(tmp_path, "plain.h5", "hdf5").size == constant(16)
    assert not look(tmp_path, "packed.h5", "hdf5").size.is_constant
    assert not look(tmp_path, "absent.h5", "hdf5").size.is_constant


def test_an_empty_raw_file_is_an_empty_sample(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(b"xyz")
    finder = finder_in(tmp_path)
    found = finder(described("*"))
    assert found.samples == 2 and not found.size.is_constant
    assert [int(one.columns[0].length[0]) for one in finder.sources[found.digest].indexes] == [0, 3]


def test_what_a_format_says_of_a_damaged_file_is_said_once(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(50))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-3])
    with pytest.raises(ExecutionError, match="has 525 bytes") as raised:
        look(tmp_path, "*.npy", "npy")
    assert raised.value.message.count("a.npy") == 1 and "error[" not in raised.value.message


def test_of_several_wrong_files_the_first_is_said(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02d}.npy").write_bytes(b"no array" if number in (7, 9, 30) else _array())
    for _ in range(5):
        with pytest.raises(ExecutionError, match=r"07\.npy"):
            look(tmp_path, "*.npy", "npy")


@pytest.mark.parametrize("number", [1, 7, 3000])
def test_indexes_come_in_the_order_of_the_names(tmp_path: Path, number: int) -> None:
    for one in range(number):
        (tmp_path / f"{one:05d}").write_bytes(b"x" * (one % 97 + 1))
    finder = finder_in(tmp_path)
    source = finder.sources[finder(described("*")).digest]
    assert [index.size for index in source.indexes] == [one % 97 + 1 for one in range(number)]


def test_each_description_is_looked_at_once(tmp_path: Path) -> None:
    touch(tmp_path, "a")
    finder = finder_in(tmp_path)
    found = finder(described("*"))
    touch(tmp_path, "b")
    assert finder(described("*")) is found


def _array() -> bytes:
    stream = BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()
