"""Files that are there already (`from files`): found by their names, and each one's own index read."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path

import numpy as np

from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.faults import failed
from dliosim.formats.contract import FileIndex
from dliosim.formats.registry import format_for
from dliosim.model import Dataset, Distribution, Found, constant

_LONGEST = 4096  # bytes of a path that the kernel takes


@dataclass(frozen=True, slots=True)
class Source:
    """Files that are there already: their paths below the root, in order, and what their own indexes say."""

    names: list[str]
    indexes: list[FileIndex]


@dataclass(slots=True)
class FileFinder:
    """A `model.Finder` that looks below `roots`, once for each description, and keeps what it has found.

    `sources` has that by `Found.digest`.
    """

    roots: Mapping[str, Path]
    sources: dict[str, Source] = field(default_factory=dict)
    _known: dict[Dataset, Found] = field(default_factory=dict)

    def __call__(self, dataset: Dataset) -> Found:
        """What is there; ExecutionError [R401] where there is nothing, or something that is no file of the format."""
        if dataset not in self._known:
            self._known[dataset] = self._look(dataset)
        return self._known[dataset]

    def _look(self, dataset: Dataset) -> Found:
        if dataset.root not in self.roots:
            raise UsageError(f"no place is given for `root {dataset.root}`: add --root {dataset.root}=DIR")
        root = self.roots[dataset.root]
        names = sorted(_matching(root, dataset.source))
        if not names:
            text = f"data set `{dataset.name}`: there is no file {root}/{dataset.source}"
            raise ExecutionError(f"{text} (symbolic links do not count)", "R401")
        form = format_for(dataset)
        indexes = [_read(root / name, lambda path: form.index(path, dataset)) for name in names]
        digest = hashlib.sha256()
        for name, index in zip(names, indexes, strict=True):
            digest.update(f"{name}\0{index.size}\0{index.samples}\0".encode(errors="surrogateescape"))
        samples, short = sum(index.samples for index in indexes), digest.hexdigest()[:16]
        self.sources[short] = Source(names, indexes)
        return Found(samples, len(names), short, _size(indexes))


def _read(path: Path, read: Callable[[Path], FileIndex]) -> FileIndex:
    try:
        return read(path)
    except ExecutionError:
        raise
    except OSError as error:
        raise failed("open", str(path), error, reading=True) from error


def _size(indexes: list[FileIndex]) -> Distribution:
    """Bytes of a sample's contents: a constant where all are alike and that is known."""
    sizes = {sum(column.row_bytes or column.unit_bytes // column.samples for column in one.columns) for one in indexes}
    varies = any(
        len(np.unique(column.length)) > 1 for one in indexes for column in one.columns if column.row_bytes == 0
    )
    if len(sizes) == 1 and not varies:
        return constant(max(1, sizes.pop()))
    return Distribution("uniform", (1.0, float(max(1, *sizes))))


def _matching(root: Path, pattern: str) -> Iterator[str]:
    """Paths below `root` of regular files that a pattern of names matches; directories are read once each."""

    def below(directory: str, parts: list[str]) -> Iterator[str]:
        head, rest = parts[0], parts[1:]
        if head == "**":
            yield from below(directory, rest or ["*"])
        matches = re.compile(translate(head)).match
        try:
            with os.scandir(root / directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise failed("opendir", str(root / directory), error) from error
        for entry in found:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                if head == "**":
                    yield from below(path, parts)
                elif rest and matches(entry.name):
                    yield from below(path, rest)
            elif not rest and head != "**" and entry.is_file(follow_symlinks=False) and matches(entry.name):
                yield path

    return iter(dict.fromkeys(below("", pattern.split("/"))))
