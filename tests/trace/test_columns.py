"""Columns of one rank: kept to their limit, set aside in a file, and lost loudly where that fails."""

from __future__ import annotations

import errno
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.trace.columns import CALL_COLUMNS, CHUNK_ROWS, SPAN_COLUMNS, ColumnBuffer, SpillFile
from tests.examples import examples
from tests.trace.full_disk import largest_file


def random_rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows that are hardly compressed."""
    draw = np.random.default_rng(seed)
    return {name: draw.integers(0, 1 << 8 * kind.itemsize - 2, count) for name, kind in CALL_COLUMNS.items()}


@given(
    counts=st.lists(st.integers(0, 3000), max_size=4),
    big=st.sampled_from([0, 0, CHUNK_ROWS, 2 * CHUNK_ROWS + 1]),
    most=st.sampled_from([0, 1, 5_000, 100_000, 3_000_000, 1 << 30]),
)
@settings(max_examples=examples(40), deadline=None)
def test_columns_keep_their_first_rows_up_to_their_limit(counts: list[int], big: int, most: int) -> None:
    buffer = ColumnBuffer(CALL_COLUMNS, most, SpillFile("/dev/shm"))
    parts = [random_rows(count, number) for number, count in enumerate([*counts, big])]
    for number, part in enumerate(parts):
        buffer.add(part)
        if number % 2:
            buffer.compress()
    buffer.seal()
    total = sum([*counts, big])
    rows = CHUNK_ROWS if buffer.kept >= CHUNK_ROWS else max(1, buffer.kept)
    chunks = list(buffer.chunks(rows))
    padding = 64 * len(CALL_COLUMNS) * (1 + rows // 1000)
    assert buffer.added == total
    assert sum(map(len, chunks)) <= most + (padding if chunks else 0)
    assert len(chunks) == len(CALL_COLUMNS) * -(-buffer.kept // rows)
    assert buffer.kept == total or most < 1 << 30
    found = [
        np.frombuffer(zlib.decompress(chunk), np.uint8).reshape(8, rows).T.copy().view(np.int64)[:, 0]
        for chunk in chunks[list(CALL_COLUMNS).index("offset") :: len(CALL_COLUMNS)]
    ]
    wanted = np.concatenate([part["offset"] for part in parts])
    assert np.array_equal(np.concatenate([np.empty(0, np.int64), *found])[: buffer.kept], wanted[: buffer.kept])


def test_a_limit_that_has_room_for_some_rows_keeps_them() -> None:
    buffer = ColumnBuffer(CALL_COLUMNS, 100_000, SpillFile("/dev/shm"))
    buffer.add(random_rows(10_000))
    buffer.seal()
    assert 1_000 < buffer.kept < 5_000
    assert sum(map(len, buffer.chunks(buffer.kept))) <= 100_000
    buffer.add(random_rows(10))
    assert buffer.added == 10_010


def test_a_write_that_takes_a_part_is_an_error_and_no_chunk(tmp_path: Path) -> None:
    spill = SpillFile(str(tmp_path))
    with largest_file(100_000):
        spill.write(bytes(60_000))
        with pytest.raises(OSError, match="too large"):
            spill.write(bytes(60_000))
    # What was written is lost, its room is free, and nothing takes it again: the results may need it.
    with pytest.raises(OSError, match="too large"):
        spill.write(b"after")
    with pytest.raises(OSError, match="closed"):
        spill.read(0, 1)


def test_columns_that_cannot_be_set_aside_are_lost_and_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dliosim.trace.columns._KEPT", 100_000)
    spill = SpillFile(str(tmp_path))
    buffer = ColumnBuffer(CALL_COLUMNS, 1 << 30, spill)
    other = ColumnBuffer(SPAN_COLUMNS, 1 << 30, spill)
    with largest_file(4_000_000):
        for number in range(5):
            buffer.add(random_rows(CHUNK_ROWS, number))
            buffer.compress()
    assert spill.failure is not None and spill.failure.errno == errno.EFBIG
    buffer.seal()
    assert (buffer.added, buffer.kept, list(buffer.chunks(1))) == (5 * CHUNK_ROWS, 0, [])
    for number in range(5):
        other.add({name: np.zeros(CHUNK_ROWS, np.int64) + number for name in SPAN_COLUMNS})
    other.seal()
    assert not list(tmp_path.iterdir())


def test_a_file_that_lost_bytes_is_an_error_when_it_is_read(tmp_path: Path) -> None:
    spill = SpillFile(str(tmp_path))
    with pytest.raises(OSError, match="closed"):
        spill.read(0, 1)
    place = spill.write(b"some bytes")
    with pytest.raises(OSError, match="ends 1 bytes early"):
        spill.read(place[0] + 1, place[1])
    spill.close()
    spill.close()


def test_columns_of_many_rows_are_in_memory_once(tmp_path: Path) -> None:
    buffer, part = ColumnBuffer(CALL_COLUMNS, 1 << 40, SpillFile(str(tmp_path))), random_rows(16384)
    tracemalloc.start()
    try:
        for _ in range(80):
            buffer.add(part)
        buffer.seal()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert buffer.kept == 80 * 16384
    assert peak < 64 << 20
