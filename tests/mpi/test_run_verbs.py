"""The effect of each verb and setting in a run, by its files and results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place, only_error, phases

#: Reasons for which a figure is not judged: what was just written is in memory, or too little was measured.
MEMORY_OR_SHORT = ("memory_file_system", "page_cache", "partly_cached", "uncounted", "too_short", "memory_short")

STEPS = 5  # of an epoch of 41 samples on 2 ranks, 4 each a step


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty directory."""
    return Place(tmp_path)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place where the data are, for tests that only read them."""
    made = Place(tmp_path_factory.mktemp("verbs"))
    made.write(DATASET, PREPARE)
    made.results(1)
    return made


def only_phase(results: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the only phase of a kind."""
    (phase,) = phases(results, kind)
    return phase


def train_with(*lines: str, epochs: int = 2) -> str:
    """The usual loop, with these settings too."""
    return TRAIN.replace("epochs   2", "\n    ".join([f"epochs   {epochs}", *lines]))


# --- prepare


@pytest.mark.parametrize("layout", ["shared file", "2 files"])
def test_prepared_bytes_are_the_same_by_any_writers(tmp_path: Path, layout: str) -> None:
    found = {}
    for ranks, api in [
        (1, "posix"),
        (3, "posix"),
        (3, "mpi-independent"),
        (1, "mpi-collective"),
        (3, "mpi-collective"),
    ]:
        if api == "mpi-collective" and layout != "shared file":
            continue
        place = Place(tmp_path / f"{api}-{ranks}")
        place.directory.mkdir()
        place.write(DATASET, PREPARE)
        prepared = only_phase(place.results(ranks, define={"d.layout": layout, "prepare d.api": api}), "prepare")
        content = [(path.relative_to(place.data), path.read_bytes()) for path in place.files()]
        assert prepared["files"]["files"] == len(content) == (1 if layout == "shared file" else 2)
        assert prepared["files"]["bytes"] == sum(len(data) for _, data in content) > 41 * 3000
        found[ranks, api] = content
    assert all(content == found[1, "posix"] for content in found.values())


def test_what_is_there_is_kept_and_afresh_writes_it_again(place: Place) -> None:
    place.write(DATASET, PREPARE)
    first = only_phase(place.results(2), "prepare")
    assert first["notes"] == []
    (file,) = place.files()
    written, content = file.stat().st_mtime_ns, file.read_bytes()
    second = only_phase(place.results(3), "prepare")
    assert [note.split(":")[0] for note in second["notes"]] == ["kept"]
    assert (second["files"]["bytes"], second["files"]["calls"]) == (0, 0)
    assert file.stat().st_mtime_ns == written
    place.write(DATASET, "prepare d afresh\n")
    again = only_phase(place.results(2), "prepare")
    assert again["notes"] == []
    assert again["files"]["bytes"] == first["files"]["bytes"]
    assert file.stat().st_mtime_ns > written
    assert file.read_bytes() == content


# --- caches


def test_what_is_kept_in_memory_is_not_read_again(prepared: Place) -> None:
    prepared.write(DATASET, train_with(epochs=3))
    plain = prepared.results(2)
    some = prepared.results(2, "--verify", define={"train.cache": "memory 60 kB"})
    everything = prepared.results(2, "--verify", define={"train.cache": "memory 1 MB", "train.shuffle": "off"})
    assert some["order_hash"] == plain["order_hash"]
    first, *others = only_phase(some, "train")["epochs"]
    assert first["bytes_moved"] == first["bytes"]
    assert all(0 < epoch["bytes_moved"] < epoch["bytes"] for epoch in others)
    assert [epoch["bytes_moved"] for epoch in only_phase(everything, "train")["epochs"]][1:] == [0, 0]


def test_past_the_page_cache(place: Place) -> None:
    body = train_with("cache    off")
    place.write(DATASET.replace("header   100 B", "align    4 KiB"), "prepare d { cache off }\n", body)
    done = place.run(2, "--verify")
    if "R403" in done.stderr:
        pytest.skip("no O_DIRECT on this file system")
    assert done.returncode == 0, done.stderr
    epochs = only_phase(place.results(2, "--verify"), "train")["epochs"]
    assert all(epoch["bytes_moved"] > epoch["bytes"] and epoch["bytes_moved"] % 4096 == 0 for epoch in epochs)


def test_dropping_caches_says_what_stayed(place: Place) -> None:
    place.write(DATASET, PREPARE, "drop caches\n", TRAIN)
    results = place.results(2)
    dropped = only_phase(results, "drop caches")["files"]
    assert 0 <= dropped["resident_bytes"] <= dropped["examined_bytes"]
    assert dropped["examined_bytes"] > 0
    assert dropped["resident_share"] == pytest.approx(dropped["resident_bytes"] / dropped["examined_bytes"])
    assert only_phase(results, "train")["resident_share"] is not None


# --- loops


@pytest.mark.parametrize("busy", ["", " busy"])
def test_a_step_computes_as_long_as_asked(prepared: Place, busy: str) -> None:
    prepared.write(DATASET, train_with(f"compute  3 ms{busy}"))
    epochs = only_phase(prepared.results(2), "train")["epochs"]
    assert len(epochs) == 2
    assert all(epoch["compute_seconds"]["min"] >= STEPS * 3e-3 for epoch in epochs)


def test_an_evaluation_is_a_phase_of_its_own(prepared: Place) -> None:
    prepared.write(DATASET, train_with("evaluate every 2 epochs {", "read d", "steps 2", "}", epochs=4))
    results = prepared.results(2, "--verify")
    assert [epoch["epoch"] for epoch in only_phase(results, "train")["epochs"]] == [1, 2, 3, 4]
    evaluated = only_phase(results, "evaluate")
    assert [epoch["epoch"] for epoch in evaluated["epochs"]] == [1, 2]
    assert [(epoch["steps"], epoch["samples"]) for epoch in evaluated["epochs"]] == [(2, 4)] * 2


def test_requests_come_in_one_stream_whatever_the_passes(prepared: Place) -> None:
    body = "requests 12 per rank every 5 ms\n    batch 4 per rank\n    compute 8 ms\n    sync off\n"
    prepared.write(DATASET, f"infer {{\n    read d\n    {body}}}\n")
    (epoch,) = only_phase(prepared.results(2, "--verify"), "infer")["epochs"]
    assert (epoch["steps"], epoch["fewest_steps"], epoch["samples"]) == (12, 12, 2 * 12 * 4)
    # They come faster than they are answered: the last has waited for all before it, over the ends of passes.
    latency = epoch["request_latency_seconds"]
    assert latency["max"] >= 12 * 8e-3 - 12 * 5e-3


@pytest.mark.parametrize("sync", ["barrier every 3 steps", "allreduce 1 kB"])
def test_when_the_time_is_up_all_ranks_have_done_the_same_steps(prepared: Place, sync: str) -> None:
    prepared.write(DATASET, train_with("for 300 ms", "compute exponential(4 ms)", f"sync {sync}", epochs=100_000))
    train = only_phase(prepared.results(2), "train")
    assert all(epoch["steps"] == epoch["fewest_steps"] for epoch in train["epochs"])
    assert all(epoch["steps"] == STEPS for epoch in train["epochs"][:-1])
    assert 1 < len(train["epochs"]) < 100_000


def test_when_the_time_is_up_ranks_that_never_meet_end_together_without_error(prepared: Place) -> None:
    prepared.write(DATASET, train_with("for 300 ms", "compute exponential(30 ms)", "sync off", epochs=100_000))
    train = only_phase(prepared.results(3), "train")
    assert all(epoch["fewest_steps"] <= epoch["steps"] <= 3 for epoch in train["epochs"])
    assert len(train["epochs"]) < 1000


# --- checkpoints


@pytest.mark.parametrize(
    ("cadences", "saved"),
    [
        (["every 2 steps"], 4 * 2),
        (["every 2 epochs"], 2),
        (["at end"], 1),
        (["every 3 epochs", "at end"], 2),
        (["every 5 steps", "every 4 epochs", "at end"], 4 + 1 + 1),
    ],
    ids=str,
)
def test_checkpoints_are_saved_when_they_are_due(prepared: Place, cadences: list[str], saved: int) -> None:
    before = {path.parent.name + path.name for path in prepared.files("c/*/*")}
    prepared.write(DATASET, CHECKPOINT, train_with(*(f"checkpoint c {cadence}" for cadence in cadences), epochs=4))
    results = prepared.results(2)
    assert len(phases(results, "save")) == saved
    assert len({path.parent.name + path.name for path in prepared.files("c/*/*")} - before) == saved
    assert [phase["files"]["bytes"] for phase in phases(results, "save")] == [300_000 + 2 * 1001] * saved
    epochs = only_phase(results, "train")["epochs"]
    assert (sum(epoch["checkpoint_seconds"]["min"] for epoch in epochs) > 0) == (cadences != ["at end"])


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_loop_was_held_by_its_saves_as_long_as_each_of_them_took_without_making_contents(
    place: Place, ranks: int
) -> None:
    writes_alone = CHECKPOINT.replace("path ", "writers rank 0\n    path ").replace("300 kB total", "40 MB total")
    place.write(DATASET, PREPARE, writes_alone, train_with("checkpoint c every 3 steps", "checkpoint c every 2 epochs"))
    results = place.results(ranks)
    stalls = sum(phase["files"]["stall_seconds"]["max"] for phase in phases(results, "save"))
    held = [epoch["checkpoint_seconds"] for epoch in only_phase(results, "train")["epochs"]]
    assert 0 < sum(one["max"] for one in held) <= stalls + 1e-6
    assert results["checkpoint_overhead"]["loops"][0]["held_seconds"] == pytest.approx(stalls)
    if ranks == 1:
        assert sum(one["mean"] for one in held) == pytest.approx(stalls)


def test_only_the_newest_are_kept(place: Place) -> None:
    place.write(CHECKPOINT.replace("path ", "keep 2\n    path "), "repeat 4 {\n    save c\n}\nrestore c\n")
    results = place.results(2, "--verify")
    assert len(phases(results, "save")) == 4
    assert (results["verify"], results["verified_bytes"]) == (True, 300_000 + 2 * 1001)
    assert [path.name for path in place.files("c/*/*")] == ["000003", "000004"]
    assert results["checkpoint_overhead"]["loops"] == []


@pytest.mark.parametrize(
    ("writers", "api", "files", "others"),
    [
        ("into file per rank", "posix", 3, (1, 5)),
        ("all ranks into shared file", "posix", 1, (2,)),
        ("all ranks into shared file", "mpi-collective", 1, (5,)),
        ("one per 2 ranks", "posix", 2, (2,)),
        ("rank 2", "posix", 1, (1,)),
    ],
)
def test_any_number_of_ranks_restores_what_three_saved(
    place: Place, writers: str, api: str, files: int, others: tuple[int, ...]
) -> None:
    define = {"c.writers": writers, "c.api": api}
    place.write(CHECKPOINT, "save c\nrestore c\n")
    results = place.results(3, "--verify", define=define)
    saved, restored = only_phase(results, "save"), only_phase(results, "restore")
    assert len(place.files("c/*/000001/*.ckpt")) == saved["files"]["files"] == files
    size = 300_000 + 3 * 1001
    assert sum(path.stat().st_size for path in place.files("c/*/000001/*.ckpt")) == size
    assert saved["files"]["bytes"] == restored["files"]["bytes"] == size
    if writers == "rank 2":
        define["c.writers"] = "rank 0"
        place.results(3, define=define)
    place.write(CHECKPOINT, "restore c written by 3 ranks\n")
    for ranks in others:
        (phase,) = phases(place.results(ranks, "--verify", define=define), "restore")
        assert phase["files"]["bytes"] == size


def test_what_was_never_saved_cannot_be_restored(place: Place) -> None:
    place.write(CHECKPOINT, "restore c\n")
    assert only_error(place.run(2)).startswith("error[R404]: no complete checkpoint of `c`")


# --- results


def test_an_expectation_that_is_missed_counts_where_the_bytes_came_from_storage(prepared: Place) -> None:
    prepared.write(DATASET, TRAIN, "expect throughput of train at least 100 TB/s\n")
    # What was just written is in memory, unless the tests' folder is on a file system that keeps nothing.
    missed = prepared.run(2, "--strict")
    (line,) = json.loads((prepared.output / "results.json").read_text())["expectations"]
    doubt = line["reported_only"]
    assert not line["held"] and (doubt is None or doubt["kind"] in MEMORY_OR_SHORT)
    assert missed.returncode == (3 if doubt is None else 0)
    assert missed.stdout.count("MISSED: expect throughput of train") == (doubt is None)
    assert missed.stderr.endswith("error: 1 of 1 expect line missed\n") == (doubt is None)
    prepared.write(DATASET, TRAIN, "expect throughput of train at least 1 B/s\n")
    (expectation,) = prepared.results(1)["expectations"]
    assert expectation["held"]


def test_a_second_run_without_io_gives_the_slowdown(prepared: Place) -> None:
    prepared.write(DATASET, train_with("compute 3 ms"))
    train = only_phase(prepared.results(2, "--with-null"), "train")
    assert train["null_seconds"] > 0
    for epoch in train["epochs"]:
        assert epoch["null_seconds"] >= STEPS * 3e-3
        assert epoch["slowdown"] == pytest.approx(epoch["seconds"] / epoch["null_seconds"])


def test_figures_agree_with_each_other(prepared: Place) -> None:
    prepared.write(DATASET, train_with("compute 4 ms"))
    results = prepared.results(2)
    assert (results["schema_version"], results["name"], results["ranks"], results["nodes"]) == (10, "tiny", 2, 1)
    train = only_phase(results, "train")
    assert [epoch["epoch"] for epoch in train["epochs"]] == [1, 2]
    for epoch in train["epochs"]:
        assert (epoch["steps"], epoch["samples"]) == (STEPS, 40)
        assert epoch["calls"] == 40
        assert epoch["bytes"] == epoch["bytes_moved"]
        assert 40 * 3000 <= epoch["bytes"] <= 40 * 9000
        assert epoch["amplification"] is None or epoch["amplification"] == pytest.approx(1, rel=0.1)
        assert epoch["samples_per_second"] == pytest.approx(40 / epoch["loop_seconds"])
        assert epoch["bytes_per_second"] == pytest.approx(epoch["bytes"] / epoch["loop_seconds"])
        assert 0 < epoch["utilization_min"] <= epoch["utilization"] <= epoch["utilization_max"] <= 1.001
        assert epoch["compute_seconds"]["mean"] >= STEPS * 4e-3
        parts = ("data_wait", "compute", "sync_wait", "arrival_wait", "checkpoint", "tool")
        assert sum(epoch[f"{part}_seconds"]["mean"] for part in parts) == pytest.approx(epoch["seconds"], rel=0.2)
    # The greatest of any rank's sum, and the sum of each epoch's greatest.
    assert train["seconds"] <= sum(epoch["seconds"] for epoch in train["epochs"]) * (1 + 1e-9)
    assert train["seconds"] >= max(epoch["seconds"] for epoch in train["epochs"])
    assert train["seconds"] <= results["seconds"]


def test_deleting_old_checkpoints_takes_time_of_its_own(place: Place) -> None:
    place.write(CHECKPOINT, "repeat 3 {\n    save c\n}\n")
    kept = phases(place.results(2, define={"c.keep": "all"}), "save")
    deleted = phases(place.results(2, define={"c.keep": "1"}), "save")
    assert all(phase["files"]["delete_seconds"]["max"] == 0 for phase in kept)
    assert all(phase["files"]["delete_seconds"]["max"] > 0 for phase in deleted)
