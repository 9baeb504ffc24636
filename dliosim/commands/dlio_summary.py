"""The files that DLIO would leave, with `run --dlio-summary`: each rank writes its own, and rank 0 those of the run."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import dliosim
from dliosim.commands.job.results_dir import check_directory
from dliosim.commands.job.setup import Setup
from dliosim.dlio import ENDINGS
from dliosim.dlio.known_keys import VERSIONS, Version, guess_version
from dliosim.errors import UsageError
from dliosim.execute.io_errors import wrap_call
from dliosim.execute.node.memory import whole_memory
from dliosim.execute.phases.context import Session
from dliosim.measure.reducer import Ints
from dliosim.measure.results.run_summary import FilePhase, RunSummary
from dliosim.model import Loop, Sources, Workload
from dliosim.model.expectation import GOAL
from dliosim.model.verbs import flatten_verbs
from dliosim.report.files.dlio_ranks import Floats, epoch_stats, list_epochs, rank_output, stamp
from dliosim.report.files.results import write_atomic

_SUMMARY = "summary.json"

#: What stands in the summary and on the terminal.
_NOT_DLIO: Final = "measured by dliosim, not by DLIO: no result of DLIO or MLPerf Storage"

_GIB: Final = 2**30

#: Folders of the configuration, by version: MLPerf Storage names its own (`hydra.output_subdir`).
_CONFIG_FOLDERS: Final = {"mlperf-v1": "configs", "mlperf-v2": "dlio_config", "mlperf-v3": "dlio_config"}

#: DLIO's names of formats, where they are others.
_FORMATS: Final = {"raw": "indexed_binary"}

#: The start of an override of a key, which DLIO has in `workload`.
_KEY: Final = re.compile(r"^\+\+(?:workload\.)?")

#: The version whose formulas results.json has, for a pattern that is no file of DLIO.
_USUAL = "mlperf-v2"


@dataclass(frozen=True, slots=True)
class DlioFiles:
    """The files that will be written, as far as they are known before the run."""

    version: str  #: version of DLIO whose files they are
    folder: str  #: absolute path of their directory
    keys: Mapping[str, object]  #: keys of a workload file of DLIO by their dotted names; none for a pattern


def plan_files(setup: Setup, workload: Workload) -> DlioFiles:
    """Return the files that will be written, on rank 0: other ranks may have another working directory.

    Raises UsageError if the folder has any file, or if no loop trains, or several read different data; OSError if no
    file can be made.
    """
    parsed, loops = setup.parsed, [verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Loop)]
    trained = {loop.dataset for loop in loops if loop.kind == "train"}
    read = [one for loop in loops for one in (loop, *(inner.loop for inner in loop.evaluations))]
    if any(isinstance(one.dataset, Sources) for one in read):
        raise UsageError(f"--dlio-summary: a loop of DLIO reads one data set, and one of {workload.name} several")
    if loops and not trained:
        raise UsageError(f"--dlio-summary: DLIO has loops that train, and {workload.name} has none")
    if len(trained) > 1:
        raise UsageError(f"--dlio-summary: DLIO trains with one data set, and {workload.name} also with others or none")
    check_directory("--dlio-summary", parsed.dlio_summary, "files, and DLIO's would be among them", ["*"])
    keys: Mapping[str, object] = {}
    if parsed.pattern.endswith(ENDINGS):
        from dliosim.dlio.config import read_config  # patterns do without it

        keys = read_config(Path(parsed.pattern), parsed.override).values
    guessed = guess_version(keys).name if keys else _USUAL
    return DlioFiles(parsed.dlio or guessed, str(Path(parsed.dlio_summary).absolute()), keys)


def write_dlio_files(setup: Setup, session: Session, run: RunSummary | None, files: DlioFiles, name: str) -> str:
    """Write the files, with --repeat those of run `name`; return a sentence about them. Collective.

    `run` is on rank 0 alone. summary.json is the last file: if it is there, all are. Raises ExecutionError on every
    rank.
    """
    assert session.log is not None, "steps are kept with --dlio-summary"
    world, workload, version = session.world, session.workload, VERSIONS[files.version]
    folder = Path(files.folder, name)
    epochs, offset = list_epochs(session.log), time.time_ns() - time.perf_counter_ns()
    cpus, memory = os.cpu_count() or 0, whole_memory() or 0
    host = host_content(cpus, memory / 2**30, int(bytes_per_node(workload, world.node.size) <= memory))
    of_rank: dict[str, Any] = {f"{world.rank}_output.json": rank_output(epochs, version, offset) | host}
    if not version.is_first_generation or world.rank == 0:
        rank = "" if version.is_first_generation else f"{world.rank}_"
        of_rank[f"{rank}per_epoch_stats.json"] = epoch_stats(epochs, version, offset)
    world.run_on_all(lambda: _write_files(folder, of_rank))
    rows = [[*epoch.training(version), *epoch.evaluation(version)] for epoch in epochs]
    figures = world.gather(np.array(rows, np.float64).reshape(len(epochs), 4))
    hosts = world.gather(np.array([cpus, memory, world.node.rank == 0], np.int64))

    def write_run() -> str:
        assert run is not None and figures is not None and hosts is not None, "rank 0 has what it gathered"
        nodes = hosts[hosts[:, 2] == 1, :2]
        config = dict(_config_files(setup, session, run, files))
        begun = round(setup.started.timestamp() * 1e9)
        summary = _summary_content(run, workload, version, figures, nodes, begun)
        _write_files(folder, {**config, "dlio.log": f"{_NOT_DLIO}\n", _SUMMARY: summary})
        return f"DLIO's files, by {version.name}, though not by a run of DLIO: {folder}"

    return world.run_on_rank_0("write DLIO's files", write_run)


def _write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write files of text, or of JSON, in this order. Raises ExecutionError."""
    for name, content in files.items():
        path = folder / name
        with wrap_call("write", str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, _encode(name, content))


def _encode(name: str, content: Any) -> bytes:
    """Return the bytes of a file. Those of steps are made epoch by epoch and without an indent: both take memory."""
    if not name.endswith("_output.json"):
        return (content if isinstance(content, str) else json.dumps(content, indent=1) + "\n").encode()
    lines = (f"{json.dumps(key)}: {json.dumps(value, default=np.ndarray.tolist)}" for key, value in content.items())
    return b"{\n" + b",\n".join(line.encode() for line in lines) + b"\n}\n"


def _read_proc(path: str) -> dict[str, str]:
    """Return the lines `name : value` of a file of /proc; of several blocks the last. Empty without that file."""
    text = Path(path).read_text(errors="replace") if Path(path).exists() else ""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def host_content(cpus: Any, memory: Any, caching: Any) -> dict[str, Any]:
    """Return what `R_output.json` says of a rank's node, and summary.json, by lists, of all nodes.

    `cpus` are processors, `memory` is in GiB, `caching` 1 if the memory holds what a node reads, else 0.
    """
    figures = {"host_cpu_count": cpus, "host_memory_GB": memory, "potential_caching": caching}
    files = {f"host_{name}": _read_proc(f"/proc/{name}") for name in ("cpuinfo", "meminfo")}
    return {"hostname": os.uname().nodename, "host_processor_name": "", **figures, **files}


def find_loops(workload: Workload) -> tuple[Loop | None, Loop | None]:
    """Return the first loop that trains, and its evaluation."""
    loops = (verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Loop) and verb.kind == "train")
    train = next(loops, None)
    return train, next((one.loop for one in train.evaluations), None) if train is not None else None


def _count_files(workload: Workload, loop: Loop | None) -> tuple[int, int, float]:
    """Return the files that a loop reads, the samples in each, and their mean size in bytes; 0 if it reads none."""
    dataset = None if loop is None else workload.read_dataset(loop)
    if dataset is None:
        return 0, 0, 0.0
    files = dataset.layout.files
    return files, -(-dataset.samples // files), dataset.size.nonnegative_mean()


def bytes_per_node(workload: Workload, ranks: int) -> float:
    """Return the bytes of the data of training that a node with this number of ranks reads, by DLIO's formula."""
    files, samples, size = _count_files(workload, find_loops(workload)[0])
    return ranks * samples * (files // workload.job.ranks) * size


def _summary_content(
    run: RunSummary, workload: Workload, version: Version, figures: Floats, nodes: Ints, begun: int
) -> dict[str, Any]:
    """Return summary.json. Bandwidths are DLIO's, of the nominal size of samples.

    `figures` are AU in percent and samples/s of training, then of evaluation, (ranks, epochs, 4); `nodes` are the
    processors and the bytes of memory of each node, (nodes, 2); the run `begun` at this time, ns since 1970.
    """
    train, evaluation = find_loops(workload)
    (files, samples, size), (eval_files, _, eval_size) = (_count_files(workload, one) for one in (train, evaluation))
    node_bytes = bytes_per_node(workload, run.environment.ranks_per_node)
    goal = run.answers[0].goal if run.answers else GOAL
    metric: dict[str, Any] = {}
    if train is not None:
        metric |= loop_metric("train", figures[..., :2], size, goal)
    if evaluation is not None:
        metric |= loop_metric("eval", figures[..., 2:], eval_size, goal)
    for prefix, phases in ("save", run.saves), ("load", run.restores):
        if phases and not (run.null or version.is_first_generation):
            metric |= _checkpoint_metric(f"{prefix}_checkpoint", phases)
    cpus, memory = nodes.T
    storage = run.modelled or ("null" if run.null else "files")
    settings = [f"{name}={value}" for name, value in run.overrides]
    about = {"version": dliosim.__version__, "formulas": version.name, "storage": storage, "settings": settings}
    return {
        "start": stamp(begun),
        "end": stamp(begun + round(run.seconds * 1e9)),
        "num_accelerators": run.ranks,
        "num_hosts": run.nodes,
        "metric": metric,
        "num_files_train": files,
        "num_files_eval": eval_files,
        "num_samples_per_file": samples,
        **host_content(cpus.tolist(), (memory / _GIB).tolist(), (node_bytes <= memory).astype(int).tolist()),
        "data_size_per_host_GB": node_bytes / _GIB,
        "epochs": figures.shape[1] if train is not None else 0,
        "dliosim": {"note": _NOT_DLIO, **about},
    }


def _spread(name: str, values: Floats, unit: str) -> dict[str, float]:
    """Return mean and population standard deviation, as DLIO has them."""
    return {f"{name}_mean_{unit}": float(values.mean()), f"{name}_stdev_{unit}": float(values.std())}


def loop_metric(prefix: str, rows: Floats, size: float, goal: float) -> dict[str, Any]:
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
    """Return the figures of saves or restores: means of their rates, of the slowest rank."""
    seconds, sizes = np.array([(phase.verb.seconds, phase.verb.bytes) for phase in phases]).T
    return {
        **_spread(f"{prefix}_io", sizes / _GIB / np.maximum(seconds, 1e-9), "GB_per_second"),
        **_spread(f"{prefix}_duration", seconds, "seconds"),
        "checkpoint_size_GB": float(sizes[0]) / _GIB,
    }


def _config_files(setup: Setup, session: Session, run: RunSummary, files: DlioFiles) -> Iterator[tuple[str, Any]]:
    """Yield the files of the configuration and their contents: what ran, under DLIO's names.

    What a workload file of DLIO says is as it says it. JSON is YAML, so no library is needed to write it; but scripts
    of the first generation read the lines of overrides.yaml as they are.
    """
    parsed, version = setup.parsed, VERSIONS[files.version]
    folder = _CONFIG_FOLDERS.get(version.name, ".hydra")
    called = Path(parsed.pattern.removeprefix("workload=")).stem
    task = [f"workload={called}", *(_KEY.sub("++workload.", text) for text in parsed.override)]
    yield f"{folder}/config.yaml", {"workload": merge_config(files.keys, _config(session, run, version))}
    yield f"{folder}/overrides.yaml", "".join(f"- {_quote(text)}\n" for text in task)
    yield f"{folder}/hydra.yaml", {"hydra": {"overrides": {"task": task}}}


def _quote(text: str) -> str:
    """Return a text as YAML, without quotes if it needs none."""
    return text if re.fullmatch(r"[\w+~][\w+.=/-]*", text) else json.dumps(text)


def merge_config(keys: Mapping[str, object], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of a workload file, of its keys by dotted names, with those of ours that it does not say."""
    content: dict[str, Any] = {}
    for name, value in keys.items():
        *sections, last = name.split(".")
        section = content
        for one in sections:
            section[one] = section = section[one] if isinstance(section.get(one), dict) else {}
        section[last] = value
    for name, values in ours.items():
        said = content.get(name, {})
        is_section = isinstance(values, dict) and isinstance(said, dict)
        content[name] = values | said if is_section else said or values
    return content


def _config(session: Session, run: RunSummary, version: Version) -> dict[str, Any]:
    """Return the sections of the configuration of a run."""
    workload, roots = session.workload, session.roots
    train, evaluation = find_loops(workload)
    saved = [phase.name for phase in (*run.saves, *run.restores)]
    does = {"train": train is not None, "evaluation": evaluation is not None, "checkpoint": bool(saved)}
    content: dict[str, Any] = {
        "model": workload.name if version.is_first_generation else {"name": workload.name},
        "workflow": {"generate_data": train is None and not saved, **does},
        "output": {"log_file": "dlio.log"},
    }
    if train is not None:
        (files, samples, size), dataset = _count_files(workload, train), workload.read_dataset(train)
        content["dataset"] = {
            "data_folder": "" if dataset is None else str(roots.get(dataset.root, "")),
            "format": "synthetic" if dataset is None else _FORMATS.get(dataset.format, dataset.format),
            "num_files_train": files,
            "num_files_eval": _count_files(workload, evaluation)[0],
            "num_samples_per_file": samples,
            "record_length" if version.is_first_generation else "record_length_bytes": round(size),
        }
        content["reader"] = {"batch_size": train.batch, "read_threads": train.access.readers}
        content["train"] = {"epochs": train.epochs, "computation_time": train.compute.time.mean, "seed": workload.seed}
    if evaluation is not None:
        content["reader"]["batch_size_eval"] = evaluation.batch
    if saved:
        one = workload.checkpoint(saved[0])
        content["checkpoint"] = {"checkpoint_folder": str(roots.get(one.root, "")), "fsync": one.fsync}
        content["checkpoint"] |= {"num_checkpoints_write": len(run.saves), "num_checkpoints_read": len(run.restores)}
    return content
