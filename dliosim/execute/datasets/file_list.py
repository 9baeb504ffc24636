"""Share the existing files that rank 0 has found with all ranks: their names and the places of their samples."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.datasets.index_build import join_indexes, shared_memory
from dliosim.execute.mpi.world import World
from dliosim.execute.safe_open import follow_to_file
from dliosim.plan.samples.sample_index import DataIndex

if TYPE_CHECKING:
    from dliosim.formats.protocols import ExistingFiles


@dataclass(frozen=True, slots=True)
class FileNames:
    """Names of files in memory that the ranks of a node share: name f is bytes start[f]:start[f + 1] of `text`."""

    #: all names, encoded; (bytes,)
    text: NDArray[np.uint8]
    #: where each name begins in `text`; (files + 1,)
    start: NDArray[np.int64]

    def __call__(self, file: int) -> str:
        """Return the path of a file below its root."""
        return os.fsdecode(self.text[int(self.start[file]) : int(self.start[file + 1])].tobytes())


@dataclass(frozen=True, slots=True)
class LinkedNames:
    """Names of files, with symbolic links on the way to some: each rank looks these up again to open such a file."""

    #: returns the path of a file below the root
    names: Callable[[int], str]
    #: 1 where links lead to the file, else 0; (files,)
    linked: NDArray[np.int64]
    #: path of the root, without links
    root: str

    def __call__(self, file: int) -> str:
        """Return the path of a file below the root, without links.

        Raises ExecutionError [R401], see `follow_to_file`.
        """
        name = self.names(file)
        return follow_to_file(self.root, name) if self.linked[file] else name


def share_existing_files(
    world: World, root: Path, source: ExistingFiles | None
) -> tuple[FileNames | LinkedNames, DataIndex]:
    """Give all ranks what rank 0 has found below `root`: names and index. Collective."""
    encoded = [os.fsencode(name) for name in source.names] if source is not None else []
    links = sum(source.linked) if source is not None else 0
    counts = world.broadcast_object([len(encoded), sum(map(len, encoded)), links] if world.rank == 0 else None)
    files, size, links = counts
    start = shared_memory(world, files + 1)
    words = shared_memory(world, -(-size // 8))
    if source is not None:
        start[1:] = np.cumsum([len(name) for name in encoded])
        words.view(np.uint8)[:size] = np.frombuffer(b"".join(encoded), np.uint8)
    linked = shared_memory(world, files if links else 0)
    if source is not None and links:
        linked[:] = source.linked
    indexes = source.indexes if source is not None else []
    index = join_indexes(world, files, range(len(indexes)), indexes, (start, words, linked))
    names = FileNames(words.view(np.uint8), start)
    return (LinkedNames(names, linked, os.path.realpath(root)) if links else names), index
