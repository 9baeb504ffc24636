"""Chunks of all ranks fill the samples of files that a library has laid out, and touch no byte between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.execute.datasets import file_writer
from dliosim.execute.datasets.file_writer import PreallocatedWriter
from dliosim.execute.payload.sample_bytes import fill_range, sample_keys
from dliosim.formats.hdf5.format import PlainHdf5
from dliosim.model import Chunk, Dataset, Layout, constant
from dliosim.plan.samples.places import IndexedPlaces
from dliosim.plan.samples.sample_index import concat_indexes, locate_ranges
from dliosim.plan.samples.sample_to_file import first_samples
from tests.examples import examples

DATASET = Dataset("d", 1, 23, constant(600), Layout("files", 2), "d", format="hdf5")


def laid_out(dataset: Dataset) -> tuple[IndexedPlaces, list[bytes]]:
    """Return the places in files that HDF5 has laid out, and the bytes of each file before samples are written."""
    form, indexes, files = PlainHdf5(dataset), [], []
    with TemporaryDirectory() as folder:
        first = first_samples(np.arange(dataset.layout.files + 1), dataset.samples, dataset.layout.files)
        for file, count in enumerate(np.diff(first).tolist()):
            path = Path(folder) / str(file)
            form.lay_out(path, count)
            indexes.append(form.index(path))
            files.append(path.read_bytes())
    return IndexedPlaces(form, concat_indexes(indexes)), files


def expected(places: IndexedPlaces, files: list[bytes]) -> list[bytearray]:
    """The contents of the files, range by range."""
    whole, samples = [bytearray(file) for file in files], np.arange(places.dataset.samples)
    found, keys = locate_ranges(places.index, samples), sample_keys(places.dataset, samples)
    rows = zip(found.row.tolist(), found.begin.tolist(), found.offset.tolist(), found.length.tolist(), strict=True)
    for row, begin, offset, length in rows:
        file = whole[int(places.files_of(samples[row : row + 1])[0])]
        fill_range(int(keys[row]), begin, memoryview(file)[offset : offset + length])
    return whole


@pytest.mark.parametrize(
    "dataset",
    [
        DATASET,
        replace(DATASET, parts=3),
        replace(DATASET, chunk=Chunk(5, "samples")),
        replace(DATASET, chunk=Chunk(250, "bytes")),
        replace(DATASET, parts=2, chunk=Chunk(4, "samples")),
        replace(DATASET, samples=3, layout=Layout("files", 3)),
    ],
)
@settings(max_examples=examples(10))
@given(st.integers(1, 7), st.sampled_from([None, 100, 600, 5000]), st.sampled_from([1, 4, 4096]))
def test_chunks_of_all_ranks_fill_the_samples_and_skip_the_gaps(
    dataset: Dataset, ranks: int, transfer: int | None, at_once: int
) -> None:
    places, empty = laid_out(dataset)
    files, gaps = [bytearray(file) for file in empty], expected(places, [b"\xaa" * len(file) for file in empty])
    writer = PreallocatedWriter(places)
    assert not writer.makes_files
    covered = [np.zeros(len(file), np.int64) for file in files]
    with patch.object(file_writer, "_PLACED_AT_ONCE", at_once):
        for rank in range(ranks):
            for one in writer.place(places.parts(ranks, rank)):
                part, count = one.part, 0
                largest = writer.largest_chunk(part, transfer)
                for offset, data in one.chunks(transfer, memoryview(bytearray(b"\xbb" * largest))):
                    assert 0 < len(data) <= largest
                    assert bytes(data) == bytes(gaps[part.file][offset : offset + len(data)])
                    files[part.file][offset : offset + len(data)] = data
                    covered[part.file][offset : offset + len(data)] += 1
                    count += 1
                assert count == writer.chunk_count(part, transfer)
    assert files == expected(places, empty)
    assert max(int(times.max()) for times in covered) == 1
    assert sum(int(times.sum()) for times in covered) == dataset.samples * 600


def test_a_rank_between_others_fills_its_samples_of_each_part_of_a_record() -> None:
    places, empty = laid_out(replace(DATASET, samples=9, parts=3, layout=Layout("shared file", 1)))
    (part,) = PreallocatedWriter(places).place(places.parts(3, 1))
    assert (part.part.first_sample, part.part.last_sample, part.part.first, part.part.last) == (3, 6, False, False)
    made = [(offset, len(data)) for offset, data in part.chunks(1 << 20, memoryview(bytearray(1 << 20)))]
    begins = [int(column.offset[0]) + 3 * 200 for column in places.index.columns]
    assert made == [(begin, 3 * 200) for begin in begins]
    assert len(empty[0]) > begins[-1] + 6 * 200 - 1
