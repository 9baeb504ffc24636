"""The bytes that a run reports as written and read are those that an independent witness, strace, saw.

A few ways of preparing, reading, saving and restoring; `scripts/dev/witness_figures.py` has those of every format.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest

from tests.mpi.launch import mpiexec, own_cores
from tests.scripts.fidelity import script

DATASETS = ("raw_one", "npz_gzip", "indexed", "hdf5", "hdf5_gzip", "hdf5_lzf", "parquet")
CHECKPOINTS = ("whole", "once", "split", "together", "behind")


def test_the_kernel_sees_the_figures_of_a_run_and_notices_others(tmp_path: Path) -> None:
    mpiexec()
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: no witness of system calls")
    pytest.importorskip("pyarrow")
    witness = script("witness_figures")
    with own_cores():
        results, seen = witness.run_traced(witness.pattern_text(DATASETS, CHECKPOINTS), 2, tmp_path)

    with h5py.File(tmp_path / "out" / "ranks.h5") as rows:

        def said(claimed: Any, found: Any) -> list[str]:
            return list(witness.check(claimed, rows, found, tmp_path / "data"))

        assert len(said(results, seen)) == len(results["phases"]) == 7 + 11 + 5 + 5

        def claims(kind: str, name: str, change: Callable[[dict[str, Any]], None]) -> Any:
            other = copy.deepcopy(results)
            change(next(phase for phase in other["phases"] if (phase["kind"], phase["name"]) == (kind, name))["files"])
            return other

        def loop_claims(name: str, column: str, times: int) -> Any:
            other = copy.deepcopy(results)
            epoch = next(phase for phase in other["phases"] if phase["name"] == name)["epochs"][1]
            epoch[column] *= times
            return other

        def without(path: str, kind: str) -> list[Any]:
            found = witness.data_calls(seen[:1], path, [kind])
            assert found, (path, kind)
            return [replace(seen[0], calls=[call for call in seen[0].calls if call is not found[-1]]), *seen[1:]]

        wrong = {
            "no calls of a library": (claims("prepare", "hdf5_gzip", lambda one: one.update(calls=0)), seen),
            "bytes of the contents": (claims("prepare", "hdf5", lambda one: one.update(bytes=37_500)), seen),
            "a short flush": (
                claims("save", "behind", lambda one: one.update(flush_seconds={"max": 1e-9})),
                seen,
            ),
            "bytes that no rank read of a restore": (
                claims("restore", "together", lambda one: one.update(distinct_bytes=one["bytes_moved"] + 1)),
                seen,
            ),
            "what all ranks asked for as read": (loop_claims("raw_one_aggregated", "read_call_bytes", 2), seen),
            "bytes that no rank read of a loop": (loop_claims("raw_one_aggregated", "distinct_bytes", 3), seen),
            "a write of a library unseen": (results, without("parquet", "write")),
            "a write of a save unseen": (results, without("split", "pwrite64")),
            "a read of a restore unseen": (results, without("once", "preadv2")),
            "a read of a loop unseen": (results, without("hdf5", "preadv2")),
            "a read of a library unseen": (results, without("hdf5_gzip", "pread64")),
        }

        def refused(claimed: Any, found: Any) -> bool:
            try:
                said(claimed, found)
            except witness.Unlike:
                return True
            return False

        assert [what for what, (claimed, found) in wrong.items() if not refused(claimed, found)] == []
