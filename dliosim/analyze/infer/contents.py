"""The samples of the files of a trace, if these are here: calls say which bytes were read, files what bytes are."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, Floats, Ints
from dliosim.errors import DliosimError
from dliosim.formats.protocols import FileIndex, Framed
from dliosim.formats.registry import bind
from dliosim.language.compile import compile_text
from dliosim.language.diagnostics import PatternError
from dliosim.model import Dataset, FileSurvey, Job, constant
from dliosim.model.dataset import Chunk, pack_counts
from dliosim.plan.samples.sample_index import DataIndex, concat_indexes, sample_places

#: More files than this are not opened, samples not placed, bytes not read if a format has no index.
_MOST_FILES: Final = 10_000
_MOST_SAMPLES: Final = 10_000_000
_MOST_BYTES: Final = 1 << 32
_READ_WHOLE: Final = (".csv", ".jsonl")
#: Formats that mark their samples, and the one whose groups of samples are always read whole.
_MARKED: Final = ("tfrecord", "tar", "jpeg", "png", "csv", "indexed", "parquet")
_BY_GROUPS: Final = "parquet"
#: A column has at most this many times the bytes a row in one file as in all, but for headers of chunks.
_ALIKE: Final = 1.25
_CHUNK: Final = 4096
#: Bits of an offset in a number that has the file above them.
_OFFSET_BITS: Final = 44
#: Rounds after which a frame, whose length may depend on that of the contents, is known.
_ROUNDS: Final = 3
#: A pattern that reads a file.
_READ_FILES: Final = """\
dlio 1
workload files
dataset files {{
    from files "{}"
}}
train {{
    read files
}}
"""


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of files of row groups, whose chunks are read whole."""

    index: DataIndex  #: of the files
    begin: Ints  #: the place of each chunk, as by `number_places`, in order; (chunks,)
    column: Ints  #: the column of each; (chunks,)
    widths: Floats  #: stored bytes of a row in each column; (columns,)

    def is_footer(self, file: Ints, offset: Ints, size: Ints) -> Bools:
        """Return which reads are of what follows the chunks of their file, with some of the last ones before it."""
        last = np.searchsorted(self.begin, number_places(file + 1, np.zeros_like(file))) - 1
        begin = number_places(file, offset)
        return (offset > 0) & (begin + size > self.begin[last]) & ~np.isin(begin, self.begin)

    def count_read(self, begin: Ints, end: Ints) -> Ints:
        """Return how many chunks of each column begin between the places `begin` and `end` of any read; (columns,)."""
        depth = np.zeros(len(self.begin) + 1, np.int64)
        np.add.at(depth, np.searchsorted(self.begin, begin), 1)
        np.add.at(depth, np.searchsorted(self.begin, end), -1)
        return np.bincount(self.column[np.cumsum(depth)[:-1] > 0], minlength=len(self.widths))

    def place_samples(self, column: int) -> Ints:
        """Return the place of the chunk of a column that has each sample, in order; (samples,)."""
        alone = replace(self.index, columns=(self.index.columns[column],))
        file, offset, _ = sample_places(alone, np.arange(self.index.first_sample[-1]))
        return np.sort(number_places(file, offset))


def number_places(file: Ints, offset: Ints) -> Ints:
    """Return one number for each place in a file, in order of files and offsets."""
    return file << _OFFSET_BITS | offset


@dataclass(frozen=True, slots=True)
class Contents:
    """The samples of some files, in order of file and offset."""

    dataset: Dataset  #: the first file as a data set, with the largest chunk of all files in samples
    samples: int  #: samples of all files
    are_even: bool  #: each file has as few chunks as its samples take
    ends: Ints  #: bytes of each file; (files,)
    file: Ints  #: number of the file of each; (samples,), or (0,) if calls do not say which of them they read
    offset: Ints  #: first byte of each
    size: Ints  #: bytes of the contents of each
    table: Table | None = None  #: its columns, if it has several

    @property
    def are_marked(self) -> bool:
        """Return whether the format says where a sample ends: an array may be one, or have one in each row."""
        return self.dataset.format in _MARKED


def read_contents(paths: Sequence[str]) -> Contents | None:
    """Return the samples of files; None if they are not here, are too many, or cannot be read. Nothing is written."""
    first, indexes = Path(paths[0]), list[FileIndex]()
    if not re.fullmatch(r"[\w.+-]+", first.name) or not first.is_absolute() or len(paths) > _MOST_FILES:
        return None

    def survey(dataset: Dataset) -> FileSurvey:
        indexes[:] = (bind(dataset).index(Path(path)) for path in paths)  # the compiler may ask again
        counts = np.array([one.samples for one in indexes], np.int64)
        return FileSurvey(int(counts.sum()), len(paths), "here", constant(1), pack_counts(counts))

    try:
        if sum(_file_size(path) for path in paths) > _MOST_BYTES and first.suffix in _READ_WHOLE:
            return None
        (dataset,) = compile_text(_READ_FILES.format(first.name), [], Job(1), survey)[0].datasets
    except (PatternError, DliosimError, OSError):
        return None
    if len({len(one.columns) for one in indexes}) > 1:
        return None
    units = [(one.columns[0].samples, len(one.columns[0].offset), one.samples) for one in indexes]
    rows = max(1, *(each for each, _, _ in units))
    # An array that is not cut is one unit, too.
    if rows > 1 and (dataset.format == _BY_GROUPS or any(many > 1 for _, many, _ in units)):
        dataset = replace(dataset, chunk=Chunk(rows, "samples"))
    are_even = all(many == -(-samples // rows) for _, many, samples in units)
    index = concat_indexes(indexes)
    samples = int(index.first_sample[-1])
    if samples > _MOST_SAMPLES or not (index.has_disjoint_samples or dataset.format == _BY_GROUPS):
        none = np.zeros(0, np.int64)
        return Contents(dataset, samples, are_even, index.size, none, none, none)
    file, offset, stored = sample_places(index, np.arange(samples))
    order, form, size = np.lexsort((offset, file)), bind(dataset), stored
    if isinstance(form, Framed):
        for _ in range(_ROUNDS):  # without the frame around contents of this size
            size = np.maximum(stored - (form.length(size) - size), 1)
    table = _make_table(index) if dataset.format == _BY_GROUPS and len(index.columns) > 1 else None
    return Contents(dataset, samples, are_even, index.size, file[order], offset[order], size[order], table)


def _make_table(index: DataIndex) -> Table | None:
    """Return the columns of files that were indexed; None if those of some files are others."""
    files, columns, rows = np.arange(len(index.size)), index.columns, np.diff(index.first_sample)
    file = [np.repeat(files, np.diff(one.first_unit)) for one in columns]
    held = np.array([np.bincount(each, one.length, len(files)) for each, one in zip(file, columns, strict=True)])
    widths = held.sum(axis=1) / max(rows.sum(), 1)
    usual = np.outer(widths, rows)
    if (held > _ALIKE * (usual + _CHUNK)).any() or (usual > _ALIKE * (held + _CHUNK)).any():
        return None
    begin = np.concatenate([number_places(each, one.offset) for each, one in zip(file, columns, strict=True)])
    order = np.argsort(begin)
    column = np.repeat(np.arange(len(columns)), [len(one.offset) for one in columns])
    return Table(index, begin[order], column[order], widths)


def _file_size(path: str) -> int:
    """Return the bytes of a regular file; OSError if it is none, or cannot be looked at."""
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is no regular file")
    return status.st_size
