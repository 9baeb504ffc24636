"""An independent witness, strace, sees exactly the reads that the plan lists, and the fsync of all that was written."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.trace.events import Events
from dliosim.trace.file import read_trace
from tests.examples import in_turn
from tests.mpi.launch import ROOT, mpiexec, own_cores


@pytest.fixture(scope="module")
def witness() -> ModuleType:
    mpiexec()
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: no witness of system calls")
    sys.path.insert(0, str(ROOT / "scripts" / "dev"))
    try:
        return importlib.import_module("witness")
    finally:
        sys.path.remove(str(ROOT / "scripts" / "dev"))


@dataclass(frozen=True)
class Traced:
    """A run of one rank by `api posix`: its calls, and where its pattern, data and results are."""

    calls: list[list[Any]]
    place: Path


@pytest.fixture(scope="module")
def traced(witness: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    place = tmp_path_factory.mktemp("traced")
    (place / "witness.dlio").write_text(witness.pattern_text())
    return Traced(witness.trace(place / "witness.dlio", ["api=posix"], 1, place), place)


@pytest.mark.parametrize(("api", "ranks"), in_turn(["posix", "mpi-independent"], [1, 3]))
def test_the_kernel_sees_what_the_plan_lists(
    witness: ModuleType, traced: Traced, api: str, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path
    if (api, ranks) == ("posix", 1):
        place = traced.place
        monkeypatch.setattr(witness, "trace", lambda *given: traced.calls)
    with own_cores():
        seen = list(witness.witness(api, ranks, place))
    assert sum("as the plan lists them, in another order each epoch" in line for line in seen) == 4
    assert "no other read of a data file" in seen
    assert sum("reads and writes in the trace, as strace saw them" in line for line in seen) == ranks
    assert sum("synced by every rank that wrote it, then declared whole" in line for line in seen) == 3


def test_the_witness_notices_what_is_not_so(witness: ModuleType, traced: Traced) -> None:
    pattern = traced.place / "witness.dlio"
    workload, _ = compile_pattern(pattern, [("api", "posix")], Job(1))
    (calls,) = traced.calls
    reads = [number for number, call in enumerate(calls) if call.name == "preadv2" and "together" in call.path]
    first, second = reads[:2]
    swapped = [*calls]
    swapped[first], swapped[second] = calls[second], calls[first]
    syncs = [call for call in calls if call.name == "fsync"]
    synced = {
        "file of a data set": [call for call in syncs if call.path.endswith(".raw") and "separate/" in call.path],
        "file of a checkpoint": [call for call in syncs if call.path.endswith(".ckpt")],
        "folder of a data set": [call for call in syncs if Path(call.path).name == "0001"],
        "directory of a data set": [call for call in syncs if Path(call.path).parent.name == "together"],
        "directory of a checkpoint": [call for call in syncs if call.path.endswith("000001.partial")],
        "directory of checkpoints": [call for call in syncs if Path(call.path).parent.name == "model"],
    }
    wrong: dict[str, list[object]] = {
        "swapped": swapped,
        "missing": [*calls[:first], *calls[first + 1 :]],
        "twice": [*calls, calls[first]],
        "short": [*calls[:first], replace(calls[first], result=1), *calls[first + 1 :]],
        "unpositioned": [*calls, replace(calls[first], name="read")],
        "mapped": [*calls, replace(calls[first], name="mmap", arguments="NULL, 4096, PROT_READ, MAP_SHARED, 9, 0")],
        "another thread": [*calls[:first], replace(calls[first], thread=".1"), *calls[first + 1 :]],
    }

    def refused(check: Callable[[], object]) -> bool:
        try:
            check()
        except witness.Unlike:
            return True
        return False

    def reads_as_planned(some: list[object]) -> list[str]:
        return list(witness.check_reads([some], pattern, "posix", workload))

    assert reads_as_planned(calls)
    assert [name for name, some in wrong.items() if not refused(lambda: reads_as_planned(some))] == []  # noqa: B023
    recorded = read_trace(traced.place / "out" / "trace.h5")
    rows = np.flatnonzero(recorded.events.is_kind("read"))
    order = np.arange(len(recorded.events))
    order[rows[:2]] = rows[1::-1]
    others = {
        "a read less": recorded.events.select(np.delete(order, rows[0])),
        "a read more": recorded.events.select(np.append(order, rows[0])),
        "two in another order": recorded.events.select(order),
    }

    def as_recorded(events: Events) -> list[str]:
        return list(witness.check_trace([calls], replace(recorded, events=events), traced.place / "data"))

    assert as_recorded(recorded.events)
    assert [name for name, events in others.items() if not refused(lambda: as_recorded(events))] == []  # noqa: B023
    assert list(witness.check_syncs([calls], workload))
    for what, some in synced.items():
        assert some, what
        left = [call for call in calls if call not in some]
        assert refused(lambda: list(witness.check_syncs([left], workload))), what  # noqa: B023
