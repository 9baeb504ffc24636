"""Chunks cover a part in order and without holes, as many as were planned, and hold header, samples and padding."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.execute.datasets import file_writer
from dliosim.execute.datasets.file_writer import RawWriter
from dliosim.execute.payload.sample_bytes import fill_range, sample_keys
from dliosim.model import Dataset, Layout, constant
from tests.examples import examples
from tests.plan.helpers import placed
from tests.strategies import datasets

transfers = st.one_of(st.none(), st.sampled_from([1000, 4096, 100_000]), st.integers(300, 9000))
few_ranks = st.integers(1, 4)
as_it_is = (file_writer.SAMPLES_AT_ONCE, file_writer.SMALL, file_writer.PARTS_AT_ONCE)


def expected(dataset: Dataset) -> list[bytearray]:
    """The content of every file, sample by sample."""
    places = placed(dataset)
    files = [bytearray(size) for size in places.file_sizes(np.arange(dataset.layout.files)).tolist()]
    samples = np.arange(dataset.samples)
    columns = (sample_keys(dataset, samples), *places.locate(samples))
    for key, file, offset, length in zip(*(column.tolist() for column in columns), strict=True):
        fill_range(key, 0, memoryview(files[file])[offset : offset + length])
    return files


def small(dataset: Dataset) -> bool:
    """Return whether a data set is quick to write byte by byte."""
    return dataset.samples <= 60


@settings(max_examples=examples(60))
@given(datasets().filter(small), few_ranks, transfers, st.sampled_from([(7, 2, 3), (7, 0, 1), as_it_is]))
def test_chunks_of_all_ranks_make_the_files(
    dataset: Dataset, ranks: int, transfer: int | None, limits: tuple[int, int, int]
) -> None:
    places = placed(dataset)
    files = [bytearray(b"\xaa" * len(content)) for content in expected(dataset)]
    writer = RawWriter(places)
    group, together, parts = limits
    with patch.multiple(file_writer, SAMPLES_AT_ONCE=group, SMALL=together, PARTS_AT_ONCE=parts):
        for rank in range(ranks):
            for one in writer.place(places.parts(ranks, rank)):
                part = one.part
                largest = writer.largest_chunk(part, transfer)
                buffer = memoryview(bytearray(b"\xbb" * largest))
                at, count = part.offset, 0
                for offset, data in one.chunks(transfer, buffer):
                    assert offset == at
                    assert 0 < len(data) <= largest
                    assert transfer is None or len(data) <= transfer
                    files[part.file][offset : offset + len(data)] = data
                    at += len(data)
                    count += 1
                assert at == part.offset + part.length
                assert count == writer.chunk_count(part, transfer)
    assert files == expected(dataset)


def test_without_a_limit_a_chunk_is_a_sample_with_its_padding_and_the_first_has_the_header() -> None:
    dataset = Dataset("d", 1, 3, constant(10), Layout("shared file", 1), "d", header=5, align=8)
    (part,) = RawWriter(placed(dataset)).place(placed(dataset).parts(1, 0))
    made = [(at, len(data)) for at, data in part.chunks(None, memoryview(bytearray(100)))]
    assert made == [(0, 24), (24, 16), (40, 16)]


def test_a_file_without_samples_is_its_header() -> None:
    dataset = Dataset("d", 1, 2, constant(10), Layout("files", 4), "d", header=5000)
    writer = RawWriter(placed(dataset))
    made = list(writer.place(placed(dataset).parts(1, 0)))
    empty = [one for one in made if one.part.first_sample == one.part.last_sample]
    assert len(empty) == 2
    for one in empty:
        part = one.part
        buffer = memoryview(bytearray(b"x" * writer.largest_chunk(part, 2000)))
        made = [bytes(data) for _, data in one.chunks(2000, buffer)]
        assert made == [bytes(2000), bytes(2000), bytes(1000)]
        assert writer.chunk_count(part, 2000) == 3
        assert writer.chunk_count(part, None) == 1
