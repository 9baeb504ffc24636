"""Named ways of doing I/O: written out again by `explain`, they are the same workload."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.language.unparse import explain_pattern
from dliosim.model import Job
from tests.language.conftest import DATA

SHARED = DATA.replace("path", "layout shared file\n    path")


@pytest.mark.parametrize(
    "lines",
    [
        'api mpi-collective\n    hints two-phase 2 aggregators buffer 1 MiB\n    hint "romio_ds_read" = "enable"',
        "api mpi-collective\n    hints no-aggregation",
        "api mpi-collective\n    communicator 3 ranks\n    hints two-phase 2 aggregators",
        "api mpi-independent\n    communicator node",
        "api mpi-independent\n    scatter by node",
        "order by offset",
        "api mpi-independent\n    order as planned",
    ],
)
def test_a_way_as_explained_is_the_same_way(lines: str, tmp_path: Path) -> None:
    written, resolved = tmp_path / "pattern.dlio", tmp_path / "resolved.dlio"
    written.write_text(f"dlio 1\nworkload w\n{SHARED}\ntrain {{\n    read universe\n    {lines}\n}}\n")
    resolved.write_text(explain_pattern(written, [], Job(4)))
    assert compile_pattern(resolved, [], Job(4))[0].verbs == compile_pattern(written, [], Job(4))[0].verbs


def test_the_pairs_of_a_set_come_from_where_the_set_is_named(tmp_path: Path) -> None:
    written = tmp_path / "pattern.dlio"
    lines = '    api mpi-collective\n    hint "a" = "b"\n    hints no-aggregation\n'
    written.write_text(f"dlio 1\nworkload w\n{SHARED}\ntrain {{\n    read universe\n{lines}}}\n")
    text = explain_pattern(written, [], Job(4)).splitlines()
    origins = {line.split("#")[0].strip(): line.split("#")[1].strip() for line in text if " #" in line}
    named, given = origins["hints      no-aggregation"], origins['hint       "a" = "b"']
    assert origins['hint       "romio_cb_read" = "disable"'] == named != given
