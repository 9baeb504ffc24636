"""timeline.h5 of real runs: it has the same sums as ranks.h5, and what happened in the order in which it must."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dliosim.measure.rank.time_series import QUANTITIES
from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, Place, phases

# Everything that makes epochs uneven: readers, checkpoints in and after epochs, evaluations, requests, time that is up.
LOOPS = """
train {
    read     d
    batch    2 per rank
    epochs   6
    shuffle  samples globally each epoch
    last batch keep
    readers  2 by sample
    compute  1 ms
    cache    memory 20 kB
    checkpoint c every 3 steps
    checkpoint c every 2 epochs
    evaluate every 3 epochs {
        read    d
        batch   3 per rank
        api     mpi-collective
    }
}
infer {
    read     d
    batch    1 per rank
    requests 90 per rank every exponential(1 ms)
    sync     off
}
train short {
    read     d
    batch    1 per rank
    epochs   500
    readers  1
    compute  1 ms
    for      150 ms
}
"""

SUMS = {
    "bytes": "bytes",
    "data_wait_ns": "data_wait_ns",
    "io_busy_ns": "io_busy_ns",
    "compute_ns": "compute_ns",
    "sync_wait_ns": "sync_wait_ns",
    "checkpoint_ns": "checkpoint_ns",
    "steps": "steps",
}

Arrays = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Epoch:
    """An epoch of timeline.h5, and its columns (ranks) of ranks.h5."""

    loop: str
    number: int
    attributes: dict[str, Any]
    arrays: Arrays
    columns: Arrays


@dataclass(frozen=True)
class Made:
    ranks: int
    results: dict[str, Any]
    epochs: list[Epoch]


def read(place: Place) -> list[Epoch]:
    h5py = pytest.importorskip("h5py")
    found = []
    with h5py.File(place.output / "timeline.h5") as timeline, h5py.File(place.output / "ranks.h5") as ranks:
        assert timeline.attrs["schema_version"] == 2
        assert [*timeline] == [*ranks]
        for name, loop in timeline.items():
            assert dict(loop.attrs) == dict(ranks[name].attrs)
            for epoch, group in loop.items():
                assert all({*data.attrs} >= {"unit", "axes"} for data in group.values())
                assert {data.dtype.name for data in group.values()} == {"int64"}
                columns = {column: data[int(epoch) - 1] for column, data in ranks[name].items()}
                arrays = {one: data[:] for one, data in group.items()}
                found.append(Epoch(loop.attrs["name"], int(epoch), dict(group.attrs), arrays, columns))
    return found


@pytest.fixture(scope="module", params=[2, 3])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    place = Place(tmp_path_factory.mktemp(f"timeline{request.param}"))
    place.write(DATASET, CHECKPOINT, PREPARE, LOOPS)
    results = place.results(request.param)
    return Made(request.param, results, read(place))


def test_the_first_epochs_of_each_loop_are_there_and_the_last(made: Made) -> None:
    loops = {phase["name"]: len(phase["epochs"]) for phase in made.results["phases"] if phase["epochs"]}
    assert loops == {"train": 6, "evaluate": 2, "infer": 1, "short": loops["short"]}
    for name, count in loops.items():
        kept = [epoch.number for epoch in made.epochs if epoch.loop == name]
        assert kept == sorted({*range(1, min(count, 3) + 1), count})


def test_bins_have_the_sums_of_every_rank(made: Made) -> None:
    for epoch in made.epochs:
        assert epoch.arrays["ranks"].tolist() == [*range(made.ranks)]
        for name, column in SUMS.items():
            assert epoch.arrays[name].sum(axis=1).tolist() == epoch.columns[column].tolist(), (epoch, name)
        slowest = epoch.arrays["batch_latency_max_ns"].max(axis=1)
        assert slowest.tolist() == epoch.columns["batch_latency_max_ns"].tolist()
        assert epoch.attributes["steps"] == epoch.columns["steps"].max()


def test_an_epoch_fills_its_bins(made: Made) -> None:
    for epoch in made.epochs:
        bins = {epoch.arrays[name].shape[1] for name in QUANTITIES}
        assert len(bins) == 1 and 64 <= min(bins) <= 128
        # Making what a checkpoint holds is no part of the wall time, and its time goes by: but for that of a save after
        # the last step, behind which nothing is put into bins.
        wall, content = epoch.columns["wall_ns"], epoch.columns["content_ns"]
        # Reads that were ahead when the time was up end later than the epoch.
        assert epoch.attributes["bin_ns"] * min(bins) >= wall.max() - epoch.attributes["bin_ns"]
        assert epoch.loop == "short" or epoch.attributes["bin_ns"] * (min(bins) - 1) <= (wall + content).max()


def test_steps_go_forward_in_time(made: Made) -> None:
    for epoch in made.epochs:
        for window, steps in zip(epoch.arrays["window_ns"], epoch.columns["steps"].tolist(), strict=True):
            done = window[: min(steps, 64)]
            assert (window[len(done) :] == -1).all()
            assert done[0, 0] >= 0 and (np.diff(done.ravel()) >= 0).all()
            assert done[-1, -1] <= (epoch.columns["wall_ns"] + epoch.columns["content_ns"]).max()
            if steps <= 64:
                parts = {
                    name: (done[:, at + 1] - done[:, at]).sum() for name, at in (("data_wait_ns", 0), ("compute_ns", 2))
                }
                assert all(parts[name] in epoch.columns[name] for name in parts)


def test_reads_are_in_the_epoch_and_are_those_of_its_readers(made: Made) -> None:
    readers = {"train": {0, 1}, "evaluate": {0}, "infer": {0}, "short": {0}}
    for epoch in made.epochs:
        rank, reader, begin, end = epoch.arrays["reads_ns"].T
        assert {*rank.tolist()} == {*range(made.ranks)}
        assert {*reader.tolist()} <= readers[epoch.loop]
        assert (begin >= 0).all() and (end > begin).all()
        assert (begin < epoch.arrays["window_ns"][rank, :, -1].max(axis=1)).all()
        # Every call is in one of the runs, as no epoch has more than can be kept.
        if epoch.columns["steps"].max() <= 64 and epoch.loop in ("infer", "evaluate"):
            busy = [int((end - begin)[rank == one].sum()) for one in range(made.ranks)]
            assert busy == epoch.columns["io_busy_ns"].tolist()


def test_offsets_are_those_of_the_calls(made: Made) -> None:
    for epoch in made.epochs:
        rank, step, file, offset = epoch.arrays["offsets"].T
        assert (file == 0).all() and (offset >= 100).all()  # behind the header
        for one in range(made.ranks):
            steps = step[rank == one]
            assert (np.diff(steps) >= 0).all() and steps.max() < epoch.columns["steps"][one]
        if epoch.loop != "short":
            counts = [int((rank == one).sum()) for one in range(made.ranks)]
            collective = epoch.loop == "evaluate"
            assert collective or counts == epoch.columns["calls"].tolist()


def test_latencies_are_all_there(made: Made) -> None:
    for epoch in made.epochs:
        edge, count = epoch.arrays["batch_latency"].T
        assert count.sum() == epoch.columns["steps"].sum() and (count > 0).all() and (np.diff(edge) > 0).all()
        slowest = epoch.columns["batch_latency_max_ns"].max()
        assert slowest < edge[-1] <= slowest * 1.02 + 1
        edge, count = epoch.arrays["call_latency"].T
        assert count.sum() == epoch.columns["calls"].sum()


def test_without_io_there_are_steps_and_no_reads(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINT, PREPARE, LOOPS)
    place.results(2, "--null")
    for epoch in read(place):
        assert len(epoch.arrays["reads_ns"]) == len(epoch.arrays["offsets"]) == len(epoch.arrays["call_latency"]) == 0
        for name, column in SUMS.items():
            assert epoch.arrays[name].sum(axis=1).tolist() == epoch.columns[column].tolist()


def test_a_loop_beyond_the_first_ones_has_no_epochs(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, "repeat 9 {\ntrain {\nread d\nbatch 4 per rank\n}\n}\n")
    results = place.results(2, "--null")
    assert len(phases(results, "train")) == 9
    assert len(read(place)) == 8
