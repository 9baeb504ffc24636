"""Find existing files (`from files`) by their names, and read the index of each."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

from dliosim.errors import HELP, UsageError
from dliosim.execute.io_errors import call_error, wrap_call
from dliosim.execute.safe_open import follow_links, follow_to_file
from dliosim.execute.store.manifest import find_dataset_fault
from dliosim.formats.protocols import ExistingFiles, FileIndex
from dliosim.formats.registry import bind
from dliosim.lazy_numpy import np
from dliosim.model import Dataset, Distribution, FileSurvey, constant
from dliosim.model.dataset import pack_counts

if TYPE_CHECKING:
    from dliosim.execute.phases.context import Progress  # which loads MPI

_AT_ONCE = 8  # files that are read at once: their waits for the file system overlap, their computing does not
_PIECE = 1024


@dataclass(slots=True)
class FileFinder:
    """A `model.Finder` that looks below `roots`, once for each description, and keeps what it has found."""

    #: directory of each root, by its name
    roots: Mapping[str, Path]
    #: where a long scan shows how far it is
    progress: Progress
    #: the files that were found, by `FileSurvey.digest`
    sources: dict[str, ExistingFiles] = field(default_factory=dict)
    #: the survey of each description
    _known: dict[Dataset, FileSurvey] = field(default_factory=dict)

    def __call__(self, dataset: Dataset) -> FileSurvey:
        """Return the survey of the matching files.

        Raises ExecutionError [R401] if a file is not of the format, UsageError if the root is not given, and
        UsageError [E103] if no file matches.
        """
        if dataset not in self._known:
            self._known[dataset] = self._find_files(dataset)
        return self._known[dataset]

    def find_known(self, dataset: Dataset) -> FileSurvey:
        """Return a survey made before; raise UsageError [R403] if there is none, as another may take minutes."""
        if dataset not in self._known:
            raise UsageError(f"the files of `{dataset.name}` are other ones", "R403")
        return self._known[dataset]

    def find_prepared(self, dataset: Dataset) -> ExistingFiles | None:
        """Return the files of a complete prepared data set if only they know the places of samples, else None."""
        if dataset.root not in self.roots or dataset.source or not bind(dataset).needs_index:
            return None
        folder = f"{dataset.path}/{dataset.digest()}"
        if find_dataset_fault(dataset, self.roots[dataset.root] / folder) is not None:
            return None
        names = [f"{folder}/{dataset.file_name(file)}" for file in range(dataset.layout.files)]
        indexes = self._read_indexes(dataset, [(name, False) for name in names])
        return ExistingFiles(names, [False] * len(names), indexes)

    def _find_files(self, dataset: Dataset) -> FileSurvey:
        if dataset.root not in self.roots:
            raise UsageError(f"no place is given for `root {dataset.root}`: add --root {dataset.root}=DIR")
        root = self.roots[dataset.root]
        matching = sorted(_match_files(root, dataset.source))
        if not matching:
            text = f"data set `{dataset.name}`: there is no file {root}/{dataset.source}"
            first, *below = Path(dataset.source).parts
            is_here = below and Path(first).is_dir()
            place = "`--dir .`" if is_here else "`--dir DIR`, with the directory that this path begins in"
            raise UsageError(f"{text} (directories do not count){HELP}write {place}", "E103")
        indexes = self._read_indexes(dataset, matching)
        # Root and description count too: equal names and sizes may mean other data on another root or in other columns.
        digest = hashlib.sha256(f"{dataset.root}\0{dataset.digest()}\0".encode())
        for (name, linked), index in zip(matching, indexes, strict=True):
            line = f"{name}\0{index.size}\0{index.samples}\0{'linked' if linked else ''}"
            digest.update(line.encode(errors="surrogateescape"))
        samples, short = sum(index.samples for index in indexes), digest.hexdigest()[:16]
        names, links = [name for name, _ in matching], [linked for _, linked in matching]
        self.sources[short] = ExistingFiles(names, links, indexes)
        counts = pack_counts(np.array([index.samples for index in indexes], np.int64))
        return FileSurvey(samples, len(matching), short, _size_distribution(indexes), counts)

    def _read_indexes(self, dataset: Dataset, files: list[tuple[str, bool]]) -> list[FileIndex]:
        """Read the indexes of files, several at the same time; if several are bad, raise the error of the first."""
        root, found = self.roots[dataset.root], list[FileIndex]()
        real, form = os.path.realpath(root), bind(dataset)
        suffixes = form.sidecars
        self.progress.start(f"look at the files of {dataset.name}", 1, 1, len(files), "file")

        def follow_and_read(file: tuple[str, bool]) -> FileIndex:
            name, linked = file
            path = root / name
            for one in (path, *(path.with_suffix(f".{suffix}") for suffix in suffixes)):
                if one.is_symlink() or (linked and one is path):
                    follow_to_file(real, str(one.relative_to(root)))
            with wrap_call("open", path, reading=True):
                return form.index(path)

        try:
            with ThreadPoolExecutor(min(_AT_ONCE, len(files))) as pool:
                # In pieces, since each waiting file takes a kilobyte of memory.
                for first in range(0, len(files), _PIECE):
                    for index in pool.map(follow_and_read, files[first : first + _PIECE]):
                        found.append(index)
                        self.progress.tick(perf_counter_ns(), len(found), 0)
        finally:
            self.progress.end()
        return found


def _size_distribution(indexes: list[FileIndex]) -> Distribution:
    """Return the bytes of a sample's contents: a constant if all are equal and read as stored, else a range."""
    sizes = {sum(column.row_bytes or column.unit_bytes // column.samples for column in one.columns) for one in indexes}
    columns = [column for one in indexes for column in one.columns]
    if len(sizes) == 1 and all(column.row_bytes and column.length.all() for column in columns):
        return constant(max(1, sizes.pop()))
    return Distribution("uniform", (1.0, float(max(2, *sizes))))


def _match_files(root: Path, pattern: str) -> Iterator[tuple[str, bool]]:
    """Yield the path below `root` of each regular file and link that a pattern matches, and whether a link leads there.

    A link to a directory is followed where a part of the pattern names it. `**` follows no links: one that leads to a
    directory above it would never end. Raises ExecutionError [R401] if a link leads nowhere, or out of the root.
    """
    real = os.path.realpath(root)

    def match_parts(directory: str, parts: list[str], linked: bool) -> Iterator[tuple[str, bool]]:
        head, rest = parts[0], parts[1:]
        if head == "**":
            yield from match_parts(directory, rest or ["*"], linked)
        matches = re.compile(translate(head)).match
        try:
            with os.scandir(root / directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise call_error("opendir", str(root / directory), error) from error
        for entry in found:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if head == "**":
                if entry.is_dir(follow_symlinks=False):
                    yield from match_parts(path, parts, linked)
            elif not matches(entry.name):
                continue
            elif rest:
                if entry.is_symlink():
                    follow_links(real, path)
                if entry.is_dir():
                    yield from match_parts(path, rest, linked or entry.is_symlink())
            elif entry.is_symlink() or entry.is_file():
                yield path, linked or entry.is_symlink()

    return iter(dict.fromkeys(match_parts("", pattern.split("/"), False)))
