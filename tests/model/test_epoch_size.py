"""Counts by closed form are those of dealing samples out one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import Access, Chunk, Dataset, Layout, Loop, Shuffle, Sources, constant
from dliosim.model.epoch_size import rows_of_step, samples_of_rank, samples_of_ranks, shard_bounds, steps_of_epoch
from dliosim.model.joined import join_datasets

Shard = Literal["by sample", "by block", "by file", "off"]


def dealt(shard: str, samples: int, files: int, ranks: int, batch: int, rank: int) -> int:
    if shard == "by sample":
        return sum(position // batch % ranks == rank for position in range(samples))
    if shard == "by block":
        return len(range(rank * samples // ranks, (rank + 1) * samples // ranks))
    if shard == "by file":
        return sum(sample * files // samples % ranks == rank for sample in range(samples))
    return samples


@given(
    st.sampled_from(["by sample", "by block", "by file", "off"]),
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 17),
    st.integers(1, 9),
)
def test_every_shard_counts_what_dealing_gives(shard: Shard, samples: int, files: int, ranks: int, batch: int) -> None:
    files = min(files, samples)
    dataset = Dataset("d", 1, samples, constant(8), Layout("files", files), "d")
    loop = Loop("train", "train", "d", Access(), batch=batch, shard=shard)
    expected = [dealt(shard, samples, files, ranks, batch, rank) for rank in range(ranks)]
    assert [samples_of_rank(loop, dataset, ranks, rank) for rank in range(ranks)] == expected
    assert shard_bounds(loop, dataset, ranks) == (min(expected), max(expected))
    assert steps_of_epoch(loop, dataset, ranks) == min(expected) // batch


def test_billions_of_samples_are_counted_at_once() -> None:
    dataset = Dataset("d", 1, 10**15 + 7, constant(8), Layout("files", 10**6 + 3), "d")
    loop = Loop("train", "train", "d", Access(), batch=3, shard="by file", last_batch="keep")
    assert sum(samples_of_rank(loop, dataset, 5, rank) for rank in range(5)) == 10**15 + 7
    assert shard_bounds(loop, dataset, 5)[0] >= 10**15 // 5 - 10**9
    counts = [samples_of_rank(loop, dataset, 1000, rank) for rank in range(1000)]
    assert sum(counts) == 10**15 + 7
    assert shard_bounds(loop, dataset, 1000) == (min(counts), max(counts))
    assert steps_of_epoch(loop, dataset, 1000) == -(-max(counts) // 3)


def test_two_billion_files_are_dealt_to_many_ranks_at_once() -> None:
    files, ranks = 1 << 31, 65_536
    dataset = Dataset("d", 1, 3 * files + 7, constant(8), Layout("files", files), "d")
    loop = Loop("train", "train", "d", Access(), shard="by file")
    counts = samples_of_ranks(loop, dataset, ranks, np.arange(ranks))
    assert counts.sum() == 3 * files + 7
    assert shard_bounds(loop, dataset, ranks) == (counts.min(), counts.max()) == (98_304, 98_305)
    most = replace(dataset, samples=(1 << 62) + 1)
    assert sum(samples_of_rank(loop, most, 3, rank) for rank in range(3)) == most.samples


@pytest.mark.parametrize(("batch", "in_order", "shuffled"), [(1, 40, 40), (40, 120, 1600), (600, 600, 4880)])
def test_samples_of_a_step_share_the_ranges_of_their_row_groups(batch: int, in_order: int, shuffled: int) -> None:
    """A table of 40 columns in 20 files of 5 row groups of 100 rows each."""
    layout, chunk = Layout("files", 20), Chunk(100, "samples")
    table = Dataset("d", 1, 10_000, constant(400), layout, "d", format="parquet", chunk=chunk, parts=40)
    loop = Loop("train", "train", "d", Access(), batch=batch)
    mixed = replace(loop, shuffle=Shuffle("globally"))
    assert rows_of_step(loop, table) == in_order
    assert rows_of_step(mixed, table) == shuffled
    assert rows_of_step(mixed, replace(table, format="hdf5")) == 40 * batch
    assert rows_of_step(loop, replace(table, parts=1)) == batch


def test_a_mixture_has_the_row_groups_of_each_of_its_tables() -> None:
    chunk = Chunk(100, "samples")
    tables = tuple(
        Dataset(name, 1, 10_000, constant(400), Layout("files", 4), name, format="parquet", chunk=chunk, parts=40)
        for name in "ab"
    )
    loop = Loop("train", "train", "a", Access(), batch=400)
    joined = join_datasets(Sources(("a", "b"), (250, 750)), tables)
    assert rows_of_step(loop, joined) == rows_of_step(replace(loop, batch=100), tables[0]) + rows_of_step(
        replace(loop, batch=300), tables[1]
    )
