"""Raw files: places of samples by header and alignment, and files with no whole number of samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import build_framed, check_damage, check_framed, sample_ranges, write_framed
from dliosim.formats.protocols import Framed
from dliosim.formats.raw import Raw
from dliosim.formats.registry import bind
from tests.formats.described import VARYING, described


def test_raw_is_framed() -> None:
    assert isinstance(bind(described("raw", 5)), Framed)


@given(
    st.integers(1, 300),
    st.sampled_from([1, 2, 7]),
    st.integers(0, 90),
    st.sampled_from([1, 3, 64]),
    st.booleans(),
)
def test_samples_are_where_header_and_alignment_put_them(
    tmp_path_factory: pytest.TempPathFactory, size: int, count: int, header: int, align: int, filled: bool
) -> None:
    path = tmp_path_factory.mktemp("raw") / "f.raw"
    dataset = described("raw", size, header=header, align=align)
    begin, stride = -(-header // align) * align, -(-size // align) * align
    whole = build_framed(Raw(dataset), np.full(count, size))
    # Whether a file ends with its last sample, or where the next one would begin, is one.
    path.write_bytes(whole[: begin + (count - 1) * stride + (stride if filled else size)])
    index = Raw(dataset).index(path)
    assert index.samples == count
    assert [sample_ranges(index, row) for row in range(count)] == [
        [(begin + row * stride, size)] for row in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_what_holds_of_every_framed_format_holds_of_raw(tmp_path: Path, count: int) -> None:
    check_framed(Raw(described("raw", 13, header=5, align=4)), np.full(count, 13), tmp_path / "f.raw")


def test_a_sample_of_its_own_size_is_its_whole_file(tmp_path: Path) -> None:
    check_framed(Raw(described("raw", VARYING, each=True)), np.array([17]), tmp_path / "f.raw")


@pytest.mark.parametrize("size", [9, 11, 19, 21])
def test_bytes_that_are_no_whole_samples_are_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f.raw"
    path.write_bytes(bytes(size))
    with pytest.raises(ExecutionError, match=f"f.raw has {size} bytes.*samples of 10"):
        Raw(described("raw", 10)).index(path)


def test_cut_files_are_refused_or_answered_within_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f.raw"
    dataset = described("raw", 13, header=5, align=4)
    write_framed(Raw(dataset), path, np.full(7, 13))
    check_damage(Raw(dataset), path)
