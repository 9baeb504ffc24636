"""Files laid out by a library, made again without it: the same bytes, or by the library where there is too much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.datasets import library_writer
from dliosim.execute.datasets.library_writer import copy_template, read_template
from dliosim.formats.hdf5.format import PlainHdf5
from dliosim.model import Chunk, Dataset, Layout, constant

DATASET = Dataset("d", 1, 9, constant(3000), Layout("shared file", 1), "d", format="hdf5")


def never() -> None:
    raise AssertionError("the library is not asked")


@pytest.mark.parametrize("count", [0, 1, 9])
@pytest.mark.parametrize(
    "dataset",
    [
        DATASET,
        replace(DATASET, parts=3),
        replace(DATASET, chunk=Chunk(4, "samples")),
        replace(DATASET, chunk=Chunk(700, "bytes")),
    ],
)
def test_a_file_made_from_a_template_is_the_one_that_the_library_makes(
    dataset: Dataset, count: int, tmp_path: Path
) -> None:
    PlainHdf5(dataset).lay_out(tmp_path / "first", count)
    copy_template(read_template(tmp_path / "first", PlainHdf5(dataset)), tmp_path / "second", never)
    assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()


def test_what_is_too_much_to_be_kept_is_left_to_the_library(tmp_path: Path) -> None:
    PlainHdf5(DATASET).lay_out(tmp_path / "first", 9)
    asked: list[bool] = []
    with patch.object(library_writer, "_MOST_BYTES", 100):
        copy_template(
            read_template(tmp_path / "first", PlainHdf5(DATASET)), tmp_path / "second", lambda: asked.append(True)
        )
    assert asked == [True]
    assert not (tmp_path / "second").exists()


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    PlainHdf5(DATASET).lay_out(tmp_path / "first", 9)
    (tmp_path / "second").write_bytes(b"x")
    with pytest.raises(ExecutionError, match="File exists"):
        copy_template(read_template(tmp_path / "first", PlainHdf5(DATASET)), tmp_path / "second", never)
    assert (tmp_path / "second").read_bytes() == b"x"
