"""Files of framed formats, made in parts by any ranks in calls of any size, are the files that the format describes."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.execute.datasets import framed_writer
from dliosim.execute.datasets import framed_writer as makes
from dliosim.execute.datasets.framed_writer import FramedWriter
from dliosim.execute.payload.payload_format import fill_part
from dliosim.execute.payload.sample_bytes import sample_keys
from dliosim.formats import contract_tests
from dliosim.model import Dataset, Distribution, Layout, constant
from dliosim.plan.samples.sample_to_file import first_samples, sample_sizes
from tests.examples import examples
from tests.plan.helpers import placed

VARYING = Distribution("uniform", (70.0, 900.0))


def dataset_of(name: str, samples: int, files: int, size: Distribution, seed: int = 1) -> Dataset:
    layout = (
        Layout("file per sample", samples) if files >= samples or name in ("jpeg", "png") else Layout("files", files)
    )
    return Dataset("d", seed, samples, size, layout, "d", format=name)


def contents(dataset: Dataset, sample: int, size: int) -> np.ndarray:
    """Return what a run writes, before a text format dresses it."""
    out = bytearray(size)
    fill_part(None, int(sample_keys(dataset, np.array([sample]))[0]), 0, memoryview(out))
    return np.frombuffer(out, np.uint8)


def dirty(size: int) -> memoryview:
    """Memory that has been used before."""
    return memoryview(bytearray(b"\xaa" * size))


def expected(dataset: Dataset, file: int) -> bytes:
    first, last = first_samples(np.array([file, file + 1]), dataset.samples, dataset.layout.files).tolist()
    sizes = sample_sizes(dataset, np.arange(first, last))
    with patch.object(contract_tests, "random_contents", contents):
        return contract_tests.build_framed(placed(dataset).form, sizes, first)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("npy", constant(100)),
        ("npz", constant(333)),
        ("csv", constant(57)),
        ("csv", VARYING),
        ("tfrecord", constant(200)),
        ("tfrecord", VARYING),
        ("tar", VARYING),
        ("indexed", constant(130)),
        ("npz", constant(20_001)),
        ("jpeg", constant(1500)),
        ("png", Distribution("uniform", (1100.0, 3000.0))),
    ],
)
@settings(max_examples=examples(25))
@given(
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from([None, 64, 500, 5000, 1 << 20]),
    st.sampled_from([0, 4096, 1 << 20]),
)
def test_parts_of_all_ranks_make_the_files(
    name: str, size: Distribution, samples: int, files: int, ranks: int, transfer: int | None, small_bytes: int
) -> None:
    dataset = dataset_of(name, samples, files, size)
    places = placed(dataset)
    maker = FramedWriter(places)
    count = dataset.layout.files
    made = [bytearray(b"\xaa" * size) for size in places.file_sizes(np.arange(count)).tolist()]
    small = {"_SMALL_SAMPLES": 7, "SMALL_FILE": small_bytes, "MADE_TOGETHER": 3 * small_bytes, "allocate": dirty}
    with patch.object(makes, "SAMPLES_AT_ONCE", 7), patch.multiple(framed_writer, **small):
        for rank in range(ranks):
            for one in maker.place(places.parts(ranks, rank)):
                part = one.part
                buffer = dirty(maker.largest_chunk(part, transfer))
                calls = 0
                for offset, data in one.chunks(transfer, buffer):
                    assert transfer is None or len(data) <= max(transfer, 256)
                    made[part.file][offset : offset + len(data)] = data
                    calls += 1
                assert calls == maker.chunk_count(part, transfer)
    assert [bytes(one) for one in made] == [expected(dataset, file) for file in range(count)]


@pytest.mark.parametrize("transfer", [None, 100])
@pytest.mark.parametrize("name", ["tar", "npz", "csv", "tfrecord"])
def test_a_file_without_samples_is_still_a_file_of_the_format(name: str, transfer: int | None, tmp_path: Path) -> None:
    dataset = Dataset("d", 1, 2, constant(100), Layout("files", 3), "d", format=name)
    places = placed(dataset)
    maker = FramedWriter(places)
    parts = [part for part in places.parts(1, 0) if part.first_sample == part.last_sample]
    (one,) = maker.place(parts)
    buffer = memoryview(bytearray(maker.largest_chunk(one.part, transfer)))
    made = [bytes(data) for _, data in one.chunks(transfer, buffer)]
    assert len(made) == maker.chunk_count(one.part, transfer)
    path = tmp_path / f"empty.{name}"
    path.write_bytes(b"".join(made))
    assert places.form.index(path).samples == 0
