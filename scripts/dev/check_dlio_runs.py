#!/usr/bin/env python
"""Compare published runs of DLIO with their plans, and their figures with one another.

    scripts/dev/check_dlio_runs.py RESULTS

RESULTS is a tree of folders of runs with `.hydra`, as HpcResearchLaboratory/perf_2025 has it. A row for each run, in
order of time; docs/evidence/published.md has the table. What follows from numbers of the files:

- MB/s: DLIO multiplies samples/s by the configured length, so it is worked out again with the bytes of the files.
- Files: DLIO draws sizes with a fixed seed, so the bytes of each file are known. The runs before it in the same
  directory say which files a run read. Each run wrote down the page cache of its node, which has to change by the bytes
  that were written.
- Samples/s: of the steps that AU counts, and of whole epochs with their first steps.

Status 1 if a run did other steps than its plan, or if MB/s is not samples/s x length / 2^20.
"""

from __future__ import annotations

import json
import math
import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from harness import ROOT, header, orderly, row

sys.path.insert(0, str(ROOT))

from dliosim.dlio.config import Config, read_config
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast

#: numpy's seed in the generators of DLIO (argonne-lcf/dlio_benchmark @28aaf34, data_generator/npz_generator.py).
SEED = 10


@dataclass
class Run:
    """A run of DLIO, as its files describe it."""

    began: datetime  #: when it began
    changed: str  #: overrides, without those of the workflow
    directory: str  #: where it ran
    config: Config  #: its configuration
    file: Path  #: the file of it
    summary: dict[str, Any]  #: summary.json
    outputs: list[dict[str, Any]]  #: R_output.json of each rank
    spans: dict[str, Any]  #: per_epoch_stats of rank 0
    cached: float = field(init=False)  #: page cache of the node when it began, GB

    def __post_init__(self) -> None:
        self.cached = int(self.outputs[0]["host_meminfo"]["Cached"].split()[0]) * 1024 / 1e9

    @property
    def trains(self) -> bool:
        return self.config.flag("workflow.train", default=True)

    @property
    def lengths(self) -> tuple[float, float, int]:
        """Length of a sample, its standard deviation, and the number of files, as configured."""
        length = self.config.number("dataset.record_length_bytes")
        return length, self.config.number("dataset.record_length_bytes_stdev"), self.summary["num_files_train"]

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return len(self.outputs[0]["1"]["proc"]["block1"])

    @property
    def step_samples(self) -> int:
        """Samples of a step of all ranks."""
        return int(self.summary["num_accelerators"] * self.config.integer("reader.batch_size"))

    @property
    def window_rate(self) -> float:
        """Samples/s of the steps that AU counts, two or more: AU x ranks x batch / computation time, as it was."""
        computes = [output[epoch]["compute"]["block1"][1:] for output in self.outputs for epoch in self.spans]
        share = self.summary["metric"]["train_au_mean_percentage"] / 100
        return float(share * self.step_samples / np.mean(computes))

    @property
    def whole_rate(self) -> float:
        """Samples/s of whole epochs, the first steps included, by the time stamps of rank 0."""
        ends = [[datetime.fromisoformat(one["block1"][end]) for end in ("start", "end")] for one in self.spans.values()]
        seconds = sum((end - start).total_seconds() for start, end in ends)
        return self.steps * len(self.spans) * self.step_samples / seconds


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_run(folder: Path) -> Run:
    summary = read_json(folder / "summary.json")
    overrides = (folder / ".hydra/overrides.yaml").read_text(encoding="utf-8")
    changed = re.findall(
        r"^- \+\+workload\.(?!workflow\.(?:generate_data|train|evaluation))(\S+)", overrides, re.MULTILINE
    )
    (directory,) = re.findall(
        r"^\s+cwd: (\S+)", (folder / ".hydra/hydra.yaml").read_text(encoding="utf-8"), re.MULTILINE
    )
    config = folder / ".hydra/config.yaml"
    return Run(
        datetime.strptime(folder.name, "%Y-%m-%d-%H-%M-%S"),
        ", ".join(each.partition(".")[2] for each in changed),
        directory,
        read_config(config),
        config,
        summary,
        [read_json(folder / f"{rank}_output.json") for rank in range(summary["num_accelerators"])],
        read_json(folder / "0_per_epoch_stats.json"),
    )


def draw_total(length: float, stdev: float, files: int) -> int:
    """Return the bytes of all files that DLIO draws: squares with sides of a normal distribution."""
    draws = np.random.RandomState(SEED).normal(int(math.sqrt(length)), stdev / 2 / math.sqrt(length), 2 * files)
    sides = np.maximum(draws.astype(np.int64), 1)
    return int((sides[::2] * sides[1::2]).sum())


def write_row(run: Run, on_disk: tuple[float, float, int]) -> bool:
    """Print a run and its plan; `on_disk` are the lengths of the files there. Return False if something differs."""
    ranks = run.summary["num_accelerators"]
    phases = forecast(compile_pattern(run.file, (), Job(ranks))[0]).phases
    files, names = draw_total(*on_disk), f"{ranks}, {run.changed}" if run.changed else f"{ranks}"
    stored = f"{files / 1e9:.4g}", f"{run.cached:.1f}"
    if not run.trains:
        (planned,) = (phase for phase in phases if phase.verb == "prepare")
        row(f"{run.began:%H:%M:%S}", f"{names}: generates", *[""] * 7, f"{planned.bytes.total / 1e9:.4g}", *stored)
        return True
    planned = next(phase for phase in phases if phase.verb == "train")
    metric = run.summary["metric"]
    rate, nominal = (
        metric[f"train_{name}"] for name in ("throughput_mean_samples_per_second", "io_mean_MB_per_second")
    )
    row(
        f"{run.began:%H:%M:%S}",
        names,
        run.steps,
        f"{metric['train_au_mean_percentage']:.1f}",
        f"{rate:.1f}",
        f"{nominal:.0f}",
        f"{rate * files / on_disk[2] / 2**20:.0f}",
        f"{run.window_rate:.1f}" if run.steps > 1 else "none",
        f"{run.whole_rate:.1f}",
        f"{planned.bytes.total / 1e9:.4g}",
        *stored,
    )
    return run.steps == planned.steps and math.isclose(nominal, rate * run.lengths[0] / 2**20, rel_tol=1e-9)


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    folders = [file.parent for file in parser.parse_args().results.rglob("summary.json")]
    runs = sorted(map(read_run, folders), key=lambda run: run.began)
    rates = "samples/s", "MB/s", "MB/s by files", "samples/s, counted", "samples/s, whole epochs"
    header("began", "ranks, changed", "steps", "AU, %", *rates, "plan, GB", "files, GB", "page cache, GB")
    written: dict[tuple[str, str], tuple[float, float, int]] = {}
    differing = []
    for run in runs:
        key = run.directory, run.config.text("dataset.format")
        if key not in written or not run.trains:
            written[key] = run.lengths
        if not write_row(run, written[key]):
            differing.append(f"{run.began:%H:%M:%S}")
    print(f"\nother steps than planned, or MB/s that is not samples/s x length: {', '.join(differing) or 'none'}")
    return int(bool(differing))


if __name__ == "__main__":
    orderly(main)
