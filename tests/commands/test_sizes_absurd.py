"""Patterns that are far too large: `check`, `plan`, `--csv` answer or refuse with a line, within 1 GB and seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scripts.fidelity import script

ROOT = Path(__file__).parents[2]
TRYING = script("mutants.trying")

TINY = "0." + "0" * 56 + "1"

#: Lines of a data set, lines of a loop that reads it, ranks, and what `plan` says to it: 0 answered, 2 refused.
CASES = {
    "calls": ("samples 10_000; size 1 GB; layout shared file", "batch 4 per rank; transfer 4 KiB", 4, 0),
    "calls together": (
        "samples 10_000; size 1 GB; layout shared file",
        "batch 4 per rank; api mpi-collective; transfer 4 KiB",
        4,
        0,
    ),
    "most calls": ("samples 4; size 1 PB; layout shared file", "transfer 1 B", 1, 2),
    "heavy tail": ("samples 4; size normal(0 B, 1 PB); layout shared file", "transfer 1 B", 1, 2),
    "batch": ("samples 1_000_000_000_000; size 1 B; layout shared file", "batch 1_000_000_000_000 per rank", 1, 2),
    "large batch": (
        "samples 1_000_000_000_000; size 1 B; layout shared file",
        "batch 4_194_304 per rank; shuffle samples globally each epoch",
        64,
        0,
    ),
    "by file": ("samples 2_147_483_649; size 1 B; layout 2_147_483_647 files", "shard by file", 4, 2),
    "by file, even": ("samples 4_294_967_296; size 1 B; layout 2_147_483_648 files", "shard by file", 4, 0),
    "by file, ranks": ("samples 2_000_000_001; size 1 B; layout 1_073_741_823 files", "shard by file", 8192, 0),
    "within shard": (
        "samples 4_294_967_296; size 1 B; layout 2_147_483_648 files",
        "shuffle files within shard",
        4,
        2,
    ),
    "products": ("samples 3_000_000_001; size 1 B; layout 2_147_483_648 files", "batch 8 per rank", 4, 2),
    "buffer": (
        "samples 1_000_000_100; size 1 B; layout shared file",
        "shuffle samples within buffer of 1_000_000_000 samples",
        1,
        0,
    ),
    "parquet": ("samples 10_000_000; size 1 KiB; format parquet", "batch 8 per rank", 1, 2),
    "hdf5": ("samples 100_000_000; size 1 KiB; format hdf5", "batch 8 per rank", 4, 2),
    "hdf5 chunks": (
        "samples 100_000_000; size 1 KiB; format hdf5; layout 10_000 files; chunk 1 sample",
        "batch 8 per rank",
        4,
        0,
    ),
    "npz": ("samples 100_000_000; size 1 KiB; format npz; compress gzip", "batch 8 per rank", 4, 2),
    "gamma": (f"samples 100; size gamma({TINY} B, 1 PB); layout shared file", "", 1, 2),
    "lognormal": (f"samples 100; size lognormal({TINY} * {TINY} * {TINY} * 1 B, 1 B); layout shared file", "", 1, 2),
    "endless": ("samples 100; size gamma(1 B, 1000 PB); layout shared file", "", 1, 2),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """Return the end of each command for each case; they are forks of this process."""
    folder = tmp_path_factory.mktemp("absurd")
    TRYING.warm(ROOT / "patterns" / "cosmoflow.dlio")
    found = {}
    for name, (data, loop, ranks, _) in CASES.items():
        path = folder / f"{name}.dlio"
        lines = [*(f"    {line.strip()}" for line in data.split(";")), '    path "d"']
        read = ["    read d", *(f"    {line.strip()}" for line in loop.split(";"))]
        path.write_text("\n".join(["dlio 1", "workload w", "dataset d {", *lines, "}", "train l {", *read, "}", ""]))
        for words in (["check"], ["plan"], ["plan", "--csv"]):
            arguments = [*words, str(path), "--ranks", str(ranks)]
            found[name, " ".join(words)] = TRYING.attempt(arguments, folder / "errors")
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_is_far_too_large_is_answered_or_refused(answers: dict[tuple[str, str], Any], name: str) -> None:
    expected = CASES[name][3]
    for command in ("check", "plan", "plan --csv"):
        done = answers[name, command]
        assert "Traceback" not in done.err, command
        assert done.resident < TRYING.RESIDENT, command
        if command == "plan":
            assert done.status == expected, done.err
            assert done.status == 0 or TRYING.PLACE.search(done.err), done.err
        assert done.status in (0, 1, 2), (command, done.err)
        if done.status == 2:
            assert "error" in done.err, command
        else:
            assert done.out, command


def test_a_listing_of_a_trillion_samples_streams(answers: dict[tuple[str, str], Any]) -> None:
    done = answers["large batch", "plan --csv"]
    assert len(done.out) >= 2_000_000, done.status
    assert done.resident < TRYING.RESIDENT
