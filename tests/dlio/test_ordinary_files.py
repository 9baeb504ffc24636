"""Workload files of all kinds: each becomes a pattern that compiles, by its words and as DLIO runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.dlio.known_keys import VERSIONS
from tests.dlio.test_convert import LLAMA, UNET3D, compiled, imported

#: Keys by what they are about, with a version of DLIO for those that only it reads.
ORDINARY: dict[str, tuple[dict[str, object], str | None]] = {
    "nothing but files": (dict.fromkeys(UNET3D), None),
    "sizes of a spread": ({"dataset.record_length_stdev": 1000}, None),
    "hdf5 of a spread": ({"dataset.record_length_stdev": 1000, "dataset.format": "hdf5"}, None),
    "parquet of a spread": ({"dataset.record_length_stdev": 1000, "dataset.format": "parquet"}, None),
    "jpeg of a spread": ({"dataset.record_length_stdev": 1000, "dataset.format": "jpeg"}, None),
    "zip of a spread": ({"dataset.record_length_stdev": 1000, "dataset.compression": "zip"}, None),
    "no compute": ({"train.computation_time": 0.0}, None),
    "generated alone": ({"workflow.train": False, "workflow.checkpoint": False}, None),
    "no checkpoints": ({"workflow.checkpoint": False}, None),
    "late checkpoint": ({"checkpoint.checkpoint_after_epoch": 9}, None),
    "checkpoint by steps": ({"checkpoint.steps_between_checkpoints": 3}, None),
    "checkpoints below --dir": ({"checkpoint.checkpoint_folder": "./"}, None),
    "checkpoints of all": ({"checkpoint.type": "all_ranks"}, None),
    "checkpoints alone": ({"workflow.train": False, "checkpoint.num_checkpoints_write": 2}, None),
    "first layers": ({"checkpoint.num_layers": 4, "checkpoint.layer_parameters": [1000, 2000],
                      "checkpoint.tensor_parallelism": 2, "checkpoint.optimization_groups": [10]}, "2.0.0"),
    "layers": ({"model": None, "model.num_layers": 4, "model.layer_parameters": [1000]}, "mlperf-v2"),
    "transformer": (LLAMA, "mlperf-v3"),
    "transformer by defaults": ({"model": None, "model.type": "transformer", "model.num_layers": 32}, "main"),
    "transformer without layers": ({"model": None, "model.type": "transformer"}, "main"),
    "transformer of two": ({**LLAMA, "model.parallelism.tensor": 2, "model.parallelism.zero_stage": 1}, "mlperf-v2"),
    "transformer in a pipeline": ({**LLAMA, "model.parallelism.pipeline": 2,
                                   "model.parallelism.zero_stage": 1}, "main"),
    "part of a transformer": ({**LLAMA, "model.parallelism.tensor": 8, "model.parallelism.data": 4,
                               "checkpoint.mode": "subset"}, "mlperf-v3"),
    "evaluation": ({"workflow.evaluation": True, "dataset.num_files_eval": 42, "evaluation.eval_time": 0.1}, None),
    "evaluation from an epoch": ({"workflow.evaluation": True, "dataset.num_files_eval": 42,
                                  "evaluation.eval_after_epoch": 3, "evaluation.epochs_between_evals": 2}, None),
    "late evaluation": ({"workflow.evaluation": True, "dataset.num_files_eval": 42,
                         "evaluation.eval_after_epoch": 9}, None),
    "no files to evaluate": ({"workflow.evaluation": True}, None),
    "parquet": ({"dataset.format": "parquet", "dataset.num_samples_per_file": 4096}, "mlperf-v3"),
    "short parquet": ({"dataset.format": "parquet", "dataset.num_samples_per_file": 10,
                       "dataset.compression": "snappy"}, "mlperf-v3"),
    "parquet of one row": ({"dataset.format": "parquet", "storage.storage_options.prefetch_workers": 8,
                            "storage.storage_options.columns": ["a"]}, None),
    "hdf5": ({"dataset.format": "hdf5", "dataset.num_samples_per_file": 10}, "mlperf-v3"),
    "hdf5 chunks": ({"dataset.format": "hdf5", "dataset.hdf5.chunk_dims": [4, 4]}, "main"),
    "hdf5 gzip": ({"dataset.format": "hdf5", "dataset.compression": "gzip", "dataset.compression_level": 9}, None),
    "hdf5 in memory": ({"dataset.format": "hdf5", "reader.read_type": "memory", "reader.odirect": True}, None),
    "csv": ({"dataset.format": "csv", "dataset.num_samples_per_file": 10, "dataset.compression": "gzip"}, None),
    "jpeg": ({"dataset.format": "jpeg"}, "main"),
    "jpeg past the cache": ({"dataset.format": "jpeg", "reader.odirect": True}, "mlperf-v3"),
    "synthetic": ({"dataset.format": "synthetic"}, None),
    "mapped": ({"dataset.format": "mmap_indexed_binary", "dataset.num_samples_per_file": 100}, None),
    "records": ({"dataset.format": "tfrecord", "reader.data_loader": "tensorflow", "reader.odirect": True}, None),
    "records in memory": ({"dataset.format": "tfrecord", "reader.data_loader": "tensorflow",
                           "reader.read_type": "memory"}, None),
    "odirect of the first generation": ({"reader.odirect": True}, "2.0.0"),
    "odirect": ({"reader.odirect": True}, "mlperf-v2"),
    "odirect of several samples": ({"reader.odirect": True, "dataset.num_samples_per_file": 10}, "main"),
    "in memory": ({"reader.read_type": "memory"}, None),
    "in memory past the cache": ({"reader.read_type": "memory", "reader.odirect": True}, "main"),
    "direct file system": ({"storage.storage_type": "direct_fs"}, None),
    "direct library": ({"storage.storage_options.storage_library": "direct",
                        "storage.storage_options.simulate_io": True}, "mlperf-v3"),
    "shape": ({"dataset.record_dims": [128, 128], "dataset.record_element_type": "float32"}, "main"),
    "no readers": ({"reader.read_threads": 0}, "mlperf-v3"),
}  # fmt: skip


@pytest.mark.parametrize("as_run", [False, True])
@pytest.mark.parametrize("about", ORDINARY)
def test_ordinary_files_become_patterns_that_are_right(tmp_path: Path, about: str, as_run: bool) -> None:
    changed, version = ORDINARY[about]
    for name in [version] if version else VERSIONS:
        pattern = imported(
            {"dataset.record_length_stdev": None, "dataset.record_length": 114660, **changed}, name, as_run=as_run
        )
        assert compiled(pattern, tmp_path, 8).verbs
