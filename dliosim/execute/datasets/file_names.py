"""The names of files by their numbers: of existing ones, and of several data sets. They need no MPI."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.safe_open import follow_to_file


@dataclass(frozen=True, slots=True)
class FileNames:
    """Names of files in memory that the ranks of a node share: name f is bytes start[f]:start[f + 1] of `text`.

    Symbolic links lead to some files: each rank looks these up again to open such a file.
    """

    #: all names, encoded; (bytes,)
    text: NDArray[np.uint8]
    #: where each name begins in `text`; (files + 1,)
    start: NDArray[np.int64]
    #: 1 if links lead to the file, else 0; (files,), or empty if there are no links
    linked: NDArray[np.int64]
    #: path of the root, without links
    root: str

    def __call__(self, file: int) -> str:
        """Return the path of a file below the root, without links.

        Raises ExecutionError [R401], see `follow_to_file`.
        """
        name = os.fsdecode(self.text[int(self.start[file]) : int(self.start[file + 1])].tobytes())
        return follow_to_file(self.root, name) if len(self.linked) and self.linked[file] else name


@dataclass(frozen=True, slots=True)
class JoinedNames:
    """Names of the files of several data sets, numbered through."""

    #: number of the first file of each data set
    first: Sequence[int]
    #: directory of each, below one that all have
    folders: Sequence[str]
    #: names of the files of each, below its directory
    names: Sequence[Callable[[int], str]]

    def __call__(self, file: int) -> str:
        """Return the path of a file below the directory that all data sets have. Raises as the names do."""
        number = bisect_right(self.first, file) - 1
        return f"{self.folders[number]}/{self.names[number](file - self.first[number])}"
