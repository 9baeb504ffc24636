"""Loops: DLIO's `reader:`, `train:` and `evaluation:` sections as the loop `train` of a pattern.

Sentences report what DLIO does with files that no pattern can state, found by running dlio-benchmark 2.0.0
(docs/dlio.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

from dliosim.dlio.conversion import Conversion, Line, Statement, block, epochs_phrase, setting, time_phrase
from dliosim.dlio.samples import (
    EVALUATION,
    FORMATS,
    MAPPED,
    SYNTHETIC,
    TRAINING,
    Part,
    files_of,
    format_of,
    mean_size,
    read_names,
    samples_per_file,
    table_columns,
)
from dliosim.readable import count
from dliosim.units import format_bytes

#: DLIO's words for data loaders.
_LOADERS: Final = ("tensorflow", "pytorch", "dali", "native_dali", "none")

#: DLIO's words for the order of samples and of files.
_SHUFFLES: Final = ("seed", "random", "off")

#: Bytes that TensorFlow reads of a TFRecord file at a time, if nothing else is said.
_TENSORFLOW_READ: Final = 262_144


def loop_lines(task: Conversion, saves: str) -> Iterator[Statement]:
    """Yield what the loop has; `saves` is what follows `checkpoint state` in it, empty for no checkpoint."""
    config = task.config
    if format_of(task) != SYNTHETIC:
        yield setting("read", TRAINING.name)
    yield setting("epochs", str(config.integer("train.epochs", default=1, least=1)), config.quote("train.epochs"))
    steps = int(config.number("train.total_training_steps", default=-1))
    if format_of(task) == SYNTHETIC:
        yield _unread_steps(task, TRAINING, "batch_size", steps)
    elif steps > 0:
        yield setting("steps", f"{steps:_}", f"{config.quote('train.total_training_steps')}, of each epoch")
    yield from _step_lines(task, TRAINING, "batch_size", "train.computation_time")
    if format_of(task) != SYNTHETIC:
        yield from _order_lines(task)
    if saves:
        yield setting("checkpoint", f"state {saves}", config.quote(*_CADENCE))
    if config.flag("workflow.evaluation"):
        yield from _evaluation(task)


_CADENCE: Final = tuple(
    f"checkpoint.{name}"
    for name in ("steps_between_checkpoints", "checkpoint_after_epoch", "epochs_between_checkpoints")
)


def _step_lines(task: Conversion, part: Part, batch: str, compute: str) -> Iterator[Line]:
    """Yield what a step reads, how, and how long it computes."""
    config = task.config
    reads = format_of(task) != SYNTHETIC
    if reads:
        size, loader = config.integer(f"reader.{batch}", default=1, least=1), ("framework", "reader.data_loader")
        yield setting("batch", f"{size:_} per rank", config.quote(f"reader.{batch}"))
        yield setting("shard", "by file" if streams(task) else "by block", config.quote(*loader))
        yield setting("last batch", "drop")
        yield from _reader_lines(task, part)
        name_reading(task, part)
    time = time_phrase(task, compute)
    if time or not reads:
        yield setting("compute", time or "0 s", config.quote(compute, f"{compute}_stdev"))


def _unread_steps(task: Conversion, part: Part, batch: str, most: int = -1) -> Line:
    """Return the steps of a loop without files: as many as its samples fill, and at most `most` if that is given."""
    keys = (f"dataset.num_files_{part.key}", "dataset.num_samples_per_file", f"reader.{batch}")
    samples = files_of(task, part) * samples_per_file(task)
    steps = f"floor({samples:_} / ({task.config.integer(keys[2], default=1, least=1):_} * $ranks))"
    return setting("steps", f"min({steps}, {most:_})" if most > 0 else steps, task.config.quote(*keys))


def _order_lines(task: Conversion) -> Iterator[Line]:
    """Yield the order of samples and files."""
    config = task.config
    samples, files = (config.choice(f"reader.{name}_shuffle", _SHUFFLES, "off") for name in ("sample", "file"))
    once = not config.flag("train.seed_change_epoch", default=True)
    keys = config.quote("reader.sample_shuffle", "reader.file_shuffle", "train.seed_change_epoch")
    if task.as_run:
        phrases = [
            "" if samples == "off" or streams(task) else task.version.sample_order,
            "" if files == "off" else task.version.file_order,
        ]
    elif streams(task):
        buffer = config.integer("reader.shuffle_size", default=1024, least=1)
        held = f"samples within buffer of {buffer:_} samples"
        phrases = ["" if samples == "off" else held, "" if files == "off" else "files globally each epoch"]
    else:
        is_whole = samples == "off" and files != "off"
        phrases = ["" if samples == "off" else "samples globally each epoch", "files globally each epoch" * is_whole]
    for phrase in filter(None, phrases):
        yield setting("shuffle", phrase.replace("each epoch", "once") if once else phrase, keys)


def _reader_lines(task: Conversion, part: Part) -> Iterator[Line]:
    """Yield readers, what they hold ahead, and how they open and read files."""
    config = task.config
    loader = _loader(task)
    readers = config.integer("reader.read_threads", default=1)
    ahead = config.integer("reader.prefetch_size", default=2)
    is_streamed = streams(task)
    shares = f"by batch{'' if is_streamed or 'dali' in loader else ' in turn'}"
    yield setting("readers", f"{readers} {shares}" if readers else "0", config.quote("reader.read_threads"))
    if readers:
        batches = ahead if is_streamed else readers * (ceil(ahead / readers) or 2)
        yield setting("prefetch", f"{max(batches, 1)} batches", config.quote("reader.prefetch_size"))
    if "dali" in loader:
        task.approximations.append("DALI's own pipeline is not known here: readers take whole batches")
    if task.as_run and task.version.reads_whole_files and readers == 1:
        task.approximations.append("reader.read_threads: 1, as absent: DLIO takes min(cores / ranks of a node, 8)")
    yield from _open_lines(task, part, is_streamed)
    yield from _decode_lines(task)
    if is_streamed:
        read = config.integer("reader.transfer_size", default=_TENSORFLOW_READ, least=1)
        yield setting("transfer", format_bytes(read), config.quote("reader.transfer_size") or "TensorFlow's buffer")
    before = time_phrase(task, "reader.preprocess_time")
    if before:
        yield setting("preprocess", before, config.quote("reader.preprocess_time", "reader.preprocess_time_stdev"))


def _loader(task: Conversion) -> str:
    """Return DLIO's word for the loader; say where DLIO does not take it with this framework or format."""
    framework = task.config.choice("framework", ("tensorflow", "pytorch"), "tensorflow")
    loader = task.config.choice("reader.data_loader", _LOADERS, "tensorflow")
    refused = ""
    if {framework, loader} == {"tensorflow", "pytorch"}:
        refused = f"framework {framework} with the loader of {loader}"
    elif loader == "pytorch" and format_of(task) == "tfrecord":
        refused = "tfrecord with PyTorch's loader"
    if refused:
        task.approximations.append(f"{refused}: DLIO ends with an error; here the loader counts")
    return loader


def _open_lines(task: Conversion, part: Part, is_streamed: bool) -> Iterator[Line]:
    """Yield how long files stay open, what is kept of them, and whether they are read past the page cache."""
    config, form, direct = task.config, FORMATS[format_of(task)], _direct_keys(task)
    kept = config.text("reader.read_type", default="on_demand")
    in_memory = kept == "memory" or (task.as_run and config.has("reader.read_type"))
    keys = config.quote("reader.read_type")
    keeps_samples = in_memory and not is_streamed and form != "hdf5"
    by_library = task.as_run and not task.version.reads_whole_files and form in ("npz", "npy", "hdf5")
    if keeps_samples:
        # A worker of DLIO has read a file once, and then has it.
        whole = files_of(task, part) * samples_per_file(task) * mean_size(task)
        yield setting("cache", f"memory ceil({whole:_} B / $ranks)", keys)
    elif is_streamed:
        yield setting("open", "each epoch")
    elif iterates(task) and samples_per_file(task) > 1 and not in_memory:
        yield setting("open", "each epoch", "TensorFlow's loader closes a file after its last sample")
    else:
        yield setting("open", "once" if in_memory else "each sample", keys)
    if direct and keeps_samples:
        task.approximations.append(f"{direct}: what is kept in memory is read through the page cache here")
    elif direct:
        yield setting("cache", "off", direct)
    elif by_library and not keeps_samples:
        yield setting("through", "library", "numpy's or h5py's own calls")
    elif by_library:
        task.approximations.append(f"{keys}: what is kept in memory is read without numpy's own calls here")


def _direct_keys(task: Conversion) -> str:
    """Return the keys by which files are read past the page cache, for a comment; empty if none is."""
    config, is_third = task.config, task.version.reads_whole_files
    keys = []
    if config.text("storage.storage_type") == "direct_fs":
        keys.append("storage.storage_type")
    if (is_third or not task.as_run) and config.text("storage.storage_options.storage_library") == "direct":
        keys.append("storage.storage_options.storage_library")
    is_array = format_of(task) in ("npz", "npy") and samples_per_file(task) == 1
    if config.flag("reader.odirect"):
        if not task.as_run or (task.version.reads_odirect and is_array):
            keys.append("reader.odirect")
        else:
            reads = task.version.reads_odirect
            where = "uses it for npz and npy files of one sample alone" if reads else "has no such key"
            task.approximations.append(f"reader.odirect=True: {task.version.name} {where}; `cache off` would do it")
    if keys and FORMATS[format_of(task)] == "raw" and samples_per_file(task) > 1:
        where = "here" if is_third else "here, as in DLIO"
        why = f"samples of indexed files begin between pages: they are read through the page cache {where}"
        cure = "add `align 4 KiB` to the data set and `cache off` to the loop to read past it"
        task.approximations.append(f"{config.quote(*keys)}: {why}; {cure}")
        return ""
    return config.quote(*keys)


def _decode_lines(task: Conversion) -> Iterator[Line]:
    """Yield what becomes of the bytes of a file, and in how many calls they are read."""
    config, form = task.config, format_of(task)
    if task.as_run and form in ("jpeg", "png") and not task.version.reads_whole_files:
        yield setting("decode", "on", "DLIO decodes images")
    if form == MAPPED and not _direct_keys(task):
        yield setting("engine", "mmap", config.quote("dataset.format"))
    options = "storage.storage_options"
    if form == "parquet" and (task.as_run or config.has(f"{options}.prefetch_workers")):
        depth = config.integer(f"{options}.prefetch_workers", default=64, least=1)
        keys = config.quote(f"{options}.prefetch_workers")
        yield setting("engine", f"queued depth {depth}", keys or "DLIO's default")
    if form == "parquet" and config.has(f"{options}.columns"):
        names = {name for name, _, _ in table_columns(task)}
        read = sum(name in names for name in read_names(task))
        if read and not task.from_files:
            yield setting("columns", str(read), f"{options}.columns")
        else:
            task.approximations.append(f"{config.quote(f'{options}.columns')}: all columns are read here")
    if config.text(f"{options}.simulate_io").lower() in ("on", "true", "1"):
        task.approximations.append(f"{config.quote(f'{options}.simulate_io')}: run with --null")


def _evaluation(task: Conversion) -> Iterator[Statement]:
    if not files_of(task, EVALUATION):
        task.approximations.append("workflow.evaluation: there are no files to evaluate (dataset.num_files_eval)")
        return
    phrase = epochs_phrase(task, "evaluation", "evaluation.eval_after_epoch", "evaluation.epochs_between_evals")
    if phrase:
        unread = format_of(task) == SYNTHETIC
        read = _unread_steps(task, EVALUATION, "batch_size_eval") if unread else setting("read", EVALUATION.name)
        steps = _step_lines(task, EVALUATION, "batch_size_eval", "evaluation.eval_time")
        yield block(f"evaluate {phrase}", [read, *steps])


def streams(task: Conversion) -> bool:
    """Return True if TensorFlow reads TFRecord files from their beginnings to their ends."""
    return format_of(task) == "tfrecord" and _loader_name(task) == "tensorflow"


def iterates(task: Conversion) -> bool:
    """Return True if TensorFlow's loader takes samples from generators, one for each reader."""
    return format_of(task) != "tfrecord" and _loader_name(task) == "tensorflow"


def name_reading(task: Conversion, part: Part) -> None:
    """Report how DLIO reads other files, or more of them, than the pattern."""
    if streams(task):
        _name_more_ranks(task, part)
    if not task.as_run:
        return
    if format_of(task) == MAPPED:
        task.approximations.append(
            f"{part.name}: DLIO maps a file for each sample, takes a slice of it, and touches none of its bytes: it "
            "waits for no storage; here the pages of each sample are read"
        )
    if streams(task):
        _name_passes(task, part)
    elif iterates(task):
        _name_generators(task, part)
    else:
        _name_whole_files(task)
        _name_rest(task, part)
    if task.config.number("train.total_training_steps", default=-1) > 0:
        task.approximations.append(
            "train.total_training_steps: DLIO's readers continue until what they may hold ahead is read; "
            "what is left at the end of an epoch is dropped"
        )


def _loader_name(task: Conversion) -> str:
    return task.config.text("reader.data_loader", default="tensorflow")


def _name_more_ranks(task: Conversion, part: Part) -> None:
    files = files_of(task, part)
    if files < 64:
        loop = "train" if part.key == "train" else "evaluate"
        task.approximations.append(
            f"{part.name}: on more ranks than its {count(files, 'file')} every rank of DLIO reads all files; run with "
            f"-D '{loop}.shard=by sample' there"
        )


def _name_passes(task: Conversion, part: Part) -> None:
    shuffled = task.config.text("reader.sample_shuffle", default="off") != "off"
    first = " and, as sample_shuffle is on, up to reader.shuffle_size samples of it" if shuffled else ""
    task.approximations.append(
        f"{part.name}: TensorFlow's data set begins again at its end: in each epoch DLIO reads ahead into the next pass"
        f"{first}, and drops that"
    )
    task.approximations.append(
        f"{part.name}: where ranks have different numbers of its {count(files_of(task, part), 'file')}, DLIO's read "
        "some samples twice, to have as many steps as the mean; here all have those of the rank with fewest"
    )


def _name_generators(task: Conversion, part: Part) -> None:
    files, readers = files_of(task, part), task.config.integer("reader.read_threads", default=1)
    task.approximations.append(
        f"{part.name}: of R ranks each reads the same first 1/R of the {count(files, 'file')} in DLIO, and one other "
        "file for its first sample, and its last samples though they fill no batch; here each has files of its own"
    )
    if readers > 1 and samples_per_file(task) > 1:
        task.approximations.append(
            f"each of the {readers} readers opens every file here; in DLIO one or two of them do"
        )


def _name_whole_files(task: Conversion) -> None:
    """Name what is read for a sample of a file of several; a library that reads so is one in the pattern, too."""
    form, each, is_third = FORMATS.get(format_of(task), ""), samples_per_file(task), task.version.reads_whole_files
    is_whole = form in ("npz", "npy", "hdf5") if is_third else False
    if each > 1 and (form == "csv" or is_whole):
        task.approximations.append(
            f"DLIO reads a whole {form} file for each of its {each} samples: {each} times the bytes that are read here"
        )


def _name_rest(task: Conversion, part: Part) -> None:
    samples = files_of(task, part) * samples_per_file(task)
    if task.version.fails_on_rest and samples % 64 and _loader_name(task) == "pytorch":
        task.approximations.append(
            f"{part.name}: on a number of ranks that does not divide its {count(samples, 'sample')}, DLIO ends with an "
            "IndexError; here the last rank has fewer"
        )
