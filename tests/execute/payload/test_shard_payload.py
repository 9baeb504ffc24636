"""Any part of a tensor's bytes is made and compared as if all of it had been made at once."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dliosim.execute.payload import payload_format
from dliosim.execute.payload.payload_format import fill_segment, find_segment_mismatch
from dliosim.execute.payload.sample_bytes import fill_range
from dliosim.plan.checkpoints.layout import Segment
from dliosim.plan.checkpoints.shards import TensorBlock


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, int, Segment]:
    """Bytes of a row, rows of the tensor, and a segment of a block of it."""
    row, rows = draw(st.integers(1, 60)), draw(st.integers(1, 20))
    row0, col0 = draw(st.integers(0, rows - 1)), draw(st.integers(0, row - 1))
    block = TensorBlock(row0, draw(st.integers(row0 + 1, rows)), col0, draw(st.integers(col0 + 1, row)))
    begin = draw(st.integers(0, block.length))
    return row, rows, Segment(0, block, begin, draw(st.integers(0, block.length - begin)))


@given(segments(), st.sampled_from([0, 40, 1 << 17]), st.sampled_from([1, 100, 1 << 20]), st.data())
def test_a_segment_is_made_and_compared_like_the_whole(
    found: tuple[int, int, Segment], longest: int, together: int, data: st.DataObject
) -> None:
    row, rows, segment = found
    whole = np.empty(row * rows, np.uint8)
    fill_range(77, 0, whole.data)
    block = segment.block
    cut = whole.reshape(rows, row)[block.row0 : block.row1, block.col0 : block.col1].reshape(-1)
    expected = cut[segment.begin : segment.begin + segment.length].tobytes()
    made = bytearray(segment.length)
    with patch.object(payload_format, "_LONGEST_ROW", longest), patch.object(payload_format, "_ROWS_BYTES", together):
        fill_segment(77, row, segment, memoryview(made))
        assert bytes(made) == expected
        assert find_segment_mismatch(77, row, segment, memoryview(made)) is None
        if made:
            flipped = data.draw(st.sets(st.integers(0, len(made) - 1), min_size=1))
            for place in flipped:
                made[place] ^= 0x10
            assert find_segment_mismatch(77, row, segment, memoryview(made)) == min(flipped)
