"""The same samples are read in the same order, from the same places, whichever way they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples import in_turn
from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, phases

Hashes = tuple[str, str]
Same = Callable[[int], Hashes]

INDEPENDENT, COLLECTIVE = {"train.api": "mpi-independent"}, {"train.api": "mpi-collective"}


def hashes(results: dict[str, Any]) -> Hashes:
    """Return the order hash and the extent hash of a run."""
    return results["order_hash"], results["extent_hash"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Data that are written once, and then read by every test."""
    made = Place(tmp_path_factory.mktemp("same"))
    made.write(DATASET, PREPARE, TRAIN)
    return made


@pytest.fixture(scope="module")
def plain(place: Place) -> Same:
    """The hashes of that many ranks that read the data with nothing but defaults."""
    known: dict[int, Hashes] = {}

    def of(ranks: int) -> Hashes:
        if ranks not in known:
            known[ranks] = hashes(place.results(ranks, "--verify"))
        return known[ranks]

    return of


@pytest.mark.parametrize(
    "define",
    [
        {"train.readers": "2", "train.prefetch": "3 batches"},
        {"train.readers": "3 by sample"},
        {"train.transfer": "2000 B", "train.open": "each epoch"},
        {"train.engine": "mmap", "train.readers": "2"},
        {"train.engine": "queued depth 3"},
        {"train.engine": "queued depth 3", "train.readers": "2 by sample", "train.open": "each sample"},
        INDEPENDENT,
        {**INDEPENDENT, "train.readers": "1", "train.transfer": "4 kB"},
        COLLECTIVE,
        {**COLLECTIVE, "train.readers": "1", "train.prefetch": "2 batches"},
        {**COLLECTIVE, "train.transfer": "7 kB"},
        {"train.order": "by offset", "train.readers": "1"},
        {**INDEPENDENT, "train.order": "by offset"},
        {**COLLECTIVE, "train.communicator": "1 rank", "train.open": "each epoch"},
        {**INDEPENDENT, "train.engine": "queued depth 3"},
        {"train.scatter": "by node"},
        {"train.scatter": "by node", "train.transfer": "2000 B", "train.open": "each epoch"},
        {"train.sync": "off"},
        {"train.sync": "allreduce 10 kB every 2 steps"},
    ],
    ids=str,
)
def test_however_they_are_read(place: Place, plain: Same, define: dict[str, str]) -> None:
    assert hashes(place.results(2, "--verify", define=define)) == plain(2)


@pytest.mark.parametrize(
    ("define", "ranks"),
    in_turn(
        [
            INDEPENDENT,
            COLLECTIVE,
            {**COLLECTIVE, "train.communicator": "2 ranks", "train.transfer": "7 kB", "train.readers": "1"},
            {**INDEPENDENT, "train.communicator": "node"},
            {"train.readers": "2 processes by sample", "train.preprocess": "10 us"},
            {**INDEPENDENT, "train.scatter": "by node", "train.order": "by offset"},
        ],
        [3, 5],
    ),
    ids=str,
)
def test_on_any_number_of_ranks(place: Place, plain: Same, define: dict[str, str], ranks: int) -> None:
    assert hashes(place.results(ranks, "--verify", define=define)) == plain(ranks)


def test_a_run_repeated_gives_the_same_and_another_seed_another_order(place: Place, plain: Same) -> None:
    assert hashes(place.results(2)) == plain(2)
    assert hashes(place.results(2, define={"seed": "7"}))[0] != plain(2)[0]


def test_another_layout_has_the_same_order_in_other_places(place: Place, plain: Same) -> None:
    order, extents = hashes(place.results(2, "--verify", define={"d.layout": "7 files"}))
    assert order == plain(2)[0]
    assert extents != plain(2)[1]


def test_shifted_ranks_read_the_same_places_for_each_other(place: Place, plain: Same) -> None:
    order, extents = hashes(place.results(2, "--verify", define={"train.shifted by": "1 rank"}))
    assert order != plain(2)[0]
    assert extents == plain(2)[1]


def test_without_io_the_order_is_the_same_and_nothing_is_touched(place: Place, plain: Same, tmp_path: Path) -> None:
    nothing = Place(tmp_path)
    nothing.write(DATASET, PREPARE, TRAIN)
    results = nothing.results(2, "--null")
    assert hashes(results) == (plain(2)[0], "0" * 16)
    assert not nothing.data.exists()
    (train,) = phases(results, "train")
    assert train["api"] == "null"
    assert [epoch["bytes_moved"] for epoch in train["epochs"]] == [0, 0]
    assert all(epoch["samples"] == 40 and epoch["bytes"] > 0 for epoch in train["epochs"])


def test_two_epochs_have_two_orders(place: Place) -> None:
    (train,) = phases(place.results(2), "train")
    first, second = train["epochs"]
    assert first["order_hash"] != second["order_hash"]
    (once,) = phases(place.results(2, define={"train.shuffle": "off", "train.batch": "1 per rank"}), "train")
    one, other = once["epochs"]
    assert one["extent_hash"] == other["extent_hash"]


@pytest.mark.parametrize("engine", ["mmap", "queued depth 5"])
def test_what_the_kernel_does_not_count_as_read_calls_is_not_reported(place: Place, engine: str) -> None:
    define = {"train.engine": engine, "train.batch": "5 per rank"}
    (train,) = phases(place.results(1, "--verify", define=define), "train")
    for epoch in train["epochs"]:
        assert epoch["amplification"] is None
        assert epoch["storage_amplification"] is not None
        assert epoch["bytes_moved"] == epoch["bytes"]
        assert epoch["calls"] == (epoch["steps"] if engine == "mmap" else epoch["samples"])
        assert epoch["depth"] == 1 if engine == "mmap" else 1 < epoch["depth"] <= 5
    assert [note.split()[:2] for note in train["notes"]] == ([] if engine == "mmap" else [["queued", "by"]])


def test_calls_one_after_the_other_have_a_depth_of_one(place: Place) -> None:
    (train,) = phases(place.results(2), "train")
    assert [epoch["depth"] for epoch in train["epochs"]] == [1, 1]
    assert all(epoch["amplification"] > 0 for epoch in train["epochs"])
