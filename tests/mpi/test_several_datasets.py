"""Loops over several data sets: a sample of each, and mixtures, on any number of ranks and however they are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Loop
from dliosim.model.counter_rng import key
from dliosim.plan.samples.sample_to_file import sample_sizes
from dliosim.plan.samples.sampler import order_hash, plan_epoch
from tests.mpi.jobs import Place, phases
from tests.plan.helpers import placed

DATASETS = """
dataset images {
    samples  41
    size     uniform(3000 B, 9000 B)
    path     "images"
}
dataset labels {
    samples  41
    size     10 B
    layout   2 files
    path     "labels"
}
dataset text {
    samples  17
    size     700 B
    format   npy
    layout   shared file
    path     "text"
}
dataset units {
    samples  41
    shape    5 x 9 of int16
    format   hdf5
    chunk    3 samples
    compress gzip 1
    compressible 2 : 1
    layout   2 files
    path     "units"
}
"""
PREPARE = "prepare images\nprepare labels\nprepare text\nprepare units\n"
TRAIN = """
train {{
    read     {}
    batch    3 per rank
    epochs   2
    shuffle  samples globally each epoch
    last batch keep
}}
"""
PAIRS, MIXTURE, REPEATED = "images, labels", "images 70 %, text 30 %", "images 70 %, text 30 %, until all end"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Data that are written once, and then read by every test."""
    made = Place(tmp_path_factory.mktemp("several"))
    made.write(DATASETS, PREPARE)
    made.results(2)
    return made


def read(place: Place, ranks: int, sources: str, **define: str) -> dict[str, Any]:
    """The loop of a run that checks each byte."""
    place.write(DATASETS, PREPARE, TRAIN.format(sources))
    return place.results(ranks, "--verify", define={f"train.{name}": value for name, value in define.items()})


def planned(place: Place, ranks: int, sources: str) -> list[dict[str, tuple[int, int, str]]]:
    """Samples, bytes and order hash of each data set in each epoch, from the plans of all ranks."""
    workload, _ = compile_pattern(place.write(DATASETS, PREPARE, TRAIN.format(sources)), [], Job(ranks))
    (loop,) = (verb for verb in workload.verbs if isinstance(verb, Loop))
    places = placed(workload.dataset(loop.dataset))
    found: list[dict[str, tuple[int, int, str]]] = []
    for epoch in range(2):
        amounts = {member.places.dataset.name: [0, 0, 0] for member in places.members}
        for rank in range(ranks):
            plan = plan_epoch(loop, places, Job(ranks), rank, epoch)
            for number, member in enumerate(places.members):
                dataset = member.places.dataset
                own = plan.select(places.member_of_files(plan.file) == number)
                moved = own.length.sum()
                own = replace(own, sample=own.sample - member.first_sample)
                own = replace(own, length=sample_sizes(dataset, own.sample))
                hashed = order_hash(rank, own, 0, plan.steps, epoch, key(0, dataset.name))
                for column, more in enumerate((len(own.sample), int(moved), hashed)):
                    amounts[dataset.name][column] += more
        found.append({name: (many, moved, f"{hashed % 2**64:016x}") for name, (many, moved, hashed) in amounts.items()})
    return found


@pytest.mark.parametrize("sources", [PAIRS, MIXTURE, REPEATED])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_each_data_set_is_read_in_the_planned_order_with_figures_of_its_own(
    place: Place, ranks: int, sources: str
) -> None:
    (loop,) = phases(read(place, ranks, sources), "train")
    measured = [
        {one["name"]: (one["samples"], one["bytes"], one["order_hash"]) for one in epoch["datasets"]}
        for epoch in loop["epochs"]
    ]
    assert measured == planned(place, ranks, sources)
    for epoch in loop["epochs"]:
        assert epoch["unchecked_bytes"] == epoch["bytes"] - sum(one["bytes"] for one in epoch["datasets"])
        assert epoch["calls"] == sum(one["samples"] for one in epoch["datasets"])
        assert all(one["call_latency_seconds"]["max"] > 0 for one in epoch["datasets"])
        pairs = 1 if "%" in sources else 2
        assert epoch["samples"] * pairs == sum(one["samples"] for one in epoch["datasets"])


@pytest.mark.parametrize(
    "define",
    [
        {"readers": "2", "prefetch": "3 batches"},
        {"readers": "3 by sample", "decode": "on"},
        {"readers": "2 processes", "decode": "on"},
        {"transfer": "2000 B", "open": "each epoch", "order": "by offset"},
        {"engine": "mmap", "readers": "2"},
        {"engine": "queued depth 3"},
        {"scatter": "by node"},
        {"cache": "memory 1 MB"},
    ],
    ids=str,
)
@pytest.mark.parametrize("sources", [PAIRS, REPEATED])
def test_however_they_are_read(place: Place, sources: str, define: dict[str, str]) -> None:
    plain, other = read(place, 2, sources), read(place, 2, sources, **define)
    assert other["order_hash"] == plain["order_hash"]
    assert "cache" in define or other["extent_hash"] == plain["extent_hash"]


@pytest.mark.parametrize("ranks", [1, 3])
def test_files_of_all_are_opened_for_each_sample_where_one_has_a_file_per_sample(place: Place, ranks: int) -> None:
    (usual,), (once,) = (phases(read(place, ranks, PAIRS, **define), "train") for define in ({}, {"open": "once"}))
    for epoch in usual["epochs"]:
        assert epoch["opens"] == sum(one["samples"] for one in epoch["datasets"])
    first, second = (epoch["opens"] for epoch in once["epochs"])
    assert first == once["epochs"][0]["samples"] + 2 * ranks
    assert second < first


def test_data_sets_may_be_on_different_roots(tmp_path: Path) -> None:
    place = Place(tmp_path)
    datasets = DATASETS.replace('path     "labels"', 'path     "labels"\n    root     fast')
    place.write(datasets, PREPARE, TRAIN.format(PAIRS))
    found = []
    for readers in ("1", "2 processes"):
        options = ["--verify", "--root", f"fast={tmp_path / 'fast'}"]
        results = place.results(2, *options, define={"train.readers": readers})
        (train,) = phases(results, "train")
        assert train["root"] == "data, fast"
        assert [one["name"] for one in train["epochs"][0]["datasets"]] == ["images", "labels"]
        found.append(results["order_hash"])
    assert found[0] == found[1]
    assert len(list((tmp_path / "fast").glob("labels/*/*.raw"))) == 2
    assert not place.files("labels/*/*.raw")


def test_processes_that_read_have_the_latencies_of_each_data_set(place: Place) -> None:
    (loop,) = phases(read(place, 2, REPEATED, readers="2 processes"), "train")
    for epoch in loop["epochs"]:
        assert all(one["call_latency_seconds"]["max"] > 0 for one in epoch["datasets"])


@pytest.mark.parametrize("sources", ["images, units", "units 50 %, text 50 %, until all end"])
def test_units_that_samples_share_are_decoded_and_checked(place: Place, sources: str) -> None:
    (loop,) = phases(read(place, 3, sources, decode="on"), "train")
    for epoch in loop["epochs"]:
        assert epoch["unchecked_bytes"] == 0
        assert epoch["decode_seconds"]["max"] > 0


def test_a_damaged_sample_is_found_in_its_data_set(place: Place) -> None:
    (file,) = place.files("text/*/*.npy")
    content = file.read_bytes()
    file.write_bytes(content[:-700] + bytes(700))
    try:
        place.write(DATASETS, PREPARE, TRAIN.format(REPEATED))
        done = place.run(3, "--verify")
        assert done.returncode == 1
        assert "sample 16 of data set `text`" in done.stderr
        assert "`prepare text afresh` writes it again" in done.stderr
    finally:
        file.write_bytes(content)


def test_the_full_report_has_a_table_by_data_set(place: Place) -> None:
    read(place, 2, MIXTURE)
    assert "train: by data set, in the first and the last epoch" in place.tables()
