"""Sentences on what DLIO does with files and no pattern says: found by running dlio-benchmark 2.0.0 (docs/dlio.md)."""

from __future__ import annotations

from dliosim.dlio.conversion import Conversion
from dliosim.dlio.samples import FORMATS, MAPPED, Part, files_of, format_of, samples_per_file
from dliosim.readable import count


def streams(task: Conversion) -> bool:
    """Return True where TensorFlow reads TFRecord files from their beginnings to their ends."""
    return format_of(task) == "tfrecord" and _loader(task) == "tensorflow"


def iterates(task: Conversion) -> bool:
    """Return True where TensorFlow's loader takes samples from generators, one for each reader."""
    return format_of(task) != "tfrecord" and _loader(task) == "tensorflow"


def name_reading(task: Conversion, part: Part) -> None:
    """Say in which way DLIO reads other files, or more of them, than the pattern."""
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


def _loader(task: Conversion) -> str:
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
    if task.version.fails_on_rest and samples % 64 and _loader(task) == "pytorch":
        task.approximations.append(
            f"{part.name}: on a number of ranks that does not divide its {count(samples, 'sample')}, DLIO ends with an "
            "IndexError; here the last rank has fewer"
        )
