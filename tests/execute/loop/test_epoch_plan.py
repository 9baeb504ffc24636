"""A batch that does not hold what was prepared is never taken for one that does, and the error says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.backends.buffers import allocate
from dliosim.execute.backends.null import NullReader
from dliosim.execute.batches.batch_schedule import EpochCalls
from dliosim.execute.batches.prefetch import InlineBatches
from dliosim.execute.batches.sample_cache import SampleCache
from dliosim.execute.context import Options, Session
from dliosim.execute.loop.epoch_plan import EpochSource, plan_work
from dliosim.model import Access, Dataset, Job, Layout, Loop, Workload, constant
from dliosim.report.progress import ProgressLine
from tests.execute.alone import world_of_one

DATASET = Dataset("d", 1, 4, constant(1000), Layout("shared file", 1), "d")
LOOP = Loop("train", "l", "d", Access(api="mpi-collective"), batch=4)


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (4000, "is not what was prepared; `prepare d afresh`"),
        (600, "is not what was prepared: the file has 600 bytes, and was cut short; `prepare d afresh`"),
        (None, "is not what was prepared; `prepare d afresh`"),
    ],
)
def test_an_untouched_buffer_is_no_batch(tmp_path: Path, size: int | None, reason: str) -> None:
    workload = Workload("w", "", 1, Job(1), (DATASET,), (), (LOOP,))
    world = world_of_one()
    session = Session(workload, world, {"data": tmp_path}, Options(), ProgressLine(None), {"d": None})
    path = session.directory(DATASET.root, DATASET.path, DATASET.digest()) / DATASET.file_name(0)
    path.parent.mkdir(parents=True)
    if size is not None:
        path.write_bytes(bytes(size))
    work = plan_work(session, LOOP, DATASET, 0, 1, SampleCache())
    batches = InlineBatches([NullReader()], [allocate(work.calls.buffer_size)])
    batches.begin(EpochCalls(work.calls))
    source = EpochSource(session, DATASET, batches, work, SampleCache())
    source.wait(0)
    with pytest.raises(ExecutionError) as caught:
        source.check(0)
    assert caught.value.code == "R401"
    assert f"bytes [0, 1000) of {path}, {reason}" in caught.value.message
