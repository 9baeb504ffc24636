"""JSON of others takes no more memory than ours may, and is read or refused."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.boundedjson import LARGEST, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_json_holds_is_read(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@given(st.binary() | st.text(alphabet='[]{}",:0123456789.eE+-nulltrf').map(str.encode))
def test_whatever_else_it_is_is_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        parse_json(data)


@pytest.mark.parametrize("piece", [b"[],", b"{},", b'{"a":1},', b"1,", b'"ab",', b"[[1]],", b"[", b'{"a":'])
def test_a_large_text_of_small_things_is_refused_before_they_are_made(piece: bytes) -> None:
    data = b"[" + piece * (LARGEST // 4 // len(piece)) + b"0]"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="dliosim writes none of more than"):
            parse_json(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_no_number_is_one_that_json_does_not_have() -> None:
    for text in (b"NaN", b"[Infinity]", b'{"a": -Infinity}'):
        with pytest.raises(ValueError, match="is no number of JSON"):
            parse_json(text)


def test_the_manifest_of_a_large_checkpoint_is_read() -> None:
    files = {f"{rank:06d}/zero_pp_rank_{rank}_mp_rank_00.pt": [123456789, 4012345678] for rank in range(100_000)}
    assert parse_json(json.dumps({"files": files}, indent=1).encode()) == {"files": files}


@pytest.mark.parametrize("depth", [100_000, 1_000_000])
def test_depth_is_bounded(depth: int) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply"):
        parse_json(b"[" * depth)
