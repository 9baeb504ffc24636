"""Keys of DLIO's files that become no line of a pattern, and why, in five versions of DLIO; guessing the version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from dliosim.dlio.config import Config

#: No line of DLIO reads these: what was surely wanted.
IGNORED: Final = {
    "workflow.do_eval": "`workflow.evaluation: True` was wanted",
    "train.total_eval_steps": "an evaluation reads all of its files",
    "evaluation.total_eval_steps": "an evaluation reads all of its files",
    "evaluation.steps_between_evals": "`evaluation.epochs_between_evals` counts epochs",
    "dataset.eval_num_samples_per_file": "`num_samples_per_file` is that of evaluations, too",
    "reader.file_access": "files are shared or not as the data set has them",
    "reader.shuffle": "`sample_shuffle: seed` was wanted",
    "reader.seed": "`train.seed` was wanted",
    "reader.data_loader_root": "`dataset.data_folder` was wanted",
    "reader.checkpoint_folder": "`checkpoint.checkpoint_folder` was wanted",
    "reader.dont_use_mmap": "",
    "reader.storage_library": "",
    "dataset.record_element_bytes": "the element's type says it",
    "dataset.enable_chunking": "`dataset.hdf5.chunk_dims` was wanted",
    "dataset.chunk_size": "`dataset.hdf5.chunk_dims` was wanted",
    "dataset.parquet.read_mode": "",
    "model.model_size": "`model.model_size_bytes` was wanted; a transformer needs neither",
}

#: DLIO reads these, and they have no effect on what is read or written, or none that a pattern has a word for.
WITHOUT_EFFECT: Final = {
    "framework": "", "workflow.profiling": "", "workflow.debug": "", "dataset.record_length_resize": "in memory alone",
    "dataset.record_length_bytes_resize": "in memory alone", "dataset.keep_files": "files are kept",
    "dataset.file_prefix": "names of files", "dataset.generation_buffer_size": "", "dataset.generation_batch_size": "",
    "dataset.use_s3dlio_gen": "", "dataset.data_gen_method": "", "dataset.skip_listing": "no folder is listed",
    "dataset.listing_validation_interval": "", "dataset.listing_threads": "", "dataset.hdf5.max_shape": "",
    "dataset.parquet.partition_by": "", "reader.computation_threads": "", "reader.multiprocessing_context": "",
    "reader.pin_memory": "", "reader.transformed_record_dims": "in memory alone",
    "reader.transformed_record_element_type": "in memory alone", "reader.write_threads": "",
    "checkpoint.randomize_tensor": "", "checkpoint.ksm": "", "checkpoint.rank_sync": "the slowest rank always counts",
    "checkpoint.checkpoint_mechanism": "", "model.name": "", "model": "",
    "storage.storage_root": "give it as --dir", "storage.storage_library": "of object storage alone",
    "output.metric.exclude_start_steps": "figures leave out an epoch's first step",
    "output.metric.exclude_end_steps": "figures have an epoch's last step",
}  # fmt: skip

#: Sections without any effect on what is read or written.
_SECTIONS: Final = ("output.", "profiling.", "logging.", "hydra.", "checkpoint.ksm.", "storage.storage_options.")

#: Keys that become lines of a pattern; `convert` asks for them if they have an effect.
IMPORTED: Final = tuple(
    f"{section}.{key}"
    for section, keys in {
        "workflow": "generate_data train evaluation checkpoint",
        "metric": "au",
        "storage": "storage_type post_generation_settle_seconds",
        "storage.storage_options": "storage_library columns prefetch_workers simulate_io",
        "dataset": (
            "data_folder format num_files_train num_files_eval num_samples_per_file record_length "
            "record_length_bytes record_length_stdev record_length_bytes_stdev record_dims record_element_type "
            "num_subfolders_train num_subfolders_eval compression compression_level"
        ),
        "dataset.hdf5": "chunk_dims num_dset_per_record",
        "dataset.parquet": "columns row_group_size",
        "reader": (
            "data_loader batch_size batch_size_eval read_threads prefetch_size file_shuffle sample_shuffle "
            "shuffle_size read_type transfer_size odirect preprocess_time preprocess_time_stdev"
        ),
        "train": "epochs computation_time computation_time_stdev total_training_steps seed seed_change_epoch",
        "evaluation": "eval_time eval_time_stdev eval_after_epoch epochs_between_evals",
        "checkpoint": (
            "checkpoint_folder checkpoint_after_epoch epochs_between_checkpoints steps_between_checkpoints type "
            "fsync recovery_rank_shift time_between_checkpoints num_checkpoints_write num_checkpoints_read mode "
            "model_size optimization_groups num_layers layer_parameters tensor_parallelism pipeline_parallelism"
        ),
        "model": (
            "type model_size_bytes num_layers model_datatype optimizer_datatype optimization_groups layer_parameters"
        ),
        "model.parallelism": "tensor pipeline data zero_stage",
        "model.transformer": "vocab_size hidden_size ffn_hidden_size num_attention_heads num_kv_heads",
    }.items()
    for key in keys.split()
)

#: Plug-ins of DLIO, which only DLIO can run.
PLUGINS: Final = (
    "reader.data_loader_classname", "reader.data_loader_sampler", "reader.reader_classname",
    "checkpoint.checkpoint_mechanism_classname",
)  # fmt: skip


def find_key(name: str) -> str:
    """Return the key of DLIO that `workload.reader.batch_size` or `reader.batch_size` is; empty for other names."""
    plain = name.removeprefix("workload.").replace("data_reader.", "reader.", 1)
    return plain if plain in IMPORTED or plain in IGNORED or _is_without_effect(plain) else ""


def describe_unused(config: Config) -> Iterator[str]:
    """Yield a line for each key that became no line of the pattern: why, and the key that was probably meant.

    Keys that DLIO does not have come first, as one of them may be misspelled.
    """
    unused = sorted(config.values.keys() - config.asked)
    for name in sorted(name for name, value in config.values.items() if value is None):
        yield f"{name}: has no value: the import takes it as not given"
    unused = [name for name in unused if config.values[name] is not None]
    for name in sorted(unused, key=lambda each: each in IGNORED or each in IMPORTED or _is_without_effect(each)):
        shown = config.quote(name)
        if name in IGNORED:
            yield f"{shown}: DLIO never reads it{_because(IGNORED[name])}"
        elif name in IMPORTED:
            yield f"{shown}: has no effect with the rest of this file"
        elif _is_without_effect(name):
            yield f"{shown}: has no effect here{_because(WITHOUT_EFFECT.get(name, ''))}"
        else:
            near = suggest_key(name)
            yield f"warning: {shown}: DLIO has no such key{f'; did you mean {near}?' if near else ''}"


def _is_without_effect(name: str) -> bool:
    return name in WITHOUT_EFFECT or name.startswith(_SECTIONS)


def _because(text: str) -> str:
    return f"; {text}" if text else ""


def suggest_key(name: str) -> str:
    """Return the key of DLIO with a similar spelling, or the same name in another section; empty for none."""
    known = (*IMPORTED, *IGNORED, *WITHOUT_EFFECT)
    last = re.sub(r".*\.", "", name)
    here = next((one for one in known if one.endswith(f".{last}")), None)
    return here or next(iter(get_close_matches(name, known, 1, 0.75)), "")


@dataclass(frozen=True, slots=True)
class Version:
    """A version of DLIO, and how it treats a workload file, from reading and running it (docs/dlio.md)."""

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
    #: a run ends with an error if its ranks do not divide the samples
    fails_on_rest: bool = False
    #: `record_dims`, the keys of `dataset.hdf5` and `compression_level` are read
    reads_dims: bool = False
    #: `odirect` is read
    reads_odirect: bool = True
    #: checkpoints are flushed by fsync, whatever the file says
    syncs_checkpoints: bool = False
    #: files are left out until a multiple of samples a file x batch x ranks is there
    cuts_files: bool = False
    #: steps of a block that its throughput leaves out; with 0 it has the time of all of them
    left_out_steps: int = 2
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
        left_out_steps=0,
    ),
    Version("mlperf-v1", "branch mlperf_storage_v1.0", True, "samples globally each epoch", left_out_steps=0),
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
        left_out_steps=1,
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
    """Return the version whose names these are: the newest release if names tell nothing."""
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
