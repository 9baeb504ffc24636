"""Named ways of doing I/O do what they are called: what was asked and granted, who reads, and what is read."""

from __future__ import annotations

import pytest

from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, phases


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Data that are written once, and then read by every test."""
    made = Place(tmp_path_factory.mktemp("ways"))
    made.write(DATASET, PREPARE, TRAIN)
    return made


@pytest.mark.not_under("Open MPI", reason="OMPIO has no such hints")
def test_as_many_aggregators_as_asked_are_granted_on_one_node(place: Place) -> None:
    define = {"train.api": "mpi-collective", "train.hints": "two-phase 2 aggregators buffer 1 MiB"}
    [train] = phases(place.results(3, "--verify", define=define), "train")
    granted = train["hints_granted"]
    assert train["hint_set"] == "two-phase"
    assert train["hints_asked"].items() <= granted.items()
    assert (granted["cb_nodes"], granted["cb_buffer_size"]) == ("2", "1048576")
    assert len(granted["romio_aggregator_list"].split()) == 2  # the first ranks, or spread over them


def test_calls_of_mpi_io_are_in_flight_together_only_where_that_is_asked(place: Place) -> None:
    for define, several in [({}, False), ({"train.engine": "queued depth 4"}, True)]:
        [train] = phases(place.results(1, define={"train.api": "mpi-independent", **define}), "train")
        assert [epoch["depth"] > 1.001 for epoch in train["epochs"]] == [several] * 2
        assert train["notes"] == (["queued by MPI_File_iread_at"] if several else [])


def test_who_reads_and_opens_for_whom_is_noted(place: Place) -> None:
    define = {"train.api": "mpi-independent", "train.scatter": "by node", "train.communicator": "1 rank"}
    [train] = phases(place.results(2, define=define), "train")
    assert train["notes"] == [
        "a shared file is opened by each rank for itself; one rank of each node reads for all of its ranks"
    ]


def test_a_collective_read_without_aggregation_is_called_what_it_is(place: Place) -> None:
    define = {"train.api": "mpi-collective", "train.hints": "no-aggregation"}
    place.results(2, "--verify", define=define)
    assert "mpi-collective without aggregation: independent reads in a collective call" in place.tables()
    place.results(2, define={**define, "train.hints": "two-phase"})
    assert "mpi-collective with hints two-phase" in place.tables()
