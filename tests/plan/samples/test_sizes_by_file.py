"""Sizes that are drawn for files: every format whose files' indexes are estimated has them before files are there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.formats.registry import bind
from dliosim.model import Chunk, Compression, Dataset, Distribution, Layout
from dliosim.plan.forecast.layout_forecast import guess_places, place_samples
from dliosim.plan.samples.places import sample_parts
from dliosim.plan.samples.sample_to_file import sample_sizes

DRAWN = Distribution("normal", (3000.0, 900.0), 1.0, 9000.0)
LIMITLESS = Distribution("normal", (3000.0, 900.0))
GZIP = Compression("gzip", 4)


def dataset(form: str, samples: int = 23, files: int = 5, **changes: object) -> Dataset:
    fields = {"size": DRAWN, "format": form, "sizes": "by file", **changes}
    return Dataset("d", 7, samples, layout=Layout("files", files), path="d", **fields)  # type: ignore[arg-type]


@given(st.integers(1, 60), st.integers(1, 9), st.sampled_from([None, Chunk(1000, "bytes"), Chunk(1, "samples")]))
def test_each_file_is_planned_with_the_size_that_is_drawn_for_it(samples: int, files: int, chunk: Chunk | None) -> None:
    described = dataset("hdf5", samples, min(files, samples), chunk=chunk)
    every = np.arange(samples)
    file, _, length = place_samples(described).places.locate(every)
    sizes = sample_sizes(described, every)
    assert np.array_equal(length, sizes)
    assert all(len(set(sizes[file == one])) == 1 for one in range(described.layout.files))


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 7))
def test_parts_of_files_have_the_bytes_of_their_samples(samples: int, files: int, ranks: int) -> None:
    described = dataset("hdf5", samples, min(files, samples))
    parts = [part for rank in range(ranks) for part in sample_parts(described, ranks, rank)]
    assert sum(part.length for part in parts) == sample_sizes(described, np.arange(samples)).sum()


def test_more_kinds_of_files_than_are_estimated_have_the_mean() -> None:
    described = dataset("hdf5", 40_000, 40_000, size=Distribution("uniform", (1.0, 1e6)))
    places = guess_places(bind(described))
    assert places.dataset.constant_size == round(sample_sizes(described, np.arange(40_000)).mean())


@pytest.mark.parametrize(
    ("form", "changes", "setting"),
    [
        ("hdf5", {"parts": 2}, "parts"),
        ("hdf5", {"sizes": "by sample"}, "size"),
        ("hdf5", {"size": LIMITLESS, "chunk": Chunk(4, "samples")}, "size"),
        ("hdf5", {"chunk": Chunk(1 << 20, "samples"), "samples": 1 << 22}, "chunk"),
        ("npz", {"sizes": "by sample", "compress": GZIP}, "size"),
        ("npz", {"size": LIMITLESS, "compress": GZIP}, "size"),
        ("parquet", {"parts": 2}, "parts"),
        ("parquet", {"sizes": "by sample"}, "size"),
    ],
)
def test_what_no_file_can_hold_is_refused(form: str, changes: dict[str, object], setting: str) -> None:
    refused = bind(dataset(form, **changes)).refuse()  # type: ignore[arg-type]
    assert refused is not None
    assert refused[0] == setting


@pytest.mark.parametrize("form", ["hdf5", "npz", "npy", "parquet"])
@pytest.mark.parametrize("files", [5, 23])
def test_files_of_drawn_sizes_are_taken(form: str, files: int) -> None:
    assert bind(dataset(form, 23, files)).refuse() is None
