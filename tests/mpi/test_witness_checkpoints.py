"""An independent witness, strace, sees the calls that saves and restores plan, and every sync before its name.

What a checkpoint's manifest says of its files is what they have when they are read again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.launch import mpiexec, own_cores
from tests.scripts.fidelity import script


@pytest.fixture(scope="module")
def witness() -> Any:
    mpiexec()
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: no witness of system calls")
    return script("witness_checkpoints")


@dataclass(frozen=True)
class Traced:
    """A run of 3 ranks: what `run_traced` gave, and where its data are."""

    given: tuple[Any, Any]
    place: Path


@pytest.fixture(scope="module")
def traced(witness: Any, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    place = tmp_path_factory.mktemp("traced")
    with own_cores():
        return Traced(witness.run_traced(3, place), place)


def test_the_kernel_sees_the_checkpoints_of_the_plan(
    witness: Any, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "run_traced", lambda ranks, place: traced.given)
    seen = list(witness.witness(3, traced.place))
    assert "as the plan cuts them, in its order, and no other" in seen
    assert "as the plan lists them, in its order, 14 steps strided, and no other" in seen
    assert sum("`commit " in line for line in seen) == sum("with these sizes and CRC-32" in line for line in seen) == 7


def test_the_witness_notices_what_is_not_so(witness: Any, traced: Traced, tmp_path: Path) -> None:
    calls, workload = traced.given
    shutil.copytree(traced.place / "data", tmp_path / "data")
    checks: dict[str, Callable[[Any], object]] = {
        "writes": lambda some: list(witness.check_writes(some, workload)),
        "restores": lambda some: list(witness.check_restores(some, workload)),
        "commits": lambda some: list(witness.check_commits(some, workload)),
    }
    assert [name for name, check in checks.items() if refused(witness, check, calls)] == []
    manifests = list(witness.check_manifests(tmp_path / "data", workload, 3))
    assert len(manifests) == 7

    own, other, last_rank = calls
    writes = [
        place
        for place, call in enumerate(own)
        if call.name == "pwrite64" and call.path.startswith("split/") and call.path.endswith(".ckpt")
    ]
    reads = [place for place, call in enumerate(own) if call.name == "preadv2"]
    lists = [call for call in own if call.path.endswith("metadata.json") and call.name in ("read", "pread64")]
    wrong: list[tuple[str, str, Sequence[Any]]] = [
        ("writes", "a write swapped", swapped(own, writes)),
        ("writes", "a write missing", without(own, own[writes[0]])),
        ("writes", "a write twice", [*own, own[writes[0]]]),
        ("writes", "a short write", [*own, replace(own[writes[0]], result=1)]),
        ("writes", "a write without a place", [*own, replace(own[writes[0]], name="write")]),
        ("writes", "a file cut", [*own, replace(own[writes[0]], name="ftruncate")]),
        ("restores", "a read swapped", swapped(own, reads)),
        ("restores", "a read missing", without(own, own[reads[-1]])),
        ("restores", "a read twice", [*own, own[reads[0]]]),
        ("restores", "the list of all plans not read", without(own, lists[0])),
    ]
    for kind, name, number in (
        ("fsync", "000000.ckpt", 0),
        ("fsync", "metadata.json", 0),
        ("fsync", "folder_000001", 0),
        ("fsync", "manifest.json.partial", 0),
        ("rename", "manifest.json", 0),
        ("fsync", "000001.partial", 0),
        ("rename", "000001", 0),
        ("fsync", "000001", 0),
        ("fsync", "000001", 1),
    ):
        found = [call for call in own if call.name == kind and Path(call.path).name == name]
        wrong.append(("commits", f"{kind} {name} {number} missing", without(own, found[number])))
    last = next(call for call in own if call.name == "pwrite64" and call.path.endswith("/manifest.json"))
    wrong.append(("commits", "fsync with `fsync off`", [*own, replace(last, name="fsync")]))
    base = "/".join(own[writes[0]].path.split("/")[:2])
    wrong.append(("commits", "the last fsync missing", without(own, [c for c in own if c.path == base][-1])))
    assert [what for check, what, some in wrong if not refused(witness, checks[check], [some, other, last_rank])] == []

    late = [replace(call, time=call.time + 10) if call.path.endswith("000001.ckpt") else call for call in other]
    assert refused(witness, checks["commits"], [own, late, last_rank]), "another rank synced after the manifest"
    (changed,) = (tmp_path / "data").glob("shared/*/000001/000000.ckpt")
    with changed.open("r+b") as file:
        file.write(b"another")
    assert refused(witness, lambda _: list(witness.check_manifests(tmp_path / "data", workload, 3)), calls)


def swapped(calls: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """The first two of these in each other's place."""
    first, second = places[:2]
    found = [*calls]
    found[first], found[second] = calls[second], calls[first]
    return found


def without(calls: Sequence[Any], one: Any) -> list[Any]:
    return [call for call in calls if call is not one]


def refused(witness: Any, check: Callable[[Any], object], calls: Sequence[Any]) -> bool:
    try:
        check(calls)
    except witness.Unlike:
        return True
    return False
