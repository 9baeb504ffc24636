"""Versions of DLIO: the same file makes each do different I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Version:
    """A version of DLIO, and how it treats a workload file; found by reading and running it (docs/dlio.md)."""

    #: as in `--dlio`
    name: str
    #: where it is from
    source: str
    #: names of its generation: `record_length`, `checkpoint.model_size`, `model: NAME`
    is_first_generation: bool
    #: the order in which PyTorch's loader reads where `sample_shuffle` is given; empty: the same order every epoch
    sample_order: str = ""
    #: the order of files where `file_shuffle` is given
    file_order: str = ""
    #: a run ends with an error where its ranks do not divide the samples
    fails_on_rest: bool = False
    #: `record_dims`, the keys of `dataset.hdf5` and `compression_level` are read
    reads_dims: bool = False
    #: `odirect` is read
    reads_odirect: bool = True
    #: checkpoints are flushed by fsync, whatever the file says
    syncs_checkpoints: bool = False
    #: files are left out until a multiple of samples a file x batch x ranks is there
    cuts_files: bool = False
    #: the reader of MLPerf Storage v3.0: whole files are read and not decoded, checkpoints are written in 32 MiB
    reads_whole_files: bool = False


_ALL: Final = (
    Version(
        "2.0.0",
        "dlio-benchmark 2.0.0 of the package index",
        True,
        "samples within shard each epoch",
        fails_on_rest=True,
        reads_odirect=False,
    ),
    Version("mlperf-v1", "branch mlperf_storage_v1.0", True, "samples globally each epoch"),
    Version("mlperf-v2", "branch mlperf_storage_v2.0", False, cuts_files=True),
    Version("main", "branch main of argonne-lcf/dlio_benchmark", False, cuts_files=True, reads_dims=True),
    Version(
        "mlperf-v3",
        "branch main of mlcommons/DLIO_local_changes",
        False,
        file_order="files globally each epoch",
        reads_dims=True,
        syncs_checkpoints=True,
        reads_whole_files=True,
    ),
)
VERSIONS: Final = {one.name: one for one in _ALL}

#: Keys that only the first generation reads, and keys that only MLPerf Storage v3.0 reads.
_FIRST: Final = frozenset(
    ("model", "dataset.record_length", "dataset.record_length_stdev", "dataset.record_length_resize",
     "checkpoint.model_size", "workflow.debug")
)  # fmt: skip
_THIRD: Final = frozenset(
    ("dataset.skip_listing", "dataset.data_gen_method", "dataset.use_s3dlio_gen", "storage.storage_library",
     "storage.storage_options.storage_library", "reader.write_threads")
)  # fmt: skip


def guess_version(values: Mapping[str, object]) -> Version:
    """Return the version whose names these are: the newest release where names tell nothing."""
    if values.get("dataset.format") == "parquet" or any(
        key in _THIRD or key.startswith("dataset.parquet.") for key in values
    ):
        return VERSIONS["mlperf-v3"]
    if any(key in _FIRST for key in values):
        return VERSIONS["2.0.0"]
    if any(key.startswith(("dataset.record_dims", "dataset.hdf5.")) for key in values):
        return VERSIONS["main"]
    is_second = any(key.startswith(("dataset.record_length_bytes", "model.")) for key in values)
    return VERSIONS["mlperf-v2" if is_second else "2.0.0"]
