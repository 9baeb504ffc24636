"""A batch that does not hold what was prepared is never taken for one that does, and the error says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.backends.registry import NullReader
from dliosim.execute.batches.decode_preprocess import EpochCalls, SampleCache
from dliosim.execute.batches.prefetch import InlineBatches
from dliosim.execute.datasets.open_dataset import open_dataset
from dliosim.execute.loop.epoch_plan import EpochSource, plan_work
from dliosim.execute.payload.sample_bytes import fill_batch, sample_keys
from dliosim.execute.phases.context import Options, Session
from dliosim.model import Access, Dataset, Job, Layout, Loop, Workload, constant
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

DATASET = Dataset("d", 1, 4, constant(1000), Layout("shared file", 1), "d")
LOOP = Loop("train", "l", "d", Access(api="mpi-collective"), batch=4)


def source_of(directory: Path, dataset: Dataset) -> tuple[EpochSource, Session, memoryview]:
    """Return the batches of one step of all four samples, and the buffer that holds them."""
    workload = Workload("w", "", 1, Job(1), (dataset,), (), (LOOP,))
    session = Session(workload, world_of_one(), {"data": directory}, Options(), ProgressLine(None))
    data = open_dataset(session, dataset)
    work = plan_work(session, LOOP, data, 0, 1, SampleCache())
    buffer = allocate(work.calls.buffer_size)
    batches = InlineBatches([NullReader()], [buffer])
    batches.begin(EpochCalls(work.calls))
    source = EpochSource(session, data, batches, work, SampleCache())
    source.wait(0)
    return source, session, buffer


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 1000])
def test_a_wrong_byte_at_either_end_of_any_sample_is_found(tmp_path: Path, size: int) -> None:
    dataset = replace(DATASET, size=constant(size))
    source, _, buffer = source_of(tmp_path, dataset)
    fill_batch(sample_keys(dataset, np.arange(4)), np.full(4, size), np.arange(4) * size, buffer)
    source.check(0)
    for sample in range(4):
        for place in {0, min(7, size - 1), max(0, size - 8), size - 1}:
            buffer[sample * size + place] ^= 1
            with pytest.raises(ExecutionError, match=f"sample {sample} of data set"):
                source.check(0)
            buffer[sample * size + place] ^= 1
    source.check(0)


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (4000, "is not what was prepared; `prepare d afresh`"),
        (600, "is not what was prepared: the file has 600 bytes, and was cut short; `prepare d afresh`"),
        (None, "is not what was prepared; `prepare d afresh`"),
    ],
)
def test_an_untouched_buffer_is_no_batch(tmp_path: Path, size: int | None, reason: str) -> None:
    source, session, _ = source_of(tmp_path, DATASET)
    path = session.directory(DATASET.root, DATASET.path, DATASET.digest()) / DATASET.file_name(0)
    path.parent.mkdir(parents=True)
    if size is not None:
        path.write_bytes(bytes(size))
    with pytest.raises(ExecutionError) as caught:
        source.check(0)
    assert caught.value.code == "R401"
    assert f"bytes [0, 1000) of {path}, {reason}" in caught.value.message
