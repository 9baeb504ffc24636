"""`columns`: of a table, with their types, and of a loop, which reads the first ones."""

from __future__ import annotations

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.language.unparse import explain_pattern
from dliosim.model import Columns, Job, Loop
from tests.language.conftest import Patterns

pytest.importorskip("pyarrow")


def text(lines: str = "columns 40 of float32, 2 of 3 x int64\n format parquet", read: str = "columns 40") -> str:
    table = f'dataset table {{\n samples 64\n {lines}\n layout shared file\n path "t"\n}}\n'
    return f"{table}prepare table\ntrain {{\n read table\n {read}\n}}\n"


def test_a_table_has_the_bytes_of_its_columns_and_a_loop_reads_the_first_ones(patterns: Patterns) -> None:
    workload = patterns.workload(text())
    table, loop = workload.dataset("table"), workload.verbs[-1]
    assert table.columns == (Columns(40, "float32"), Columns(2, "int64", 3))
    assert (table.parts, table.constant_size) == (42, 40 * 4 + 2 * 24)
    assert isinstance(loop, Loop)
    assert loop.columns == 40
    part = table.first_columns(41)
    assert (part.parts, part.constant_size, part.columns[-1]) == (41, 40 * 4 + 24, Columns(1, "int64", 3))


def test_it_explains_itself(patterns: Patterns) -> None:
    again = patterns.folder / "explained.dlio"
    again.write_text(explain_pattern(patterns.file("main.dlio", f"workload example\n{text()}"), [], Job(4)))
    assert compile_pattern(again, [], Job(4))[0].digest() == patterns.workload(text()).digest()


@pytest.mark.parametrize(
    ("lines", "read", "codes"),
    [
        ("columns 4 of float32\n format parquet", "columns 5", ["E113"]),
        ("columns 4 of float33\n format parquet", "", ["E003"]),
        ("columns 4 of float32\n size 16 B\n format parquet", "", ["E213"]),
        ("columns 4 of float32\n datasets 4\n format parquet", "", ["E213"]),
        ("columns 4 of float32", "", ["E212"]),
        ("columns 4 of float32\n format csv", "", ["E212"]),
        ("size 16 B", "columns 1", ["E210"]),
        ("size 16 B\n datasets 4\n format parquet", "columns 5", ["E113"]),
        ("columns 9999999 of float32\n format parquet", "", ["E113"]),
    ],
)
def test_what_cannot_be_is_refused(lines: str, read: str, codes: list[str], patterns: Patterns) -> None:
    assert patterns.codes(text(lines, read)) == codes


def test_columns_of_equal_data_sets_can_be_chosen_too(patterns: Patterns) -> None:
    loop = patterns.workload(text("size 16 B\n datasets 4\n format parquet", "columns 3")).verbs[-1]
    assert isinstance(loop, Loop)
    assert loop.columns == 3
