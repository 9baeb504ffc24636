"""The check of real files of DLIO: which version's formulas they have."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dliosim.commands.dlio_summary import loop_metric
from dliosim.dlio.known_keys import VERSIONS
from dliosim.report.files.dlio_ranks import Block, RankEpoch, epoch_stats, rank_output
from tests.scripts.fidelity import script

checking = script("check_dlio_files")

CONFIG = """
workload:
  workflow: {train: true}
  dataset: {num_files_train: 8, record_length_bytes: 1048576}
  reader: {batch_size: 4}
"""


def write_run(folder: Path, version: str) -> Path:
    """Write the files of two ranks with two epochs of seven steps, by the formulas of a version."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text(CONFIG)
    figures = []
    for rank in range(2):
        load, compute = np.linspace(0.3, 0.01, 7), np.full(7, 0.2 + rank / 100)
        blocks = [Block(start, start + 3_000_000_000, load, compute, compute) for start in (0, 5_000_000_000)]
        epochs = [RankEpoch(block.begun, 4, (block,), (), ()) for block in blocks]
        contents = {"output": rank_output(epochs, VERSIONS[version], 0)}
        contents["per_epoch_stats"] = epoch_stats(epochs, VERSIONS[version], 0)
        for name, content in contents.items():
            (folder / f"{rank}_{name}.json").write_text(json.dumps(content, default=np.ndarray.tolist))
        figures.append([epoch.training(VERSIONS[version]) for epoch in epochs])
    summary = {"num_accelerators": 2, "metric": loop_metric("train", np.array(figures), 2**20, 0.9)}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.mark.parametrize("version", ["2.0.0", "mlperf-v2", "mlperf-v3"])
def test_files_have_the_formulas_of_their_version(tmp_path: Path, version: str) -> None:
    run = checking.read_run(write_run(tmp_path / "run", version))
    blocks = [block for rank in run.blocks for epoch in rank for block in epoch]
    assert len(blocks) == 4
    assert checking.compare_blocks(blocks) == VERSIONS[version]
    assert max(checking.compare_summary(run, VERSIONS[version]).values()) < checking.TOLERANCE


def test_a_figure_that_no_formula_gives_is_found(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "mlperf-v2")
    output = json.loads((folder / "1_output.json").read_text())
    output["2"]["au"]["block1"] *= 1.0001
    (folder / "1_output.json").write_text(json.dumps(output))
    run = checking.read_run(folder)
    assert checking.compare_blocks([block for rank in run.blocks for epoch in rank for block in epoch]) is None
