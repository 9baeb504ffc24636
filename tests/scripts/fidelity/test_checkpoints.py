"""The comparison with PyTorch's checkpoints: patterns of the same state, and measures of the calls on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Restore, Save
from tests.scripts.fidelity import script

checkpoints = script("compare_checkpoints")
tensors = script("fidelity.tensors")
tracing = script("fidelity.tracing")

STATE = 4 * sum(each.rows * each.columns for each in tensors.tensors())


@pytest.mark.parametrize("case", checkpoints.CASES, ids=lambda case: case.name)
def test_every_case_has_a_pattern_of_the_whole_state(case: Any, tmp_path: Path) -> None:
    pattern = tmp_path / "case.dlio"
    for verb, ranks in (("save state", case.saving), (f"restore state{case.restore}", case.loading)):
        pattern.write_text(f"{case.pattern}{verb}\n")
        workload, _ = compile_pattern(pattern, [], Job(ranks))
        assert isinstance(workload.verbs[0], Save | Restore)
        (checkpoint,) = workload.checkpoints
        assert (sum(part.size for part in checkpoint.parts) == STATE) == (case.name != "dcp-framed")


def test_what_surrounds_tensors_is_as_much_on_each_rank() -> None:
    split = [each for each in tensors.tensors() if each.split != "whole"]
    lines = tensors.container_parts().splitlines()
    assert len(lines) == len(list(tensors.tensors())) + 2 * len(split)
    assert sum(line.endswith("per rank") for line in lines) == 2 * len(split)


def record(call: str, file: str, offset: int, returned: int, pid: int = 1) -> Any:
    return tracing.Record(pid, 1, 0.0, 0.0, call, file, offset, returned, returned)


def test_a_row_tells_data_from_lists_and_directories() -> None:
    one = [
        record("write", "a.distcp", 0, 5000),
        record("write", "a.distcp", 5000, 100),
        record("fsync", "a.distcp", -1, 0),
        record("write", ".metadata.tmp", 0, 70),
        record("fsync", ".metadata.tmp", -1, 0),
        record("rename", ".metadata", -1, 0),
    ]
    other = [
        record("pwrite64", "state/1/0.ckpt", 0, 5000),
        record("fsync", "state/1/0.ckpt", -1, 0),
        record("fsync", "state/1", -1, 0),
    ]
    row = dict(zip(checkpoints.HEAD, checkpoints.likeness("x", 1, [one], [other], tracing.WRITES), strict=True))
    assert row["calls that move bytes of tensors"] == "2 / 1"
    assert row["bytes"] == "5100 / 5000"
    assert row["fsync: data + lists + directories"] == "1 + 1 + 0 / 1 + 0 + 1"
    assert row["renames"] == "1 / 0"
    assert row["threads of a rank"] == "1"
    assert (row["same order of sizes"], row["the same above 4 KiB"]) == ("0.667", "1.000")
    assert row["sizes by count"] == "0.707"
