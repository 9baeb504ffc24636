"""Writers' parts and slices lie apart and cover every byte; readers of a checkpoint find each byte once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import Access, Checkpoint, Part, Writers
from dliosim.plan.extents import file_sizes, locate
from dliosim.plan.writing import (
    CheckpointSlice,
    checkpoint_files,
    checkpoint_slices,
    checkpoint_writers,
    prepare_parts,
    restore_slices,
)
from tests.plan.helpers import prefix_of
from tests.strategies import checkpoints, datasets, jobs, rank_counts

CHECKPOINT = Checkpoint(
    "c", 1, (Part("w", 100, "total"), Part("o", 7, "per rank")), Writers("file per rank"), Access(), "c"
)


@given(datasets(), jobs)
def test_parts_of_all_ranks_cover_every_file_once(dataset, job):
    before = prefix_of(dataset)
    parts = [part for rank in range(job.ranks) for part in prepare_parts(dataset, before, job, rank)]
    sizes = file_sizes(dataset, before, np.arange(dataset.layout.files))
    ends = [0] * dataset.layout.files
    made = [0] * dataset.layout.files
    sample = 0
    for part in sorted(parts, key=lambda part: (part.file, part.first_sample)):
        assert part.offset == ends[part.file]
        ends[part.file] += part.length
        assert part.first_sample == sample
        sample = part.last_sample
        assert part.first == (part.offset == 0 and made[part.file] == 0)
        made[part.file] += part.first
        if part.first_sample < part.last_sample:
            _, offset, length = locate(dataset, before, np.array([part.first_sample, part.last_sample - 1]))
            assert part.first or offset[0] == part.offset
            assert offset[1] + length[1] <= part.offset + part.length
    assert sample == dataset.samples
    assert ends == sizes.tolist()
    assert made == [1] * dataset.layout.files


@given(datasets(), jobs)
def test_a_rank_writes_a_contiguous_range_where_files_are_few(dataset, job):
    if dataset.layout.files < job.ranks:
        for rank in range(job.ranks):
            parts = prepare_parts(dataset, prefix_of(dataset), job, rank)
            for one, other in pairwise([part for part in parts if part.last_sample > part.first_sample]):
                assert one.last_sample == other.first_sample


def covers(slices: list[CheckpointSlice], sizes: np.ndarray) -> bool:
    """Whether slices lie back to back from the beginning to the end of every file."""
    ends = np.zeros(len(sizes), np.int64)
    for piece in sorted(slices, key=lambda piece: (piece.file, piece.offset)):
        if piece.offset != ends[piece.file]:
            return False
        ends[piece.file] += piece.length
    return bool((ends == sizes).all())


def streams(slices: list[CheckpointSlice]) -> dict[tuple[int, int], tuple[int, int]]:
    """File and offset of every byte (part, position in its stream)."""
    return {
        (piece.part, piece.part_offset + i): (piece.file, piece.offset + i)
        for piece in slices
        for i in range(piece.length)
    }


@given(checkpoints, rank_counts)
def test_slices_of_all_ranks_cover_every_file_once(checkpoint, ranks):
    slices = [piece for rank in range(ranks) for piece in checkpoint_slices(checkpoint, ranks, rank)]
    assert covers(slices, checkpoint_files(checkpoint, ranks))
    total = sum(part.size * (ranks if part.scope == "per rank" else 1) for part in checkpoint.parts)
    assert len(streams(slices)) == sum(piece.length for piece in slices) == total
    makers = checkpoint_writers(checkpoint, ranks)
    assert len(makers) == len(checkpoint_files(checkpoint, ranks))
    for piece in slices:
        assert checkpoint.writers.kind == "shared file" or piece.writer == makers[piece.file]


@given(checkpoints, rank_counts, rank_counts)
def test_any_number_of_ranks_restores_every_byte_once_from_where_it_was_written(checkpoint, written_by, ranks):
    written = [piece for rank in range(written_by) for piece in checkpoint_slices(checkpoint, written_by, rank)]
    read = [piece for rank in range(ranks) for piece in restore_slices(checkpoint, written_by, ranks, rank)]
    assert covers(read, checkpoint_files(checkpoint, written_by))
    assert streams(read) == streams(written)
    assert all(piece.length > 0 for piece in read)


@given(checkpoints, rank_counts)
def test_as_many_ranks_restore_what_they_saved(checkpoint, ranks):
    for rank in range(ranks):
        saved = checkpoint_slices(checkpoint, ranks, rank)
        assert streams(list(restore_slices(checkpoint, ranks, ranks, rank))) == streams(list(saved))


def test_who_writes_is_as_the_checkpoint_says():
    def writers(kind: Writers) -> list[int]:
        checkpoint = replace(CHECKPOINT, writers=kind)
        return [checkpoint_slices(checkpoint, 5, rank)[0].writer for rank in range(5)]

    assert writers(Writers("file per rank")) == [0, 1, 2, 3, 4]
    assert writers(Writers("shared file")) == [0, 1, 2, 3, 4]
    assert writers(Writers("one per", 2)) == [0, 0, 2, 2, 4]
    assert writers(Writers("rank", 3)) == [3] * 5


def test_a_shared_file_holds_part_after_part():
    shared = replace(CHECKPOINT, writers=Writers("shared file"))
    assert checkpoint_files(shared, 4).tolist() == [128]
    assert checkpoint_slices(shared, 4, 1) == (
        CheckpointSlice(0, 0, 25, 25, 25, 1),
        CheckpointSlice(1, 0, 107, 7, 7, 1),
    )


def test_large_checkpoints_do_not_overflow():
    large = replace(CHECKPOINT, parts=(Part("w", 12 * 10**15, "total"),))
    last = checkpoint_slices(large, 65_536, 65_535)[0]
    assert last.part_offset + last.length == 12 * 10**15


@given(st.integers(1, 20))
def test_a_slice_of_nothing_is_left_out(ranks):
    small = replace(CHECKPOINT, parts=(Part("w", 3, "total"),))
    assert sum(len(checkpoint_slices(small, ranks, rank)) for rank in range(ranks)) == min(ranks, 3)
