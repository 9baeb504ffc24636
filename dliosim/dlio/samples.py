"""Data sets: DLIO's `dataset:` section as the blocks `dataset` of a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import isqrt, prod, sqrt
from os.path import normpath
from pathlib import Path
from typing import Final

from dliosim.dlio.config import Value
from dliosim.dlio.conversion import Block, Conversion, Line, block, name_place, setting, split_folder
from dliosim.errors import UsageError
from dliosim.model import ELEMENTS
from dliosim.readable import count
from dliosim.units import format_bytes

#: DLIO's word for files that are mapped into memory.
MAPPED: Final = "mmap_indexed_binary"

#: DLIO's formats and those that are written here.
FORMATS: Final = {
    **{name: name for name in ("tfrecord", "hdf5", "csv", "npz", "npy", "jpeg", "png", "parquet")},
    "hdf5_opt": "hdf5",
    "indexed_binary": "raw",
    MAPPED: "raw",
}

#: DLIO's word for samples that are in no file.
SYNTHETIC: Final = "synthetic"

#: Bytes that DLIO adds to a file: around its labels, and for the label of each sample.
_LABELS: Final = {"npz": (234, 8), "hdf5": (0, 8)}

#: What DLIO's own files end with, if that is not the format.
_ENDINGS: Final = {"hdf5_opt": "hdf5", "indexed_binary": "indexed_binary", MAPPED: MAPPED}

#: The key for the folder of all data.
_FOLDER: Final = "dataset.data_folder"

#: The key for the bytes of a sample, in both generations.
_LENGTHS: Final = ("dataset.record_length", "dataset.record_length_bytes")


@dataclass(frozen=True, slots=True)
class Part:
    """The files of training or of evaluation."""

    #: name of its data set in the pattern
    name: str
    #: folder below `data_folder`
    folder: str
    #: end of the keys for its files and subfolders
    key: str


TRAINING: Final = Part("train_data", "train", "train")
EVALUATION: Final = Part("valid_data", "valid", "eval")


def format_of(task: Conversion) -> str:
    """Return DLIO's word for the format, `SYNTHETIC` if loops read nothing; UsageError for one that DLIO lacks."""
    if task.config.text("reader.data_loader") == SYNTHETIC and task.config.flag("workflow.train", default=True):
        return SYNTHETIC
    return task.config.choice("dataset.format", (*FORMATS, SYNTHETIC), "tfrecord")


def files_of(task: Conversion, part: Part) -> int:
    """Return the number of files."""
    return task.config.integer(f"dataset.num_files_{part.key}", default=8 if part is TRAINING else 0)


def samples_per_file(task: Conversion) -> int:
    """Return the number of samples in a file; UsageError for images with several."""
    name = "dataset.num_samples_per_file"
    found = task.config.integer(name, default=1, least=1)
    if found > 1 and FORMATS.get(format_of(task)) in ("jpeg", "png"):
        why = "expected 1: DLIO writes one image to a file, and reads that again for each of its samples"
        raise task.config.mistake((name,), why, 1)
    return found


def mean_size(task: Conversion) -> int:
    """Return the mean size of a sample, bytes."""
    dims = _dims(task)
    table = table_columns(task)
    if table:
        return sum(ELEMENTS[element] * length for _, element, length in table)
    if dims:
        return prod(dims) * ELEMENTS[_element(task)]
    length = _record_length(task)
    return max(int(length), 1) if not task.as_run or "indexed" in format_of(task) else max(isqrt(int(length)) ** 2, 1)


def dataset_block(task: Conversion, part: Part) -> Block:
    """Return the data set of a part."""
    return block(f"dataset {part.name}", _existing_files(task, part) if task.from_files else _new_files(task, part))


def _new_files(task: Conversion, part: Part) -> Iterator[Line]:
    config, files, each = task.config, files_of(task, part), samples_per_file(task)
    if not files:
        raise UsageError(f"dataset.num_files_{part.key}: there are no files to read")
    keys = (f"dataset.num_files_{part.key}", "dataset.num_samples_per_file")
    yield setting("samples", f"{files * each:_}", config.quote(*keys))
    sizes = _size_line(task, files, each)
    yield sizes
    if each > 1 and "(" in sizes.text:
        yield setting("sizes", "by file", "DLIO draws a size for each file")
    yield setting("layout", _layout(task, part, files, each), config.quote(f"dataset.num_subfolders_{part.key}"))
    yield setting("format", FORMATS[format_of(task)], config.quote("dataset.format"))
    yield from _storage_lines(task)
    path = name_place(task, _FOLDER, "./data/", part.folder)
    yield setting("path", f'"{path}"', config.quote(_FOLDER))
    if task.as_run and task.version.cuts_files and each > 1:
        task.approximations.append(
            f"this version leaves out files until a multiple of {each} samples x batch x ranks is there, often all of "
            "them; all are read here"
        )
    if task.as_run and format_of(task) in _LABELS:
        around, label = _LABELS[format_of(task)]
        task.approximations.append(f"{part.name}: DLIO adds {around + label * each} B of labels to a file")
    if task.as_run and format_of(task) == "tfrecord":
        task.approximations.append(
            f"{part.name}: DLIO's records are about 21 B shorter, and a list of their offsets is not next to the files"
        )
    if task.as_run and format_of(task) == "csv":
        task.approximations.append("csv: DLIO writes a number of about 3.57 B as text for each byte of a sample")


def _existing_files(task: Conversion, part: Part) -> Iterator[Line]:
    config, form = task.config, format_of(task)
    if form in ("npz", "npy") and samples_per_file(task) > 1:
        raise UsageError("DLIO's npz and npy files of several samples have these on the last axis: not read from files")
    folders = "**/" if config.integer(f"dataset.num_subfolders_{part.key}") > 1 else ""
    ending = _ENDINGS.get(form, form)
    keys = config.quote(_FOLDER, f"dataset.num_subfolders_{part.key}")
    base, below = existing_place(task, part)
    named, files = f"{below}/{folders}*.{ending}", f"dataset.num_files_{part.key}"
    yield setting("from files", f'"{named}"', keys)
    yield setting("format", FORMATS[form], config.quote("dataset.format"))
    task.notes.append(f"{part.name}: its files are below {base}: add `--dir {base}` to each command")
    if next(Path(base).glob(named), None) is None:
        text = f"warning: there is no file {base}/{named} now: DLIO has to write some before"
        task.notes.append(f"{text}, or leave --from-files out, and some like them are written")
    if config.has(files):
        task.approximations.append(f"{config.quote(files)}: DLIO reads the first of the files by name; here all are")


def existing_place(task: Conversion, part: Part) -> tuple[str, str]:
    """Return the `--dir` for the files that DLIO has written, and their folder below it."""
    folder = f"{task.config.text(_FOLDER, default='./data/')}/{part.folder}"
    root = task.config.text("storage.storage_root", default=".")
    above, below = split_folder(folder)
    return normpath(above if folder.startswith("/") else f"{root}/{above}"), below


def _layout(task: Conversion, part: Part, files: int, each: int) -> str:
    folders = task.config.integer(f"dataset.num_subfolders_{part.key}")
    placed = "file per sample" if each == 1 else f"{files:_} files" if files > 1 else "shared file"
    return f"{placed} in {count(folders, 'folder')}" if folders > 1 and placed != "shared file" else placed


def _size_line(task: Conversion, files: int, each: int) -> Line:
    config, mean = task.config, mean_size(task)
    dims = _dims(task)
    table = table_columns(task)
    if table:
        kinds = [(kind, len(list(group))) for kind, group in groupby((element, length) for _, element, length in table)]
        parts = (f"{number} of {f'{length} x ' if length > 1 else ''}{element}" for (element, length), number in kinds)
        return setting("columns", ", ".join(parts), "dataset.parquet.columns: dtype, size; those that are read first")
    if dims:
        keys = config.quote("dataset.record_dims", "dataset.record_element_type")
        return setting("shape", f"{' x '.join(map(str, dims))} of {_element(task)}", keys)
    names = task.names(*_LENGTHS)
    deviations = task.names(*(f"{name}_stdev" for name in _LENGTHS))
    keys = config.quote(*names, *deviations)
    stdev = config.number(*deviations)
    if task.as_run and stdev:
        # Two sides of each file are drawn from normal(sqrt(L), stdev / (2 sqrt(L))), and multiplied.
        stdev = sqrt(stdev**2 / 2 + stdev**4 / (16 * _record_length(task) ** 2))
    if not stdev:
        return setting("size", format_bytes(mean), keys)
    form = FORMATS[format_of(task)]
    if form == "hdf5" and _record_sets(task) > 1:
        why = "records of several data sets have one size here: the mean; in DLIO all of a file have one"
        task.approximations.append(f"{keys}: {why}")
        return setting("size", format_bytes(mean), keys)
    # No image file is smaller here, and a line of csv ends with a newline.
    least = {"jpeg": "1 KiB", "png": "1 KiB", "csv": "2 B"}.get(form, "1 B")
    if task.as_run:
        task.approximations.append(
            f"{keys}: sizes of the same distribution as DLIO's, not the same sizes: that of {count(files, 'file')} "
            f"together may differ by {100 * 2**0.5 * stdev / mean / files**0.5:.2g} %, sometimes twice that"
        )
    text = f"normal({mean:_} B, {round(stdev):_} B) clipped to {least} and {4 * mean:_} B"
    return setting("size", text, keys)


def table_columns(task: Conversion) -> list[tuple[str, str, int]]:
    """Return name, element type and elements of a row of a table's columns, those that are read first.

    Empty where the file lists none. UsageError for a column of no size.
    """
    given = task.config.value("dataset.parquet.columns")
    if FORMATS.get(format_of(task)) != "parquet" or not isinstance(given, list):
        return []
    found = [_column(task, one, number) for number, one in enumerate(given)]
    read = read_names(task)
    return sorted(found, key=lambda one: one[0] not in read) if read else found


def _column(task: Conversion, given: Value, number: int) -> tuple[str, str, int]:
    """Return name, element type and elements of a row of a column; say what DLIO has otherwise."""
    spec = given if isinstance(given, dict) else {"name": given}
    name, kind, length = str(spec.get("name", number)), str(spec.get("dtype", "float32")), spec.get("size", 1)
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length < 1 << 30:
        raise UsageError(f"dataset.parquet.columns: size of `{name}`: expected a whole number from 1 on")
    if kind in ELEMENTS:
        return name, kind, length
    element, length, text = {
        "list": ("float32", length, ""),
        "string": ("uint8", 16, "text of some 12 letters, whatever its size says; here 16 B with its length"),
        "binary": ("uint8", length + 4, f"{length} B; here {length + 4} B with its length"),
        "bool": ("uint8", 1, "a bit; here a byte"),
    }.get(kind, ("float32", length, "no type that DLIO knows: float32, as DLIO takes it"))
    if text:
        task.approximations.append(f"dataset.parquet.columns: `{name}` of {kind}: {text}")
    return name, element, length


def read_names(task: Conversion) -> list[str]:
    """Return the names of the columns that are read; empty for all."""
    given = task.config.value("storage.storage_options.columns")
    if isinstance(given, str):
        return [name.strip() for name in given.strip("[] ").split(",") if name.strip()]
    return [str(name) for name in given] if isinstance(given, list) else []


def _storage_lines(task: Conversion) -> Iterator[Line]:
    """Yield what a format stores in pieces or compressed; a chunk is at most a file."""
    config, form, each = task.config, format_of(task), samples_per_file(task)
    compressed = list(_compression_lines(task, FORMATS[form]))
    yield from compressed
    if compressed and task.as_run and FORMATS[form] == "hdf5" and not config.has("dataset.hdf5.chunk_dims"):
        yield setting("chunk", count(_chunk_samples(each, isqrt(mean_size(task))), "sample"), "h5py's own choice")
    if FORMATS[form] == "hdf5" and (task.version.reads_dims or not task.as_run):
        dims = config.integers("dataset.hdf5.chunk_dims")
        sets, sample = _record_sets(task), _dims(task)
        keys = config.quote("dataset.hdf5.chunk_dims")
        is_tile = dims[:1] == [1] and len(dims) == len(sample) + 1 > 1 and sets < 2
        if is_tile:
            sides = (min(cut, whole) for cut, whole in zip(dims[1:], sample, strict=True))
            yield setting("chunk", " x ".join(map(str, sides)), keys)
        elif dims:
            yield setting("chunk", count(min(max(dims[0], 1), each), "sample"), keys)
        if len(dims) > 1 and not is_tile:
            task.approximations.append(f"{keys}: chunks are of whole samples here: the first number alone counts")
        if sets > 1:
            yield setting("datasets", str(sets), config.quote("dataset.hdf5.num_dset_per_record"))
    if form == "parquet":
        rows = config.integer("dataset.parquet.row_group_size", default=1024, least=1)
        yield setting("chunk", count(min(rows, each), "sample"), config.quote("dataset.parquet.row_group_size"))


def _record_sets(task: Conversion) -> int:
    """Return how many data sets of an HDF5 file a record is divided over."""
    reads = task.version.reads_dims or not task.as_run
    return task.config.integer("dataset.hdf5.num_dset_per_record", default=1) if reads else 1


def _chunk_samples(samples: int, side: int) -> int:
    """Return how many samples h5py puts into a chunk of a compressed file by itself."""
    import h5py

    with h5py.File("chunks", "w", driver="core", backing_store=False) as file:
        made = file.create_dataset("records", (samples, side, side), "u1", compression="gzip")
        return int(made.chunks[0])


def _compression_lines(task: Conversion, form: str) -> Iterator[Line]:
    """Yield how files are compressed, if DLIO compresses them."""
    config = task.config
    name = config.text("dataset.compression", default="none")
    if name.lower() == "none":
        return
    codec = _CODECS.get(form, {}).get(name, "")
    if task.as_run and form in ("npz", "npy"):
        task.approximations.append(f"DLIO never compresses {form} files, whatever `compression` says")
    elif not codec:
        task.approximations.append(f"dataset.compression={name}: {form} files are not compressed so here")
    elif "{level}" in codec:
        level = config.integer("dataset.compression_level", default=4, least=1)
        if level > 9:
            raise UsageError(f"dataset.compression_level={level}: expected 1 to 9")
        keys = config.quote("dataset.compression", "dataset.compression_level")
        if task.as_run and not task.version.reads_dims and level != 4:
            level, keys = 4, f"{keys}: DLIO hands no level to h5py, whose own is 4"
        yield setting("compress", codec.format(level=level), keys)
    else:
        yield setting("compress", codec, config.quote("dataset.compression"))


#: What compresses the files of each format, by DLIO's word.
_CODECS: Final = {
    "hdf5": {"gzip": "gzip {level}", "lzf": "lzf"},
    "npz": {"gzip": "gzip {level}", "zip": "gzip {level}"},
    "parquet": {"gzip": "gzip {level}", "snappy": "snappy", "zstd": "zstd 3"},
}


def _record_length(task: Conversion) -> float:
    names = task.names(*_LENGTHS)
    found = task.config.number(*names, default=65_536)
    if not 1 <= found < 2**62:
        raise UsageError(f"{names[0]}: {found:g}: expected bytes")
    return found


def _dims(task: Conversion) -> list[int]:
    """Return the shape of a sample; empty if its bytes are given instead."""
    if task.as_run and not task.version.reads_dims:
        return []
    return task.config.integers("dataset.record_dims")


def _element(task: Conversion) -> str:
    return task.config.choice("dataset.record_element_type", sorted(ELEMENTS), "uint8")
