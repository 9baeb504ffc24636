"""`dliosim compare` as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.examples import ALL
from tests.mpi.jobs import CHECKPOINT, CLI, DATASET, HEAD, PREPARE, TRAIN, only_error
from tests.mpi.launch import running, start_ranks
from tests.mpi.waiting import run_command

SAVES = CHECKPOINT + "save c\n"


def compare(place: Path, ranks: int, *options: str, repeat: int = 6) -> subprocess.CompletedProcess[str]:
    """Compare variants of the pattern in a directory, however that ends."""
    places = ["--dir", str(place / "data"), "--output", str(place / "out"), "--repeat", str(repeat)]
    return run_command(ranks, ["compare", str(place / "tiny.dlio"), *places, *options], place, seconds=90)


def outcome(place: Path, ranks: int, *options: str, repeat: int = 6) -> dict[str, Any]:
    """The results of a comparison, which must succeed."""
    done = compare(place, ranks, *options, repeat=repeat)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    content: dict[str, Any] = json.loads((place / "out" / "compare.json").read_text())
    what = " ".join((content["what"], content.get("loop") or content.get("checkpoint")))
    assert all(line in " ".join(done.stdout.split()) for line in (what, "whole comparison"))
    return content


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a pattern."""
    (tmp_path / "tiny.dlio").write_text(HEAD + DATASET + PREPARE + TRAIN)
    return tmp_path


@pytest.mark.parametrize("ranks", [1, 3] if ALL else [3])
def test_every_way_of_reading_gets_the_same_samples_in_the_same_order(place: Path, ranks: int) -> None:
    found = outcome(
        place,
        ranks,
        *("--vary", "api=posix,mpi-independent,mpi-collective"),
        *("--vary", "layout=shared file,file per sample"),
        repeat=1,
    )
    assert len(found["variants"]) == 5 and len(found["not_run"]) == 1
    hashes = {one["order_hash"] for variant in found["variants"] for one in variant["passes"]}
    assert len(hashes) == 1
    # Two layouts, two data sets, each prepared once.
    assert len(list((place / "data" / "d").iterdir())) == 2
    assert {variant["verdict"] for variant in found["variants"]} == {"reference", "not judged"}


def test_each_variants_data_are_prepared_wherever_they_are(place: Path) -> None:
    """One description in four places: data that are there already are those of the same place alone."""
    pattern = HEAD + 'param p = "d" "directory of the data"\n' + DATASET.replace('"d"', "$p") + PREPARE + TRAIN
    (place / "tiny.dlio").write_text(pattern)
    vary = ("--vary", 'p="one","two"', "--vary", "d.root=data,local")
    found = outcome(place, 2, *vary, "--root", f"local={place / 'local'}", repeat=1)
    assert len(found["variants"]) == 4 and not found["not_run"]
    manifests = [*place.glob("data/*/*/manifest.json"), *place.glob("local/*/*/manifest.json")]
    assert {str(path.parents[1].relative_to(place)) for path in manifests} == {
        *("data/one", "data/two", "local/one", "local/two")
    }


def test_a_variant_made_slower_on_purpose_is_found(place: Path) -> None:
    found = outcome(place, 2, "--vary", "compute=1 ms,30 ms")
    second = found["variants"][1]
    assert second["verdict"] == "slower" and second["ratio_high"] < 0.5
    assert (found["answer"]["use"], found["answer"]["against"]) == ("compute=1 ms", "compute=30 ms")
    assert second["compute_share"] > 0.5


def test_rows_are_whole_passes_in_blocks_with_a_warm_up_before(place: Path) -> None:
    found = outcome(place, 2, "--vary", "order=as planned,by offset", "--seed", "3", repeat=4)
    rows = list(csv.DictReader((place / "out" / "rows.csv").read_text().splitlines()))
    assert [int(row["block"]) for row in rows] == [block for block in range(5) for _ in range(2)]
    for block in range(5):
        assert {row["variant"] for row in rows if row["block"] == str(block)} == {"order=as planned", "order=by offset"}
    # A pass is both epochs: on two ranks of 41 samples each has 20, which are 5 steps of 4.
    assert {row["samples"] for row in rows} == {"80"}
    assert found["caches"] == "warm" and found["repetitions"] == 4


def test_a_variant_that_fails_is_reported_and_the_others_continue(place: Path) -> None:
    other = DATASET.replace("dataset d", "dataset e").replace('"d"', '"e"')
    (place / "tiny.dlio").write_text(HEAD + DATASET + other + PREPARE + TRAIN)
    found = outcome(place, 2, "--vary", "read=d,e", "--vary", "transfer=whole sample,1 kB", repeat=1)
    assert [one["label"] for one in found["variants"]] == ["read=d, transfer=whole sample", "read=d, transfer=1 kB"]
    reasons = [one["reason"] for one in found["not_run"]]
    assert len(reasons) == 2 and all("failed in its warm-up" in reason and "prepare e" in reason for reason in reasons)


@pytest.mark.not_under("Open MPI", reason="its launcher's status is 1 after a signal, and it drops the message")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_blocks_that_were_done_are_left_when_a_comparison_is_ended(place: Path, number: signal.Signals) -> None:
    (place / "tiny.dlio").write_text(HEAD + DATASET + PREPARE + TRAIN.replace("}", "    compute 20 ms\n}"))
    places = ["--dir", str(place / "data"), "--output", str(place / "out"), "--repeat", "500"]
    words = [*CLI, "compare", str(place / "tiny.dlio"), *places, "--vary", "order=as planned,by offset"]
    with running(start_ranks(2, *words, cwd=place)) as job:
        job.wait_until(lambda: (place / "out" / "rows.csv").exists())
        os.killpg(job.launcher.pid, number)
        done = job.finish(15)
    assert done.returncode == 128 + number and done.stderr.count(": there is no verdict; rows.csv") == 1
    rows = list(csv.DictReader((place / "out" / "rows.csv").read_text().splitlines()))
    assert len(rows) >= 2 and len(rows) % 2 == 0
    assert not (place / "out" / "compare.json").exists()


def test_warnings_of_variants_are_said_once(place: Path) -> None:
    done = compare(place, 1, "--vary", "api=posix,mpi-independent", "-D", "train.readers=2", repeat=1)
    assert done.returncode == 0 and done.stderr.count("W304") == 1
    assert "comparing 2 variants: a warm-up and 1 pass of each that count" in done.stderr


def test_where_the_first_variant_fails_the_next_is_said_to_be_the_reference(place: Path) -> None:
    other = DATASET.replace("dataset d", "dataset e").replace('"d"', '"e"')
    (place / "tiny.dlio").write_text(HEAD + DATASET + other + PREPARE + TRAIN)
    found = outcome(place, 1, "--vary", "read=e,d", "--vary", "transfer=whole sample,1 kB", repeat=1)
    held = "(so all others are compared with read=d, transfer=whole sample)"
    assert found["reference"] == "read=d, transfer=whole sample"
    assert [one["reason"].endswith(held) for one in found["not_run"]] == [True, False]


def test_caches_are_dropped_where_the_pattern_drops_them(place: Path) -> None:
    (place / "tiny.dlio").write_text(HEAD + DATASET + PREPARE + "drop caches\n" + TRAIN)
    assert outcome(place, 1, "--vary", "transfer=whole sample,1 kB", repeat=1)["caches"] == "cold"


def test_mistakes_are_said_once_and_nothing_is_left_behind(place: Path) -> None:
    assert "E104" in only_error(compare(place, 3, "--vary", "apj=posix,mpi-independent"), status=2)
    done = compare(place, 2, "--vary", "api=posix")
    assert done.returncode == 2 and "nothing to compare" in done.stderr
    assert not (place / "out").exists() and not (place / "data").exists()


def test_results_of_another_comparison_are_not_written_over(place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "compare.json").write_text("{}")
    done = compare(place, 1, "--vary", "api=posix,mpi-independent")
    assert done.returncode == 2 and "results of another" in done.stderr


def test_a_run_and_a_comparison_never_share_a_directory(place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "results.json").write_text("{}")
    done = compare(place, 1, "--vary", "api=posix,mpi-independent")
    assert done.returncode == 2 and "results of another" in done.stderr


def test_saves_are_compared_and_nothing_of_them_is_left(place: Path) -> None:
    (place / "tiny.dlio").write_text(HEAD + SAVES)
    # What was saved there before has the same description as the first variant, and stays as it is.
    before = run_command(3, ["run", str(place / "tiny.dlio"), "--dir", str(place / "data")], place)
    assert before.returncode == 0, before.stderr
    there = left_in(place / "data")
    stale = place / "data" / "c" / "compare-1" / "0123456789abcdef" / "000007"  # of a comparison that was killed
    stale.mkdir(parents=True)
    (stale / "000000.ckpt").write_bytes(b"stale")
    writers = "writers=into file per rank,all ranks into shared file,one per 2 ranks,rank 0,rank 3"
    found = outcome(place, 3, "--vary", writers, repeat=1)
    assert (found["what"], found["checkpoint"], found["caches"], found["reference"]) == (
        "save",
        "c",
        "",
        "writers=into file per rank",
    )
    assert len(found["variants"]) == 4 and {one["reason"] for one in found["not_run"]} == {"rank 3 does not exist"}
    passes = [one for variant in found["variants"] for one in variant["passes"]]
    assert {one["bytes"] for one in passes} == {300_000 + 3 * 1001} and all(one["stall_seconds"] > 0 for one in passes)
    assert [variant["files"] for variant in found["variants"]] == [3, 1, 2, 1]
    assert left_in(place / "data") == there


def left_in(directory: Path) -> dict[Path, tuple[int, bytes] | None]:
    """Everything below a directory, files with when they were written and what they hold."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes()) if path.is_file() else None for path in directory.rglob("*")
    }


def test_each_variant_restores_what_it_has_saved_itself(place: Path) -> None:
    (place / "tiny.dlio").write_text(HEAD + SAVES + "restore c\n")
    vary = ("--vary", "api=posix,mpi-independent", "--vary", "reads=own part,everything")
    found = outcome(place, 2, "--what", "restore", *vary, repeat=2)
    assert (found["what"], found["caches"]) == ("restore", "cold")
    saved = 300_000 + 2 * 1001
    assert [variant["bytes"] for variant in found["variants"]] == [saved, 2 * saved] * 2
    assert all(one["resident_share"] is not None for variant in found["variants"] for one in variant["passes"])
    assert list((place / "data").iterdir()) == []


def test_a_loop_that_saves_says_what_that_took_and_leaves_nothing(place: Path) -> None:
    train = TRAIN.replace("}", "    checkpoint c every epoch\n}")
    (place / "tiny.dlio").write_text(HEAD + DATASET + CHECKPOINT + PREPARE + train)
    found = outcome(place, 2, "--vary", "writers=into file per rank,rank 0", repeat=1)
    assert found["what"] == "loop" and all(variant["checkpoint_seconds"] > 0 for variant in found["variants"])
    assert [path.name for path in (place / "data").iterdir()] == ["d"]


def test_a_save_has_no_caches_to_be_treated(place: Path) -> None:
    (place / "tiny.dlio").write_text(HEAD + SAVES)
    done = compare(place, 2, "--vary", "fsync=on,off", "--caches", "cold")
    assert done.returncode == 2 and done.stderr.count("a save reads nothing that caches could hold") == 1


def test_there_must_be_room_for_the_largest_save_before_any_is_written(place: Path) -> None:
    (place / "tiny.dlio").write_text(HEAD + SAVES.replace("300 kB", "900 TB"))
    assert "R402" in only_error(compare(place, 1, "--vary", "fsync=on,off"), status=1)
    assert list((place / "data").iterdir()) == [] and not (place / "out").exists()


STORAGE = "dlio 1\nstorage slow {\n servers 1 of 20 MB/s\n writes 10 MB/s\n latency 1 ms\n}\n"


def test_variants_on_a_described_storage_are_marked_and_make_no_file(place: Path) -> None:
    (place / "slow.dlio").write_text(STORAGE)
    # A save that no description covers, and that a comparison of the loop leaves out.
    saved = CHECKPOINT.replace("path ", "metadata on\n    path ")
    (place / "tiny.dlio").write_text(HEAD + DATASET + saved + PREPARE + TRAIN + "save c\n")
    storage = ("--storage", str(place / "slow.dlio"), "-D", "slow.latency=2 ms")
    found = outcome(place, 2, *storage, "--vary", "readers=0,2", "-D", "train.compute=8 ms")
    assert (found["modelled"], found["answer"]["source"], found["caches"]) == ("slow", "modelled", "")
    assert found["answer"]["use"] == "readers=2"
    assert not list((place / "data").glob("*"))


def test_saves_on_a_described_storage_are_compared_and_caches_refused(place: Path) -> None:
    (place / "tiny.dlio").write_text(HEAD + SAVES)
    (place / "slow.dlio").write_text(STORAGE)
    storage = ("--storage", str(place / "slow.dlio"))
    found = outcome(place, 2, *storage, "--vary", "transfer=3 kB,300 kB")
    assert found["answer"]["use"] == "transfer=300 kB"
    assert not list((place / "data").glob("*"))
    done = compare(place, 2, *storage, "--vary", "transfer=3 kB,300 kB", "--caches", "cold")
    assert "a run on a described storage reads nothing that caches could hold" in only_error(done, 2)
