"""The files that rank 0 of DLIO writes about a whole run: its summary, and the folder of its configuration."""

from __future__ import annotations

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
from dliosim.model import Loop, Prepare, Restore, Save, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.report.files.dlio_ranks import stamp

#: What stands in the summary and on the terminal.
NOT_DLIO: Final = "measured by dliosim, not by DLIO: no result of DLIO or MLPerf Storage"

_GIB: Final = 2**30


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
            metric |= _loop_metric(prefix, rows, _mean_size(workload, loop), _goal(run))
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


def _loop_metric(prefix: str, rows: NDArray[np.float64], size: float, goal: float) -> dict[str, Any]:
    shares, rates = rows[:, :, 0].mean(axis=0), rows[:, :, 1].sum(axis=0)
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
    workload: Workload, version: Version, overrides: Sequence[str], places: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yield the files of the configuration and their contents: what ran, under DLIO's names.

    `places` are the data folder and the checkpoint folder. JSON is YAML, so no library is needed to write it.
    """
    folder = "dlio_config" if version.name.startswith("mlperf") else ".hydra"
    yield f"{folder}/config.yaml", {"workload": _config(workload, version, places)}
    yield f"{folder}/overrides.yaml", list(overrides)
    yield f"{folder}/hydra.yaml", {"hydra": {"overrides": {"task": list(overrides)}}}


def _config(workload: Workload, version: Version, places: Mapping[str, str]) -> dict[str, Any]:
    verbs = [verb for verb, _ in flatten_verbs(workload.verbs)]
    train, evaluation = find_loops(workload)
    saves = [times for verb, times in flatten_verbs(workload.verbs) if isinstance(verb, Save)]
    restores = [times for verb, times in flatten_verbs(workload.verbs) if isinstance(verb, Restore)]
    checkpoints = bool(saves or restores or (train is not None and train.checkpoints))
    generates = train is None and not checkpoints and any(isinstance(verb, Prepare) for verb in verbs)
    content: dict[str, Any] = {
        "model": {"name": workload.name} if not version.is_first_generation else workload.name,
        "framework": "dliosim",
        "workflow": {
            "generate_data": generates,
            "train": train is not None,
            "evaluation": evaluation is not None,
            "checkpoint": checkpoints,
        },
    }
    if train is not None:
        (files, samples), (eval_files, _) = _count_files(workload, train), _count_files(workload, evaluation)
        size, dataset = _mean_size(workload, train), workload.read_dataset(train)
        content["dataset"] = {
            "data_folder": places["data_folder"],
            "format": "" if dataset is None else dataset.format,
            "num_files_train": files,
            "num_files_eval": eval_files,
            "num_samples_per_file": samples,
            "record_length" if version.is_first_generation else "record_length_bytes": size,
        }
        content["reader"] = {"batch_size": train.batch, "read_threads": train.access.readers}
        content["train"] = {"epochs": train.epochs, "computation_time": train.compute.time.mean, "seed": workload.seed}
    if checkpoints:
        access = workload.checkpoints[0]
        content["checkpoint"] = {
            "checkpoint_folder": places["checkpoint_folder"],
            "fsync": access.fsync,
            "num_checkpoints_write": sum(saves),
            "num_checkpoints_read": sum(restores),
        }
    return content
