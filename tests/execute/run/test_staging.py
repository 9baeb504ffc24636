"""One rank's part of a copy: it stops between two calls, and counts what it compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.run.staging import NodeCopy
from dliosim.measure.rank.records import VerbRecord
from dliosim.plan.forecast.prepare_forecast import COPY_CALL

NONE = cast(Any, None)


def node_copy() -> NodeCopy:
    return NodeCopy(NONE, NONE, NONE, NONE, VerbRecord())


def test_a_copy_that_is_stopped_makes_no_further_call() -> None:
    made = node_copy()
    assert list(made._runs(COPY_CALL + 5)) == [(0, COPY_CALL), (COPY_CALL, 5)]
    runs = made._runs(3 * COPY_CALL)
    assert next(runs) == (0, COPY_CALL)
    made.stopped.set()
    assert list(runs) == []


def test_compared_bytes_are_counted_and_errors_name_the_file(tmp_path: Path) -> None:
    made, source, target = node_copy(), tmp_path / "a", tmp_path / "b"
    for path in (source, target):
        path.write_bytes(bytes(1000))
    made._compare_files(source, target)
    assert made.compared == 2000
    target.write_bytes(bytes(999))
    with pytest.raises(ExecutionError, match=r"/b differs from .*/a after byte 0"):
        made._compare_files(source, target)
    source.unlink()
    with pytest.raises(ExecutionError, match=r"read failed on .*/a: No such file"):
        made._compare_files(source, target)
    made.stopped.set()
    source.write_bytes(b"other")
    made._compare_files(source, target)
