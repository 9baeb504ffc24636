#!/usr/bin/env python
"""Compare our formulas of DLIO's figures with the figures that real runs of DLIO wrote.

    scripts/dev/check_dlio_files.py RESULTS

RESULTS is a tree of folders of runs (summary.json, R_output.json, R_per_epoch_stats.json, config.yaml). Times of steps
come from R_output.json; dliosim works out blocks, epochs and the summary from them.

A block has two figures, AU and samples/s, and one time that DLIO keeps for itself: its end - its begin, by `time()`.
It takes the time stamps of per_epoch_stats.json a little later. So the time of a block is worked out from DLIO's
samples/s (from its AU where that is 0), and then both figures have to agree. A second table has what the stamps say.
Status 1 if no version fits all blocks, or if a figure of an epoch or of the run differs.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from harness import ROOT, header, orderly, row

sys.path.insert(0, str(ROOT))

from dliosim.commands.dlio_summary import host_content, loop_metric
from dliosim.dlio.config import Config, read_config
from dliosim.dlio.known_keys import VERSIONS, Version
from dliosim.measure.rank.records import LoggedCheckpoint
from dliosim.report.files.dlio_ranks import (
    Block,
    RankEpoch,
    block_throughput,
    block_utilization,
    epoch_stats,
    rank_output,
)

#: A block's time is kept in ns here, and a float in DLIO.
TOLERANCE = 1e-6

#: Folders that have the configuration of a run, by versions.
CONFIG_FOLDERS = (".hydra", "dlio_config", "configs")

#: Blocks of less are of runs that only try something, s.
SHORT = 1.0


@dataclass(frozen=True)
class RealBlock:
    """A block of one rank, as DLIO wrote it."""

    block: Block  #: its steps, and its time by the stamps
    utilization: float  #: DLIO's AU, %
    throughput: float  #: DLIO's samples/s
    batch: int  #: samples of a step
    saved: bool  #: the epoch has a checkpoint

    def block_by_figures(self, version: Version) -> Block:
        """Return the block with the time that DLIO's figures have by the formulas of a version."""
        proc, counted = float(self.block.proc[0]), len(self.block.load) - version.left_out_steps
        if self.throughput and counted:
            total = counted * self.batch / self.throughput
            seconds = total + proc if version.left_out_steps else total
        elif self.utilization:
            seconds = 100 * float(self.block.compute_for(version)[1:].sum()) / self.utilization + proc
        else:
            return self.block
        return replace(self.block, ended=self.block.begun + round(seconds * 1e9))

    def differences(self, version: Version, block: Block) -> tuple[float, float]:
        """Return the relative differences of AU and samples/s from DLIO's, by the time that `block` has."""
        ours = block_utilization(block, version), block_throughput(block, version, self.batch)
        theirs = self.utilization, self.throughput
        share, rate = (relative(one, other) for one, other in zip(ours, theirs, strict=True))
        return share, rate


@dataclass
class RealRun:
    """The files of one run of DLIO."""

    folder: Path  #: where they are
    config: Config  #: its configuration
    summary: dict[str, Any]  #: summary.json
    blocks: list[list[list[RealBlock]]] = field(default_factory=list)  #: of each rank and epoch
    outputs: list[dict[str, Any]] = field(default_factory=list)  #: R_output.json of each rank
    stats: list[dict[str, Any]] = field(default_factory=list)  #: R_per_epoch_stats.json of each rank


def relative(ours: float, theirs: float) -> float:
    """Return the relative difference of two figures, 0 for two zeros."""
    return abs(ours - theirs) / max(abs(ours), abs(theirs), 1e-300)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_stamp(text: str) -> int:
    """Return a time stamp, ns since 1970 with no regard to its zone."""
    return round((datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds() * 1e6) * 1000


def read_run(folder: Path) -> RealRun:
    """Read the files of a run. `load` of a block has all until compute began: DLIO logs a line in between."""
    config = next(file for name in CONFIG_FOLDERS if (file := folder / name / "config.yaml").exists())
    run = RealRun(folder, read_config(config), read_json(folder / "summary.json"))
    batch = run.config.integer("reader.batch_size", default=1)
    for rank in range(run.summary["num_accelerators"]):
        output = read_json(folder / f"{rank}_output.json")
        stats_file = folder / f"{rank}_per_epoch_stats.json"
        stats = read_json(stats_file if stats_file.exists() else folder / "per_epoch_stats.json")
        run.outputs.append(output)
        run.stats.append(stats)
        epochs = []
        for number, spans in stats.items():
            names = [name for name in output.get(number, {}).get("proc", {}) if name.startswith("block")]
            saved = any("ckpt" in name for name in spans)
            epochs.append([read_block(output[number], spans[name], name, batch, saved) for name in names])
        run.blocks.append(epochs)
    return run


def read_block(epoch: dict[str, Any], span: dict[str, Any], name: str, batch: int, saved: bool) -> RealBlock:
    proc, compute = (np.array(epoch[key][name]) for key in ("proc", "compute"))
    block = Block(read_stamp(span["start"]), read_stamp(span["end"]), proc - compute, compute, compute)
    return RealBlock(block, epoch["au"][name], epoch["throughput"][name], batch, saved)


def compare_blocks(blocks: list[RealBlock]) -> Version | None:
    """Print how many blocks each version's formulas fit; return the first version that fits all of them."""
    header("formulas of", "blocks", "fit", "AU differs by", "samples/s by")
    fitting = None
    for name in "2.0.0", "mlperf-v2", "mlperf-v3":
        version = VERSIONS[name]
        pairs = [one.differences(version, one.block_by_figures(version)) for one in blocks]
        fit = sum(max(pair) < TOLERANCE for pair in pairs)
        row(name, len(blocks), fit, *(f"{max(column):.2g}" for column in zip(*pairs, strict=True)))
        if fit == len(blocks):
            fitting = fitting or version
    return fitting


def compare_stamps(blocks: list[RealBlock], version: Version) -> None:
    """Print how far the time stamps of blocks are from the times that DLIO's figures have."""
    print("\nwith the times of the stamps\n")
    header("blocks", "number", "end of the stamps - of the figures, µs", "AU differs by", "samples/s by")
    groups = {
        f"shorter than {SHORT:g} s": [one for one in blocks if one.block.seconds < SHORT],
        "no checkpoint": [one for one in blocks if one.block.seconds >= SHORT and not one.saved],
        "epoch with checkpoint": [one for one in blocks if one.block.seconds >= SHORT and one.saved],
    }
    for name, group in groups.items():
        if group:
            late = [(one.block.ended - one.block_by_figures(version).ended) / 1000 for one in group]
            pairs = zip(*(one.differences(version, one.block) for one in group), strict=True)
            worst = (f"{max(column):.2g}" for column in pairs)
            row(name, len(group), f"{min(late):+.0f} to {max(late):+.0f}", *worst)


def list_key_differences(run: RealRun, version: Version) -> Iterator[str]:
    """Yield keys of the files of rank 0 that only DLIO (-) or only dliosim (+) writes of such a run."""
    step = Block(0, 1, np.ones(1), np.ones(1), np.ones(1))
    epochs = []
    for number, blocks in zip(run.stats[0], run.blocks[0], strict=True):
        kinds = [("save", "save_ckpt"), ("restore", "load_ckpt"), ("save", "ckpt")]
        saved = [
            LoggedCheckpoint(kind, 0, 1, 1)
            for kind, part in kinds
            for name in run.stats[0][number]
            if name.startswith(part)
        ]
        evaluations = ((step, 1),) if "eval" in run.stats[0][number] else ()
        epochs.append(RankEpoch(0, 1, tuple(one.block for one in blocks), evaluations, tuple(saved)))
    output = rank_output(epochs, version, 0) | host_content(1, 1, 0)
    pairs = [("output", run.outputs[0], output), ("per_epoch_stats", run.stats[0], epoch_stats(epochs, version, 0))]
    for file, theirs, ours in pairs:
        for where, real, own in ("", theirs, ours), (" epoch", theirs.get("1", {}), ours.get("1", {})):
            yield from (f"-{key} ({file}{where})" for key in real.keys() - own.keys())
            yield from (f"+{key} ({file}{where})" for key in own.keys() - real.keys())


def compare_summary(run: RealRun, version: Version) -> dict[str, float]:
    """Return the relative difference of each figure of training, from those that DLIO has of its blocks."""
    rows = [
        [RankEpoch(0, epoch[0].batch, tuple(one.block_by_figures(version) for one in epoch), (), ()) for epoch in rank]
        for rank in run.blocks
    ]
    figures = np.array([[epoch.training(version) for epoch in rank] for rank in rows])
    size = run.config.number("dataset.record_length_bytes", "dataset.record_length", default=65536)
    ours = loop_metric("train", figures, size, run.config.number("metric.au", default=0.9))
    theirs = {key: value for key, value in run.summary["metric"].items() if key.startswith("train")}
    differences = dict.fromkeys(ours.keys() ^ theirs.keys(), 1.0)
    for key in ours.keys() & theirs.keys():
        if isinstance(theirs[key], str):
            differences[key] = float(ours[key] != theirs[key])
        else:
            pairs = zip(np.atleast_1d(ours[key]), np.atleast_1d(theirs[key]), strict=True)
            differences[key] = max(relative(one, other) for one, other in pairs)
    return differences


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    folders = sorted(file.parent for file in parser.parse_args().results.rglob("summary.json"))
    runs = [read_run(folder) for folder in folders]
    blocks = [block for run in runs for rank in run.blocks for epoch in rank for block in epoch]
    trained = [run for run in runs if any(map(any, run.blocks))]
    print(f"{len(runs)} runs, {len(trained)} with training\n")
    version = compare_blocks(blocks)
    if version is None:
        print("\nno version's formulas fit all blocks")
        return 1
    if not version.is_first_generation:  # its stamps are those of rank 0
        compare_stamps(blocks, version)
    worst: dict[str, float] = {}
    for run in trained:
        for key, value in compare_summary(run, version).items():
            worst[key] = max(worst.get(key, 0.0), value)
    print("\nsummary.json from the blocks\n")
    header("figure", "runs", "differs by")
    for key, value in sorted(worst.items()):
        row(key, len(trained), f"{value:.2g}")
    keys = sorted({key for run in trained for key in list_key_differences(run, version)})
    print(f"\nkeys that only DLIO (-) or only dliosim (+) writes: {', '.join(keys) or 'none'}")
    return int(max(worst.values()) > TOLERANCE)


if __name__ == "__main__":
    orderly(main)
