"""The files that DLIO would leave, with `run --dlio-summary`: each rank writes its own, and rank 0 those of the run."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dliosim.commands.job.setup import Setup
from dliosim.dlio import ENDINGS
from dliosim.dlio.known_keys import VERSIONS, guess_version
from dliosim.errors import HELP, UsageError
from dliosim.execute.io_errors import wrap_call
from dliosim.execute.node.memory import whole_memory
from dliosim.execute.phases.context import Session
from dliosim.measure.results.run_summary import RunSummary
from dliosim.model import Loop, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.report.files.dlio_ranks import epoch_stats, list_epochs, rank_output
from dliosim.report.files.dlio_summary import (
    NOT_DLIO,
    bytes_per_node,
    config_files,
    find_loops,
    host_content,
    summary_content,
)
from dliosim.report.files.results import write_atomic

_SUMMARY = "summary.json"

#: The version whose formulas results.json has, for a pattern that is no file of DLIO.
_USUAL = "mlperf-v2"


def choose_version(setup: Setup, workload: Workload) -> str:
    """Return the name of the version of DLIO whose files are written, on rank 0.

    Raises UsageError if the folder has those of another run, or if no loop trains.
    """
    folder, parsed = Path(setup.parsed.dlio_summary), setup.parsed
    loops = [verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Loop)]
    if loops and find_loops(workload)[0] is None:
        raise UsageError(f"--dlio-summary: DLIO has loops that train, and {workload.name} has none")
    if (folder / _SUMMARY).exists() or next(folder.glob(f"*/{_SUMMARY}"), None):
        cure = f"write `--dlio-summary {shlex.quote(f'{folder}-2')}`"
        raise UsageError(f"--dlio-summary {folder} has the {_SUMMARY} of another run{HELP}{cure}")
    if parsed.dlio is None and (keys := _read_keys(setup)):
        return guess_version(keys).name
    return parsed.dlio or _USUAL


def _read_keys(setup: Setup) -> Mapping[str, object]:
    """Return the keys of a workload file of DLIO by their dotted names; none for a pattern."""
    if not setup.parsed.pattern.endswith(ENDINGS):
        return {}
    from dliosim.dlio.config import read_config  # patterns do without it

    return read_config(Path(setup.parsed.pattern), setup.parsed.override).values


def _name_parts(setup: Setup, workload: Workload) -> dict[str, str]:
    """Return the names that the configuration has: DLIO calls a workload by its file."""
    called = Path(setup.parsed.pattern.removeprefix("workload=")).stem
    keys = _read_keys(setup)
    model = keys.get("model.name") or keys.get("model") or workload.name
    return {"workload": called, "model": str(model), "root": str(setup.parsed.dir)}


def write_dlio_files(setup: Setup, session: Session, run: RunSummary | None, name: str, place: Path | None) -> str:
    """Write the files of version `name`; return a sentence about them. Collective.

    `run` is on rank 0 alone, and `place` has its results. summary.json is the last file: if it is there, all are.
    Raises ExecutionError on every rank.
    """
    assert session.log is not None, "steps are kept with --dlio-summary"
    world, workload, version = session.world, session.workload, VERSIONS[name]
    folder, overrides = Path(setup.parsed.dlio_summary), setup.parsed.override
    epochs, offset = list_epochs(session.log), time.time_ns() - time.perf_counter_ns()
    cpus, memory = os.cpu_count() or 0, whole_memory() or 0
    host = host_content(cpus, memory / 2**30, int(bytes_per_node(workload, world.node.size) <= memory))
    files: dict[str, Any] = {f"{world.rank}_output.json": rank_output(epochs, version, offset) | host}
    if not version.is_first_generation:
        files[f"{world.rank}_per_epoch_stats.json"] = epoch_stats(epochs, version, offset)
    elif world.rank == 0:
        files["per_epoch_stats.json"] = epoch_stats(epochs, version, offset)
    world.run_on_all(lambda: _write_files(folder, files))
    rows = [[*epoch.training(version), *epoch.evaluation(version)] for epoch in epochs]
    figures = world.gather(np.array(rows, np.float64).reshape(len(epochs), 4))
    hosts = world.gather(np.array([cpus, memory, world.node.rank == 0], np.int64))

    def write_run() -> str:
        assert run is not None and figures is not None and hosts is not None, "rank 0 has what it gathered"
        nodes = hosts[hosts[:, 2] == 1, :2]
        config = config_files(run, workload, version, _name_parts(setup, workload), overrides)
        summary = summary_content(run, workload, version, figures, nodes, place)
        _write_files(folder, {**dict(config), "dlio.log": f"{NOT_DLIO}\n", _SUMMARY: summary})
        return f"DLIO's files, by {name}, though not by a run of DLIO: {folder}"

    return world.run_on_rank_0("write DLIO's files", write_run)


def _write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write files of text, or of JSON, in this order. Raises ExecutionError."""
    for name, content in files.items():
        path = folder / name
        with wrap_call("write", str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
            write_atomic(path, text.encode())
