"""ranks.h5 and timeline.h5 read back, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from dliosim.errors import UsageError
from dliosim.report.reader.arrays import MAX_NUMBERS
from dliosim.report.reader.load import LoopResult, SavedRun, load_results
from tests.pictures.sample import BATCH, SAMPLE, events, write_run


def loop_of(directory: Path) -> LoopResult:
    (found,) = load_results([str(directory)], with_arrays=True)
    assert isinstance(found, SavedRun)
    return found.loops[0]


def test_arrays_are_those_that_were_written(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=3, steps=8, epochs=5)
    loop = loop_of(tmp_path)
    assert loop.rank_times["compute_ns"].shape == (5, 3)
    assert [epoch.epoch for epoch in loop.timeline] == [1, 2, 3, 5]
    last, happened = loop.timeline[3], events(3, 8, cold=False, seed=4)
    np.testing.assert_array_equal(last.window_ns, happened.marks)
    np.testing.assert_array_equal(last.offsets, happened.offsets)
    assert last.bytes.sum() == 3 * 8 * BATCH * SAMPLE
    np.testing.assert_array_equal(last.compute_ns.sum(axis=1), loop.rank_times["compute_ns"][4])
    assert last.batch_latency[:, 1].sum() == 3 * 8


def test_ranks_without_one_of_the_parts_of_the_wall_time_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=3, steps=8, epochs=5)
    with h5py.File(tmp_path / "ranks.h5", "r+") as file:
        del file["0000/processing_ns"]
    with pytest.raises(UsageError, match="/0000/processing_ns is missing"):
        loop_of(tmp_path)


def test_bins_after_the_last_in_which_anything_happened_do_not_count(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=1, steps=4, epochs=1)
    epoch = loop_of(tmp_path).timeline[0]
    end = epoch.window_ns.max()
    assert (epoch.bin_count - 1) * epoch.bin_ns <= end <= epoch.bin_count * epoch.bin_ns


def _link(group: Any) -> None:
    del group["bytes"]
    group["bytes"] = h5py.ExternalLink("/etc/hostname", "/bytes")


def _virtual(group: Any) -> None:
    del group["bytes"]
    layout = h5py.VirtualLayout(shape=(2, 3), dtype="i8")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "bytes", shape=(2, 3))
    group.create_virtual_dataset("bytes", layout)


def _elsewhere(group: Any) -> None:
    del group["bytes"]
    group.create_dataset("bytes", (2, 3), "i8", external=[("/etc/hostname", 0, 48)])


def _replaced(name: str, values: Any) -> Callable[[Any], None]:
    def change(group: Any) -> None:
        del group[name]
        group[name] = values

    return change


def _huge(group: Any) -> None:
    del group["reads_ns"]
    # Takes no room: its chunks were never written.
    group.create_dataset("reads_ns", (MAX_NUMBERS, 4), "i8", chunks=(1024, 4))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_link, "/0000/0001/bytes is a link"),
        (_virtual, "bytes is not a data set of this file"),
        (_elsewhere, "bytes is not a data set of this file"),
        (_replaced("bytes", np.zeros((2, 3))), "bytes does not hold whole numbers"),
        (_replaced("bytes", np.zeros((3, 3), np.int64)), "bytes has the shape (3, 3), not (2, any)"),
        (_replaced("bytes", np.full((2, 100), -1)), "bytes holds numbers that are not between 0 and"),
        (_replaced("window_ns", np.full((2, 4, 6), -2)), "window_ns holds numbers that are not between -1 and"),
        (_replaced("reads_ns", np.full((2, 4), 2**53)), "reads_ns holds numbers that are not between 0 and"),
        (_replaced("offsets", np.full((2, 4), 2**64 - 1, np.uint64)), "offsets holds numbers that are not between 0"),
        (_replaced("ranks", np.array([0, 2])), "ranks holds numbers that are not between 0 and 1"),
        (_huge, f"reads_ns brings the numbers of the file above {MAX_NUMBERS}"),
        (lambda group: group.__delitem__("offsets"), "/0000/0001/offsets is missing"),
        (lambda group: group.attrs.__setitem__("bin_ns", 0), " bins of 0 ns"),
        (lambda group: group.attrs.__setitem__("bin_ns", "long"), "bin_ns is not an attribute with a whole number"),
        (
            lambda group: group.parent.attrs.__setitem__("name", "other"),
            "its loops are not those of results.json",
        ),
        (lambda group: group.parent.move("0001", "0009"), "0009 is not the number of an epoch; there are 1"),
        (
            lambda group: group.file.attrs.__setitem__("schema_version", 7),
            "schema_version is 7, and this dliosim reads 2",
        ),
    ],
)
def test_a_timeline_that_is_not_as_it_must_be_is_refused(
    tmp_path: Path, change: Callable[[Any], None], said: str
) -> None:
    write_run(tmp_path, ranks=2, steps=4, epochs=1)
    with h5py.File(tmp_path / "timeline.h5", "r+") as file:
        change(file["0000/0001"])
    with pytest.raises(UsageError) as found:
        loop_of(tmp_path)
    assert str(tmp_path / "timeline.h5") in str(found.value)
    assert said in str(found.value)


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=2, steps=4, epochs=1)
    path = tmp_path / "ranks.h5"
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(UsageError, match=r"ranks\.h5 cannot be read as HDF5"):
        loop_of(tmp_path)


def test_ranks_of_another_run_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a", ranks=2, steps=4, epochs=1)
    write_run(tmp_path / "b", ranks=3, steps=4, epochs=1)
    (tmp_path / "b" / "ranks.h5").replace(tmp_path / "a" / "ranks.h5")
    with pytest.raises(UsageError, match=r"ranks\.h5.*has the shape \(1, 3\), not \(1, 2\)"):
        loop_of(tmp_path / "a")


def test_without_pictures_no_array_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=2, steps=4, epochs=1)
    (tmp_path / "timeline.h5").write_bytes(b"broken")
    assert load_results([str(tmp_path)], with_arrays=False)
