"""The files that rank 0 of DLIO writes about a whole run: its summary, and the folder of its configuration."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import dliosim
from dliosim.dlio.known_keys import Version
from dliosim.measure.results.file_phases import FilePhase
from dliosim.measure.results.run_summary import RunSummary
from dliosim.model import Loop, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.report.files.dlio_ranks import stamp

#: What stands in the summary and on the terminal.
NOT_DLIO: Final = "measured by dliosim, not by DLIO: no result of DLIO or MLPerf Storage"

_GIB: Final = 2**30

#: Folders of the configuration, by version: MLPerf Storage names its own (`hydra.output_subdir`).
_CONFIG_FOLDERS: Final = {"mlperf-v1": "configs", "mlperf-v2": "dlio_config", "mlperf-v3": "dlio_config"}

#: DLIO's names of formats, where they are others.
_FORMATS: Final = {"raw": "indexed_binary"}

#: The begin of an override of a key, which DLIO has in `workload`.
_KEY: Final = re.compile(r"^\+\+(?:workload\.)?")


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the job, as DLIO describes it."""

    #: processors
    cpus: int
    #: bytes of memory
    memory: int


def read_proc(path: str) -> dict[str, str]:
    """Return the lines `name : value` of a file of /proc; of several blocks the last. Empty if it cannot be read."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def host_content(node: Node, caching: int) -> dict[str, Any]:
    """Return what `R_output.json` says of a rank's node."""
    return {
        "host_memory_GB": node.memory / _GIB,
        "host_cpu_count": node.cpus,
        "host_processor_name": "",
        "hostname": os.uname().nodename,
        "potential_caching": caching,
        "host_cpuinfo": read_proc("/proc/cpuinfo"),
        "host_meminfo": read_proc("/proc/meminfo"),
    }


def find_loops(workload: Workload) -> tuple[Loop | None, Loop | None]:
    """Return the first loop that trains, and its evaluation."""
    loops = (verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Loop) and verb.kind == "train")
    train = next(loops, None)
    return train, next((one.loop for one in train.evaluations), None) if train is not None else None


def bytes_per_node(workload: Workload, ranks: int) -> float:
    """Return the bytes of the data of training that a node with this number of ranks reads, by DLIO's formula."""
    loop, _ = find_loops(workload)
    dataset = None if loop is None else workload.read_dataset(loop)
    if dataset is None:
        return 0.0
    files = dataset.layout.files
    return ranks * -(-dataset.samples // files) * (files // workload.job.ranks) * dataset.size.nonnegative_mean()


def summary_content(
    run: RunSummary,
    workload: Workload,
    version: Version,
    figures: Sequence[NDArray[np.float64]],
    nodes: Sequence[Node],
    started: float,
    place: str,
) -> dict[str, Any]:
    """Return summary.json. `figures` are AU in percent and samples/s of training, then of evaluation.

    Their shape is (ranks, epochs, 2). Bandwidths are DLIO's, of the nominal size of samples; `dliosim` has what was
    read. `started` is in s since 1970, and `place` is the directory of all results.
    """
    loops = find_loops(workload)
    counts = [_count_files(workload, loop) for loop in loops]
    node_bytes = bytes_per_node(workload, run.environment.ranks_per_node)
    metric: dict[str, Any] = {}
    for prefix, loop, rows in zip(("train", "eval"), loops, figures, strict=True):
        if loop is not None and rows.shape[1]:
            metric |= loop_metric(prefix, rows, _mean_size(workload, loop), _goal(run))
    for prefix, phases in ("save", run.saves), ("load", run.restores):
        metric |= {} if version.is_first_generation else _checkpoint_metric(f"{prefix}_checkpoint", phases)
    return {
        "start": stamp(round(started * 1e9)),
        "num_accelerators": run.ranks,
        "num_hosts": run.nodes,
        "hostname": dict(run.environment.details).get("first host", ""),
        "metric": metric,
        "num_files_train": counts[0][0],
        "num_files_eval": counts[1][0],
        "num_samples_per_file": counts[0][1],
        "host_cpu_count": [node.cpus for node in nodes],
        "host_processor_name": "",
        "potential_caching": [int(node_bytes <= node.memory) for node in nodes],
        "host_cpuinfo": read_proc("/proc/cpuinfo"),
        "host_meminfo": read_proc("/proc/meminfo"),
        "host_memory_GB": [node.memory / _GIB for node in nodes],
        "data_size_per_host_GB": node_bytes / _GIB,
        "epochs": figures[0].shape[1],
        "end": stamp(round((started + run.seconds) * 1e9)),
        "dliosim": {
            "note": NOT_DLIO,
            "version": dliosim.__version__,
            "formulas": version.name,
            "results": place,
            "storage": run.modelled or ("null" if run.null else "files"),
            "read_MiB_per_second": [
                epoch.bytes_moved / 2**20 / epoch.loop_seconds if epoch.loop_seconds else 0.0
                for phase in run.loops
                if phase.kind == "train"
                for epoch in phase.epochs
            ],
        },
    }


def _goal(run: RunSummary) -> float:
    """Return the utilization that the pattern expects."""
    return next((answer.goal for answer in run.answers), 0.9)


def _count_files(workload: Workload, loop: Loop | None) -> tuple[int, int]:
    """Return the files that a loop reads, and the samples in each."""
    dataset = None if loop is None else workload.read_dataset(loop)
    return (0, 0) if dataset is None else (dataset.layout.files, -(-dataset.samples // dataset.layout.files))


def _mean_size(workload: Workload, loop: Loop) -> float:
    dataset = workload.read_dataset(loop)
    return 0.0 if dataset is None else dataset.size.nonnegative_mean()


def _spread(name: str, values: NDArray[np.float64], unit: str) -> dict[str, float]:
    """Return mean and population standard deviation, as DLIO has them."""
    return {f"{name}_mean_{unit}": float(values.mean()), f"{name}_stdev_{unit}": float(values.std())}


def loop_metric(prefix: str, rows: NDArray[np.float64], size: float, goal: float) -> dict[str, Any]:
    """Return the figures of training (`train`) or of evaluation (`eval`) from AU and samples/s, (ranks, epochs, 2).

    `size` is the bytes of a sample, and `goal` the AU that is expected, a ratio. Every version of DLIO means to add
    the ranks' evaluations, and joins their lists: an entry each, AU divided by the number of ranks. This is kept.
    """
    shares, rates = rows[:, :, 0].mean(axis=0), rows[:, :, 1].sum(axis=0)
    if prefix == "eval":
        shares, rates = rows[:, :, 0].ravel() / len(rows), rows[:, :, 1].ravel()
    name = f"{prefix}_throughput"
    return {
        f"{prefix}_au_percentage": shares.tolist(),
        **_spread(f"{prefix}_au", shares, "percentage"),
        f"{prefix}_au_meet_expectation": "success" if shares.mean() >= 100 * goal else "fail",
        f"{name}_samples_per_second": rates.tolist(),
        **_spread(name, rates, "samples_per_second"),
        **_spread(f"{prefix}_io", rates * size / 2**20, "MB_per_second"),
    }


def _checkpoint_metric(prefix: str, phases: Sequence[FilePhase]) -> dict[str, float]:
    """Return the figures of saves or restores: means of their rates, of the slowest rank; none without any."""
    if not phases:
        return {}
    seconds = np.array([phase.verb.seconds for phase in phases])
    sizes = np.array([phase.verb.bytes for phase in phases], float)
    return {
        **_spread(f"{prefix}_io", sizes / _GIB / np.maximum(seconds, 1e-9), "GB_per_second"),
        **_spread(f"{prefix}_duration", seconds, "seconds"),
        "checkpoint_size_GB": float(sizes[0]) / _GIB,
    }


def config_files(
    run: RunSummary, workload: Workload, version: Version, names: Mapping[str, str], overrides: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the files of the configuration and their contents: what ran, under DLIO's names.

    `names` has `workload`, `model`, and `root`, the directory of data. JSON is YAML, so no library is needed to write
    it; but scripts of the first generation read the lines of overrides.yaml as they are.
    """
    folder = _CONFIG_FOLDERS.get(version.name, ".hydra")
    task = [f"workload={names['workload']}", *(_KEY.sub("++workload.", text) for text in overrides)]
    yield f"{folder}/config.yaml", {"workload": _config(run, workload, version, names)}
    yield f"{folder}/overrides.yaml", "".join(f"- {_quote(text)}\n" for text in task)
    yield f"{folder}/hydra.yaml", {"hydra": {"overrides": {"task": task}}}


def _quote(text: str) -> str:
    """Return a text as YAML, without quotes if it needs none."""
    return text if re.fullmatch(r"[\w+~][\w+.=/-]*", text) else json.dumps(text)


def _config(run: RunSummary, workload: Workload, version: Version, names: Mapping[str, str]) -> dict[str, Any]:
    train, evaluation = find_loops(workload)
    checkpoints = bool(run.saves or run.restores or (train is not None and train.checkpoints))
    content: dict[str, Any] = {
        "model": names["model"] if version.is_first_generation else {"name": names["model"]},
        "workflow": {
            "generate_data": train is None and not checkpoints,
            "train": train is not None,
            "evaluation": evaluation is not None,
            "checkpoint": checkpoints,
        },
        "output": {"log_file": "dlio.log"},
    }
    if train is not None:
        (files, samples), (eval_files, _) = _count_files(workload, train), _count_files(workload, evaluation)
        size, dataset = _mean_size(workload, train), workload.read_dataset(train)
        content["dataset"] = {
            "data_folder": names["root"],
            "format": "synthetic" if dataset is None else _FORMATS.get(dataset.format, dataset.format),
            "num_files_train": files,
            "num_files_eval": eval_files,
            "num_samples_per_file": samples,
            "record_length" if version.is_first_generation else "record_length_bytes": round(size),
        }
        content["reader"] = {"batch_size": train.batch, "read_threads": train.access.readers}
        if evaluation is not None:
            content["reader"]["batch_size_eval"] = evaluation.batch
        content["train"] = {"epochs": train.epochs, "computation_time": train.compute.time.mean, "seed": workload.seed}
    if checkpoints:
        content["checkpoint"] = {
            "checkpoint_folder": names["root"],
            "fsync": workload.checkpoints[0].fsync,
            "num_checkpoints_write": len(run.saves),
            "num_checkpoints_read": len(run.restores),
        }
    return content
