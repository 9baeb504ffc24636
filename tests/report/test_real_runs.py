"""The files of a real run: results.json as its schema says, ranks.h5 that agrees with it, tables that fit."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.report.files.results import results_content
from dliosim.report.reader.load import SavedRun, load_results
from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, Place, phases
from tests.mpi.launch import ROOT
from tests.report.sample import run

LOOPS = """
train {
    read     d
    batch    4 per rank
    epochs   3
    shuffle  samples globally each epoch
    compute  1 ms
    checkpoint c every 2 steps
}
infer {
    read     d
    batch    2 per rank
    requests 30 per rank every exponential(1 ms)
    sync     off
}
restore c
"""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    assert len(made) == len(pairs), f"a name is there twice: {[name for name, _ in pairs]}"
    required = made.get("required", [])
    assert not isinstance(required, list) or len(set(required)) == len(required), f"required twice: {required}"
    return made


SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/results.schema.json").read_text(), object_pairs_hook=_once_each)

# Figures of an epoch that are sums over ranks of a column of the same name.
SUMS = ("samples", "bytes", "bytes_moved", "calls", "opens")
# Times that together are a rank's wall time.
PARTS = (
    "data_wait_ns",
    "compute_ns",
    "sync_wait_ns",
    "arrival_wait_ns",
    "checkpoint_ns",
    "processing_ns",
    "tool_ns",
)

Columns = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Made:
    """A run: what it printed, its results, and the columns (epochs, ranks) of each loop in ranks.h5."""

    place: Place
    ranks: int
    printed: str
    results: dict[str, Any]
    loops: dict[str, Columns]

    def epochs(self) -> Iterator[tuple[dict[str, Any], Columns]]:
        """Each epoch of results.json, with its rows (one entry a rank) of ranks.h5."""
        for phase in self.results["phases"]:
            for number, epoch in enumerate(phase["epochs"]):
                yield epoch, {name: rows[number] for name, rows in self.loops[phase["name"]].items()}


@pytest.fixture(scope="module", params=[1, 3])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    h5py = pytest.importorskip("h5py")
    ranks: int = request.param
    place = Place(tmp_path_factory.mktemp(f"on{ranks}"))
    place.write(DATASET, CHECKPOINT, PREPARE, LOOPS)
    done = place.run(ranks, "--with-null", "--mtbf", "4 h")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    results = json.loads((place.output / "results.json").read_text())
    with h5py.File(place.output / "ranks.h5") as file:
        loops = {group.attrs["name"]: {name: data[:] for name, data in group.items()} for group in file.values()}
    return Made(place, ranks, done.stdout, results, loops)


def faults(
    value: Any, schema: Mapping[str, Any], where: str = "results", whole: Mapping[str, Any] = SCHEMA
) -> Iterator[str]:
    """Return the faults of a value by a part of a whole schema; knows the part of JSON Schema that docs/*.json use."""
    known = {"$ref", "type", "const", "enum", "pattern", "minimum", "maximum", "anyOf", "items", "properties"}
    known |= {"required", "additionalProperties", "description", "title", "$schema", "$defs"}
    assert schema.keys() <= known, f"the checker does not know {schema.keys() - known}"
    if "$ref" in schema:
        yield from faults(value, whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], where, whole)
    if "anyOf" in schema and all(any(True for _ in faults(value, one, where, whole)) for one in schema["anyOf"]):
        yield f"{where}: none of those that it may be"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value} is none of {schema['enum']}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_of(value, name) for name in types):
        yield f"{where}: {value!r} is not of {types}"
        return
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{where}: {value} does not match"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{where}: {value} is out of bounds"
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from faults(one, schema.get("items", {}), f"{where}[{index}]", whole)
    if isinstance(value, dict):
        yield from (f"{where}: no {name}" for name in schema.get("required", []) if name not in value)
        for name, one in value.items():
            rule = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            if rule is False:
                yield f"{where}: {name} is not known"
            else:
                yield from faults(one, rule, f"{where}.{name}", whole)


def is_of(value: Any, name: str) -> bool:
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    if name in kinds:
        return isinstance(value, kinds[name])
    return not isinstance(value, bool) and isinstance(value, int if name == "integer" else int | float)


def test_results_are_as_their_schema_says(made: Made) -> None:
    assert list(faults(made.results, SCHEMA)) == []
    kinds = [phase["kind"] for phase in made.results["phases"]]
    assert {*kinds} == {"prepare", "train", "infer", "save", "restore"}


def test_saves_are_those_of_their_loop_and_held_it_for_what_they_took(made: Made) -> None:
    saves = [phase for phase in made.results["phases"] if phase["kind"] == "save"]
    assert {(phase["within"], phase["fsync"], phase["commit"]) for phase in saves} == {("train", True, "rename")}
    (loop,) = made.results["checkpoint_overhead"]["loops"]
    held = sum(phase["files"]["stall_seconds"]["max"] for phase in saves)
    (train,) = [phase for phase in made.results["phases"] if phase["name"] == "train"]
    steps = sum(epoch["loop_seconds"] for epoch in train["epochs"])
    assert (loop["held_seconds"], loop["steps_seconds"]) == pytest.approx((held, steps))
    assert loop["share"] == pytest.approx(held / (held + steps))


def test_no_part_of_a_save_or_restore_is_counted_twice(made: Made) -> None:
    (saved,) = load_results([str(made.place.output)], with_arrays=False)
    assert isinstance(saved, SavedRun)
    for phase in (*saved.run.saves, *saved.run.restores):
        assert sum(phase.parts.values()) == pytest.approx(phase.seconds)
        assert phase.parts["rest_seconds"] > -1e-6 and phase.parts["call_seconds"] > 0


def test_with_an_mtbf_it_is_said_how_often_to_save_by_what_saves_took(made: Made) -> None:
    (found,) = made.results["intervals"]
    stalls = [phase["files"]["stall_seconds"]["max"] for phase in made.results["phases"] if phase["kind"] == "save"]
    assert found["stall_seconds"] == pytest.approx(statistics.fmean(stalls))
    # What was just saved is restored out of the page cache, which says nothing about a restart.
    saves = [phase["files"]["seconds"] for phase in made.results["phases"] if phase["kind"] == "save"]
    assert found["restart_seconds"] == pytest.approx(statistics.median(saves))
    assert found["young_seconds"] == pytest.approx((2 * found["stall_seconds"] * 4 * 3600) ** 0.5)
    assert "best interval between saves if the job fails every 4 h on average" in made.printed


def test_every_override_is_there_in_its_order() -> None:
    given = (("model.part", "a 1 MB total"), ("epochs", "5"), ("model.part", "b 1 MB total"))
    found = results_content(run(overrides=given))["overrides"]
    assert found == [list(pair) for pair in given]
    assert list(faults(found, SCHEMA["properties"]["overrides"])) == []


def test_the_schema_refuses_what_is_not_so(made: Made) -> None:
    (train,) = phases(made.results, "train")
    wrong: list[dict[str, Any]] = [
        {**made.results, "ranks": 0},
        {**made.results, "ranks": 1.5},
        {**made.results, "order_hash": "12"},
        {**made.results, "unknown": 1},
        {name: value for name, value in made.results.items() if name != "digest"},
        {**made.results, "phases": [{**train, "kind": "dance"}]},
        {**made.results, "phases": [{**train, "epochs": [{**train["epochs"][0], "tool_seconds": 1.0}]}]},
    ]
    assert [number for number, one in enumerate(wrong) if not list(faults(one, SCHEMA))] == []


def test_every_rank_has_every_column(made: Made) -> None:
    assert made.loops.keys() == {"train", "infer"}
    for phase in phases(made.results, "train") + phases(made.results, "infer"):
        columns = made.loops[phase["name"]]
        assert columns.keys() == {*RANK_COLUMNS}
        assert {rows.shape for rows in columns.values()} == {(len(phase["epochs"]), made.ranks)}
        assert {rows.dtype for rows in columns.values()} == {np.dtype(np.int64)}


def test_the_parts_of_the_wall_time_add_up_to_it_exactly(made: Made) -> None:
    for _, rank in made.epochs():
        assert np.array_equal(sum((rank[part] for part in PARTS), np.zeros(made.ranks, np.int64)), rank["wall_ns"])
        assert (rank["loop_ns"] == rank["wall_ns"] - rank["checkpoint_ns"]).all()
        assert all((rank[part] >= 0).all() for part in PARTS)
        assert (rank["steady_ns"] <= rank["loop_ns"]).all()


def test_counts_are_sums_over_ranks(made: Made) -> None:
    for epoch, rank in made.epochs():
        assert {name: epoch[name] for name in SUMS} == {name: int(rank[name].sum()) for name in SUMS}
        assert (epoch["steps"], epoch["fewest_steps"]) == (rank["steps"].max(), rank["steps"].min())
        assert {epoch["epoch"]} == {*rank["epoch"].tolist()}


def test_spreads_are_mean_least_and_greatest_of_the_ranks(made: Made) -> None:
    for epoch, rank in made.epochs():
        spreads = {name: value for name, value in epoch.items() if isinstance(value, dict) and "mean" in value}
        assert len(spreads) == 14 + sum(bool((rank[f"{who}core_wait_ns"] >= 0).all()) for who in ("", "reader_"))
        for name, spread in spreads.items():
            times = rank[name.replace("_seconds", "_ns")] * 1e-9
            assert [*spread.values()] == pytest.approx([times.mean(), times.min(), times.max()], rel=1e-12)


def test_rates_are_those_of_the_slowest_rank(made: Made) -> None:
    for epoch, rank in made.epochs():
        loop = rank["loop_ns"].max() * 1e-9
        assert epoch["seconds"] == pytest.approx(rank["wall_ns"].max() * 1e-9)
        assert epoch["loop_seconds"] == pytest.approx(loop)
        assert epoch["samples_per_second"] == pytest.approx(rank["samples"].sum() / loop)
        assert epoch["bytes_per_second"] == pytest.approx(rank["bytes"].sum() / loop)
        steady = rank["steady_samples"].sum() / (rank["steady_ns"].max() * 1e-9)
        assert epoch["steady_samples_per_second"] == pytest.approx(steady)
        assert epoch["slowdown"] == pytest.approx(epoch["seconds"] / epoch["null_seconds"])


def test_utilization_is_nominal_compute_by_steady_time(made: Made) -> None:
    for epoch, rank in made.epochs():
        if not rank["nominal_ns"].any():
            assert epoch["utilization"] is epoch["utilization_min"] is epoch["utilization_max"] is None
            continue
        each = rank["nominal_ns"] / rank["steady_ns"]
        found = [epoch[name] for name in ("utilization", "utilization_min", "utilization_max")]
        assert found == pytest.approx([each.mean(), each.min(), each.max()], abs=1e-9)
        slept = rank["compute_ns"].sum() - rank["oversleep_ns"].sum()
        assert epoch["oversleep_share"] == pytest.approx(rank["oversleep_ns"].sum() / slept)


def test_latencies_rise_to_the_greatest_of_any_rank(made: Made) -> None:
    for epoch, rank in made.epochs():
        for kind in ("batch", "call", "request"):
            found = epoch[f"{kind}_latency_seconds"]
            if found is None:
                assert kind == "request" and not rank["arrival_wait_ns"].any()
                continue
            assert found["max"] == pytest.approx(rank[f"{kind}_latency_max_ns"].max() * 1e-9)
            assert [*found.values()] == sorted(found.values())


def test_steps_are_bound_by_something_where_ranks_meet(made: Made) -> None:
    (train,), (infer,) = phases(made.results, "train"), phases(made.results, "infer")
    for epoch in train["epochs"]:
        assert sum(epoch["bound_by"].values()) == pytest.approx(1)
        assert 0 <= epoch["slowest_rank"] < made.ranks
    assert {epoch["bound_by"] for epoch in infer["epochs"]} == {None}


def test_what_is_printed_fits(made: Made) -> None:
    # A path is there to be copied and never broken; how long it is here says nothing.
    lines = made.printed.replace(str(made.place.directory), "DIR").splitlines()
    assert lines and max(len(line) for line in lines if not line.startswith(("mpiexec", "dliosim run"))) <= 80


def test_hashes_add_up_and_are_printed(made: Made) -> None:
    for name in ("order_hash", "extent_hash"):
        whole = sum(int(epoch[name], 16) for epoch, _ in made.epochs()) % 2**64
        assert int(made.results[name], 16) == whole
    assert f"order hash {made.results['order_hash']}, extent hash {made.results['extent_hash']}" in made.place.tables()


def test_without_io_the_order_is_the_same_and_nothing_is_read(made: Made, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINT, PREPARE, LOOPS)
    for layout in ("shared file", "file per sample"):
        null = place.results(made.ranks, "--null", define={"d.layout": layout})
        assert null["order_hash"] == made.results["order_hash"], layout
        assert int(null["extent_hash"], 16) == 0
        epochs = [epoch for phase in null["phases"] for epoch in phase["epochs"]]
        assert {epoch[name] for epoch in epochs for name in ("bytes_moved", "calls", "opens")} == {0}
        assert all(epoch["samples"] and epoch["bytes_per_second"] is None for epoch in epochs)
        assert (null["null"], null["verify"], null["verified_bytes"]) == (True, False, 0)


def test_every_figure_has_its_formula() -> None:
    words = {*re.findall(r"`([^`\n]+)`", (ROOT / "docs/metrics.md").read_text())}
    kinds = ("phase", "epoch", "files", "quantiles", "bound_by", "expectation", "overhead", "interval", "lost")
    figures = {name for kind in kinds for name in SCHEMA["$defs"][kind]["properties"]}
    assert {*RANK_COLUMNS} - words == set()
    assert figures - words == set()
