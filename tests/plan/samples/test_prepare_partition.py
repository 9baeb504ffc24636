"""The parts of files that ranks write do not overlap, and cover every byte."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given

from tests.plan.helpers import placed
from tests.strategies import datasets, jobs


@given(datasets(), jobs)
def test_parts_of_all_ranks_cover_every_file_once(dataset, job):
    places = placed(dataset)
    parts = [part for rank in range(job.ranks) for part in places.parts(job.ranks, rank)]
    sizes = places.file_sizes(np.arange(dataset.layout.files))
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
            _, offset, length = places.locate(np.array([part.first_sample, part.last_sample - 1]))
            assert part.first or offset[0] == part.offset
            assert offset[1] + length[1] <= part.offset + part.length
    assert sample == dataset.samples
    assert ends == sizes.tolist()
    assert made == [1] * dataset.layout.files


@given(datasets(), jobs)
def test_a_rank_writes_a_contiguous_range_where_files_are_few(dataset, job):
    if dataset.layout.files < job.ranks:
        for rank in range(job.ranks):
            parts = placed(dataset).parts(job.ranks, rank)
            for one, other in pairwise([part for part in parts if part.last_sample > part.first_sample]):
                assert one.last_sample == other.first_sample
