"""Small workload files of DLIO: what dlio-benchmark does with each is compared with the pattern that it becomes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Where files are, below the folder of a run.
FOLDERS: Final = {"dataset.data_folder": "data", "checkpoint.checkpoint_folder": "saved"}


@dataclass(frozen=True, slots=True)
class Case:
    """A workload file, by dotted names of its keys, and overrides that the import's report asks for."""

    name: str
    keys: dict[str, Any]
    overrides: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Write the file; JSON is YAML."""
        tree: dict[str, Any] = {}
        for name, value in {**self.keys, **FOLDERS}.items():
            section, _, key = name.rpartition(".")
            (tree.setdefault(section, {}) if section else tree)[key] = value
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(tree, indent=1))


_TORCH: Final = {
    "framework": "pytorch",
    "workflow.generate_data": True,
    "workflow.train": True,
    "dataset.format": "npz",
    "dataset.num_files_train": 10,
    "dataset.record_length": 40_000,
    "dataset.generation_buffer_size": 1_000_000,
    "reader.data_loader": "pytorch",
    "reader.batch_size": 2,
    "reader.read_threads": 1,
    "train.epochs": 2,
}
_TENSORFLOW: Final = {
    **_TORCH,
    "framework": "tensorflow",
    "dataset.format": "tfrecord",
    "dataset.num_files_train": 4,
    "dataset.num_samples_per_file": 8,
    "reader.data_loader": "tensorflow",
    "reader.batch_size": 5,
}
_SEVERAL: Final = {"dataset.num_files_train": 4, "dataset.num_samples_per_file": 6}
_EVALUATED: Final = {
    "workflow.evaluation": True,
    "dataset.num_files_eval": 4,
    "reader.batch_size_eval": 1,
    "evaluation.eval_time": 0.001,
}
_SAVED: Final = {"workflow.checkpoint": True, "checkpoint.model_size": 500_000}
_SMALL_LAYERS: Final = {"checkpoint.num_layers": 3, "checkpoint.layer_parameters": [1000, 20_000]}

CASES: Final = (
    Case("npz", {**_TORCH, **_EVALUATED, **_SAVED, "reader.batch_size": 3, "train.epochs": 3}),
    Case("npz, L no square", {**_TORCH, "dataset.record_length": 114_660.07, "reader.read_threads": 2}),
    Case("npz, sizes spread", {**_TORCH, "dataset.record_length_stdev": 10_000}),
    Case("npz, 6 a file", {**_TORCH, **_SEVERAL, "reader.batch_size": 5}),
    Case("npz, in memory", {**_TORCH, "reader.read_type": "memory"}),
    Case("npz, shuffled", {**_TORCH, "reader.sample_shuffle": "seed", "reader.file_shuffle": "seed"}),
    Case("npz, in folders", {**_TORCH, "dataset.num_subfolders_train": 3, "reader.read_threads": 0}),
    Case("npz, an odd file", {**_TORCH, "dataset.num_files_train": 7}),
    Case(
        "npz, saves by steps",
        {**_TORCH, **_SAVED, **_SMALL_LAYERS, "dataset.num_files_train": 20, "checkpoint.steps_between_checkpoints": 2},
    ),
    Case("npz, few steps", {**_TORCH, "dataset.num_files_train": 24, "train.total_training_steps": 2}),
    Case(
        "npz, all ranks save",
        {
            **_TORCH,
            **_SAVED,
            **_SMALL_LAYERS,
            "checkpoint.type": "all_ranks",
            "checkpoint.optimization_groups": [3000, 500],
            "checkpoint.checkpoint_after_epoch": 2,
            "checkpoint.epochs_between_checkpoints": 2,
            "train.epochs": 5,
        },
    ),
    Case("npz, generated alone", {name: value for name, value in _TORCH.items() if name != "workflow.train"}),
    Case("npz by TensorFlow", {**_TENSORFLOW, "dataset.format": "npz"}),
    Case("hdf5", {**_TORCH, **_EVALUATED, "dataset.format": "hdf5"}),
    Case("hdf5, 6 a file", {**_TORCH, **_SEVERAL, "dataset.format": "hdf5", "reader.batch_size": 5}),
    Case("hdf5, sizes spread", {**_TORCH, "dataset.format": "hdf5", "dataset.record_length_stdev": 10_000}),
    Case("hdf5, gzip", {**_TORCH, **_SEVERAL, "dataset.format": "hdf5", "dataset.compression": "gzip"}),
    Case("hdf5, in memory", {**_TORCH, **_SEVERAL, "dataset.format": "hdf5", "reader.read_type": "memory"}),
    Case("hdf5 by TensorFlow", {**_TENSORFLOW, "dataset.format": "hdf5"}),
    Case("tfrecord", {**_TENSORFLOW, **_EVALUATED, **_SAVED, "reader.batch_size_eval": 3}),
    Case("tfrecord, shuffled", {**_TENSORFLOW, "reader.sample_shuffle": "seed", "reader.read_threads": 2}),
    Case(
        "tfrecord, one file",
        {**_TENSORFLOW, "dataset.num_files_train": 1, "dataset.num_samples_per_file": 22},
        ("train.shard=by sample",),
    ),
    Case("tfrecord, an odd file", {**_TENSORFLOW, "dataset.num_files_train": 5}),
)

_TIMED: Final = {"train.epochs": 3, "reader.batch_size": 8, "dataset.record_length": 65_536}

#: What both cost is measured with these.
COST_CASES: Final = (
    Case(
        "npz, 32 files of 4 MiB",
        {**_TORCH, **_TIMED, "dataset.num_files_train": 32, "dataset.record_length": 4_194_304, "reader.batch_size": 4},
    ),
    Case(
        "hdf5, 16 files of 64 x 64 KiB",
        {
            **_TORCH,
            **_TIMED,
            "dataset.format": "hdf5",
            "dataset.num_files_train": 16,
            "dataset.num_samples_per_file": 64,
        },
    ),
    Case(
        "tfrecord, 8 files of 128 x 64 KiB",
        {**_TENSORFLOW, **_TIMED, "dataset.num_files_train": 8, "dataset.num_samples_per_file": 128},
    ),
    Case(
        "npz, 128 files of 64 KiB, 50 ms of compute a step",
        {
            **_TORCH,
            **_TIMED,
            "dataset.num_files_train": 128,
            "reader.batch_size": 4,
            "train.computation_time": 0.05,
        },
    ),
)
