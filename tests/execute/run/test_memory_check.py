"""The check that a node has memory for all that its ranks hold at once, for jobs of 16 and of 512 ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.datasets.open_dataset import open_known_datasets
from dliosim.execute.node import memory
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run import memory_check
from dliosim.execute.run.memory_check import require_memory_at_once
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Workload
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.rank_memory import NODE_BYTES, RANK_BYTES
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one
from tests.execute.node.test_memory import UNIFIED, make_group

COSMOFLOW = Path(__file__).parents[3] / "patterns" / "cosmoflow.dlio"


@dataclass(frozen=True)
class Node:
    """The ranks of a node; each needs what `session` says of its number."""

    session: Session
    rank: int
    size: int
    others: list[Any] = field(default_factory=list)

    def allreduce(self, table: Any, operation: str) -> None:
        """Add what the other ranks of the job need, by the same functions."""
        assert (operation, self.rank) == ("sum", 0)
        batches = memory_check._largest_batches(self.session)
        for rank in range(1, self.size):
            own = ranked(self.session, rank, self.size)
            table += np.array([astuple(need) for need in memory_check._verb_needs(own, batches, 0)])


def ranked(session: Session, rank: int, size: int) -> Session:
    """The session of a rank of a larger job on one node."""
    world: Any = world_of_one()

    class World:
        node = Node(session, rank, size)
        allreduce_on_node = node.allreduce

        def __getattr__(self, name: str) -> Any:
            return {"rank": rank, "size": size}.get(name) if name in ("rank", "size") else getattr(world, name)

    return replace(session, world=World())


def job(workload: Workload, tmp_path: Path) -> Session:
    """Rank 0 of a job whose ranks are on one node."""
    alone = Session(workload, world_of_one(), {"data": tmp_path}, Options(), ProgressLine(None))
    open_known_datasets([alone])
    return ranked(alone, 0, workload.job.ranks)


@contextmanager
def group_of(tmp_path: Path, ranks: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A control group of that size, in which the processes of the ranks take what they take."""
    make_group(tmp_path / "groups" / "job", UNIFIED, limit, ranks * RANK_BYTES + NODE_BYTES, 0)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "_CGROUPS", tmp_path / "groups")
        patch.setattr(memory, "_own_groups", lambda: "0::/job\n")
        patch.setattr(memory, "_read_meminfo", lambda name: None)
        yield


@pytest.mark.parametrize(("ranks", "limit"), [(16, 650_000_000), (512, 20_000_000_000)])
def test_cosmoflow_has_memory_where_its_ranks_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, limit: int
) -> None:
    """Rank 0 alone writes the checkpoint; 512 ranks fit into 20 GB, and the plan agrees."""
    workload = compile_pattern(COSMOFLOW, [], Job(ranks))[0]
    with group_of(tmp_path, ranks, limit, monkeypatch):
        require_memory_at_once(job(workload, tmp_path))
    if ranks == 16:  # planned for each rank
        assert forecast(workload).node_bytes <= limit
    with group_of(tmp_path, ranks, limit - limit // 5, monkeypatch), pytest.raises(ExecutionError) as caught:
        require_memory_at_once(job(workload, tmp_path))
    assert caught.value.code == "R402" and caught.value.shared
    assert caught.value.message.startswith("`train` needs ")
    assert "of memory on a node, and the control group of this job has " in caught.value.message
    assert f"({ranks} ranks on the node: buffers of calls " in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["groups"]


LARGE = """\
dlio 1
workload large
dataset d {
    samples 64
    size    1 MB
    path    "d"
}
checkpoint c {
    part     w 32 MB per rank
    writers  rank 0
    transfer 64 MB
    path     "c"
}
prepare d
train {
    read     d
    batch    4 per rank
    readers  1
    prefetch 4 batches
    sync     allreduce 4 MB
    steps    2
}
save c
"""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"c.transfer": "1 MB"},
            "`train` needs 320.0 MB of memory on a node, and the control group of this job has 40.00 MB free (16 ranks "
            "on the node: buffers of calls 256.0 MB, `sync allreduce` 64.00 MB)\n  = help: add "
            '`-D train.batch="1 per rank" -D train.sync=barrier`; or start at most 1 rank on a node',
        ),
        (
            {"train.batch": "1 per rank", "train.sync": "barrier", "train.prefetch": "1 batch"},
            "`save c` needs 544.0 MB of memory on a node, and the control group of this job has 40.00 MB free "
            '(16 ranks on the node: buffers of saves 544.0 MB)\n  = help: add `-D c.transfer="4 MiB"`',
        ),
        (
            {"c.async": "on", "c.transfer": "1 MB", "c.in flight": "2"},
            "`train` needs 1.377 GB of memory on a node, and the control group of this job has 40.00 MB free (16 ranks "
            "on the node: staging buffers 1.040 GB, buffers of calls 256.0 MB)\n  = help: add "
            '`-D c.staging=simulated -D train.batch="1 per rank"`',
        ),
    ],
    ids=["loop", "save", "staging"],
)
def test_a_job_that_does_not_fit_is_refused_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], message: str
) -> None:
    pattern = tmp_path / "large.dlio"
    pattern.write_text(LARGE)
    own = job(compile_pattern(pattern, list(settings.items()), Job(16))[0], tmp_path)
    limit = 16 * RANK_BYTES + NODE_BYTES + 40_000_000
    with group_of(tmp_path, 16, limit, monkeypatch), pytest.raises(ExecutionError) as caught:
        require_memory_at_once(own)
    assert caught.value.message == message
    assert {path.name for path in tmp_path.iterdir()} == {"groups", "large.dlio"}


CACHED = """\
dlio 1
workload cached
dataset d {
    samples 64
    size    1 MB
    path    "d"
}
prepare d
train {
    read   d
    batch  4 per rank
    cache  memory 64 GB
}
"""


def test_cache_memory_needs_no_more_than_an_epoch_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = tmp_path / "cached.dlio"
    pattern.write_text(CACHED)
    own = job(compile_pattern(pattern, [], Job(16))[0], tmp_path)
    with group_of(tmp_path, 16, 16 * RANK_BYTES + NODE_BYTES + 150_000_000, monkeypatch):
        require_memory_at_once(own)
    limit = 16 * RANK_BYTES + NODE_BYTES + 120_000_000
    with group_of(tmp_path, 16, limit, monkeypatch), pytest.raises(ExecutionError, match=r"`cache memory` 64\.00 MB"):
        require_memory_at_once(own)


CONVERTED = """\
dlio 1
workload converted
dataset loose {
    samples 64
    size    12 MB
    path    "loose"
}
dataset packed {
    samples 64
    size    12 MB
    layout  shared file
    path    "packed"
}
prepare loose
convert loose to packed {
    transfer 64 MB
}
"""


def test_the_cure_of_a_convert_is_a_setting_that_the_pattern_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = tmp_path / "converted.dlio"
    pattern.write_text(CONVERTED)
    own = job(compile_pattern(pattern, [], Job(2))[0], tmp_path)
    limit = 2 * RANK_BYTES + NODE_BYTES + 30_000_000
    with group_of(tmp_path, 2, limit, monkeypatch), pytest.raises(ExecutionError) as caught:
        require_memory_at_once(own)
    assert "`convert loose to packed` needs " in caught.value.message
    assert '`-D "convert packed.transfer"="4 MiB"`' in caught.value.message
    cured = compile_pattern(pattern, [("convert packed.transfer", "4 MiB")], Job(2))[0]
    with group_of(tmp_path, 2, limit, monkeypatch):
        require_memory_at_once(job(cured, tmp_path))
