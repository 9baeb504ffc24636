"""HDF5 files of any shape and chunks: what is written, and read by ranges and by the library, is what h5py reads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dliosim.execute.payload.sample_bytes import fill_range, sample_keys
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.formats.hdf5.format import hdf5
from dliosim.model import (
    Access,
    Chunk,
    Compression,
    Dataset,
    Job,
    Layout,
    Loop,
    Prepare,
    Shape,
    Workload,
    constant,
)
from dliosim.report.progress.progress_line import ProgressLine
from tests.examples import examples
from tests.execute.alone import world_of_one

WAYS = (Access(), Access(open="each sample", transfer=7), Access(through="library"))


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> Iterator[None]:
    """Each loop looks through all objects of the process: those of the tests are most, and do not change."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def described(shape: Shape, layout: Layout, parts: int = 1, **rest: Any) -> Dataset:
    size = constant(shape.size * parts)
    return Dataset("d", 5, 4, size, layout, "d", format="hdf5", shape=shape, parts=parts, **rest)


def by_application(path: Path, dataset: Dataset) -> list[bytes]:
    """Each sample's bytes as h5py's own slices give them, its parts one after the other."""
    names = ["records"] if dataset.parts == 1 else [f"records_{part}" for part in range(dataset.parts)]
    with h5py.File(path, "r") as file:
        whole = [file[name][()] for name in names]
    return [b"".join(one[row].tobytes() for one in whole) for row in range(len(whole[0]))]


def expected(dataset: Dataset) -> list[bytes]:
    made = [bytearray(dataset.constant_size or 0) for _ in range(dataset.samples)]
    for key, data in zip(sample_keys(dataset, np.arange(dataset.samples)).tolist(), made, strict=True):
        fill_range(key, 0, memoryview(data))
    return [bytes(data) for data in made]


def check(dataset: Dataset, transfer: int | None) -> None:
    """Write a data set, ask h5py what is in it, and read and compare every byte in all `WAYS`."""
    loops = (Loop("train", f"l{n}", "d", access, batch=3, last_batch="keep") for n, access in enumerate(WAYS))
    prepare = Prepare("d", Access(transfer=transfer), fsync=False)
    workload = Workload("w", "", 5, Job(1), (dataset,), (), (prepare, *loops))
    world = world_of_one()
    with TemporaryDirectory() as root:
        session = Session(workload, world, {"data": Path(root)}, Options(verify=True), ProgressLine(None))
        phases = run_workload(session)
        files = sorted(Path(root).glob("d/*/*.h*5"))
        assert len(files) == dataset.layout.files
        assert [one for path in files for one in by_application(path, dataset)] == expected(dataset)
    assert len(phases) == 1 + len(WAYS)


layouts = st.sampled_from([Layout("shared file", 1), Layout("files", 3), Layout("file per sample", 4)])
codecs = st.sampled_from([None, None, Compression("gzip", 1), Compression("lzf")])


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    """Four samples of 1 to 4 dimensions, in one run, in chunks of some samples, or cut along one dimension or more."""
    extents = tuple(draw(st.lists(st.sampled_from([7, 6, 5, 3, 2, 1]), min_size=1, max_size=4)))
    shape = Shape(extents, draw(st.sampled_from(["uint8", "int16", "float64"])))
    axis = draw(st.integers(-len(extents), -1))
    run = draw(st.integers(1, extents[axis])) * shape.size // prod(extents[: len(extents) + axis + 1])
    along, whole = Chunk(run + draw(st.integers(0, 3)), "bytes"), Chunk(draw(st.integers(1, 5)), "samples")
    cut = tuple(draw(st.integers(1, extent)) for extent in extents)
    tile = Chunk(prod(cut), "elements", cut)
    chunk = draw(st.sampled_from([along, along, tile, tile, whole, None]))
    return described(shape, draw(layouts), draw(st.sampled_from([1, 1, 2])), chunk=chunk, compress=draw(codecs))


@settings(max_examples=examples(50))
@given(datasets(), st.none() | st.integers(1, 40))
def test_what_is_written_is_what_h5py_and_every_way_of_reading_find(dataset: Dataset, transfer: int | None) -> None:
    assume(hdf5(dataset).refuse() is None)
    check(dataset, transfer)


@pytest.mark.parametrize(
    ("extents", "chunk"), [((4, 6), 4), ((6, 9, 3), 18), ((6, 6, 9, 3), 108), ((2, 3, 7), 4), ((6, 9), 18)]
)
def test_chunks_that_do_not_divide_an_inner_dimension(extents: tuple[int, ...], chunk: int) -> None:
    check(described(Shape(extents, "uint8"), Layout("shared file", 1), chunk=Chunk(chunk, "bytes")), None)
