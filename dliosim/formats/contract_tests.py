"""Checks that every format must pass; tests of this package and of other packages call them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.formats.protocols import (
    Built,
    Bytes,
    Dressed,
    EncodeTime,
    FileIndex,
    Format,
    Framed,
    Ints,
    Preallocated,
    Resolved,
)
from dliosim.lazy_numpy import np
from dliosim.model import Dataset


def random_contents(dataset: Dataset, sample: int, size: int) -> Bytes:
    """Return random bytes for a sample, instead of those that a run makes."""
    return np.random.default_rng([dataset.seed, sample]).integers(0, 256, size, np.uint8)


def build_framed(form: Framed, sizes: Ints, first: int = 0) -> bytes:
    """Return the whole bytes of a file with samples `first` and those after it, of `sizes`, made as a run makes it."""
    count, align = len(sizes), form.align
    stride = form.stride(sizes)
    taken = -(-stride // align) * align
    header = form.header
    starts = np.cumsum(taken) - taken
    body = bytearray(int(taken.sum()))
    at, length = form.content(sizes)
    for row in range(count):
        data = random_contents(form.dataset, first + row, int(length[row]))
        if isinstance(form, Dressed):
            data = form.dress(data, 0)
        begin = int(starts[row] + at[row])
        body[begin : begin + len(data)] = data.tobytes()
    form.frame(np.arange(first, first + count), sizes, starts, memoryview(body))
    end = header + len(body)
    checksum = form.start_checksum(count, end)
    if form.checksum is not None:
        checksum = form.checksum(memoryview(body), checksum)
    head, tail = form.write_header(count, end, checksum), form.write_trailer(count, end, checksum)
    assert len(head) == header, "write_header gives as many bytes as header says"
    promised = int(form.trailer(np.array([count]), np.array([end]))[0])
    assert len(tail) == promised, "write_trailer gives as many bytes as trailer says"
    return head + bytes(body) + tail


def write_framed(form: Framed, path: Path, sizes: Ints, first: int = 0) -> None:
    """Write a file of a framed format with its sidecars."""
    path.write_bytes(build_framed(form, sizes, first))
    for suffix in form.sidecars:
        path.with_suffix(f".{suffix}").write_bytes(b"".join(form.write_sidecar(suffix, first, sizes)))


def write_resolved(form: Resolved, path: Path, count: int, first: int = 0) -> None:
    """Write a file of a resolved format, in place or built, as a run does."""
    size = form.size
    if isinstance(form, Built):

        def batches() -> Iterator[Bytes]:
            most = max(1, form.batch)
            for begin in range(0, count, most):
                rows = range(begin, min(begin + most, count))
                yield np.stack([random_contents(form.dataset, first + row, size) for row in rows])

        form.build(path, count, batches(), EncodeTime())
        return
    assert isinstance(form, Preallocated), "a resolved format is one of the two kinds"
    form.lay_out(path, count)
    index = form.index(path)
    with path.open("r+b") as stream:
        for row in range(count):
            data, done = random_contents(form.dataset, first + row, size), 0
            for offset, length in sample_ranges(index, row):
                stream.seek(offset)
                stream.write(data[done : done + length].tobytes())
                done += length
            assert done == size, "the ranges of a sample add up to it"


def sample_ranges(index: FileIndex, sample: int) -> list[tuple[int, int]]:
    """Return (offset, length) of each range of a sample (from 0 in its file): whole units of encoded columns."""
    found = []
    for column in index.columns:
        if column.pieces > 1:
            units = range(sample * column.pieces, (sample + 1) * column.pieces)
            left = column.row_bytes or None
            for unit in units:
                length = int(column.length[unit])
                if left is not None:
                    length = min(length, left)
                    left -= length
                found.append((int(column.offset[unit]), length))
            continue
        if column.first is None:
            unit, row = divmod(sample, column.samples)
        else:
            unit = int(np.searchsorted(column.first, sample, side="right")) - 1
            row = sample - int(column.first[unit])
        if column.row_bytes:
            found.append((int(column.offset[unit]) + row * column.row_bytes, column.row_bytes))
        else:
            found.append((int(column.offset[unit]), int(column.length[unit])))
    return found


def check_framed(form: Framed, sizes: Ints, path: Path) -> None:
    """Check that a file made as a run makes it has its samples, by its own index, where they were planned."""
    write_framed(form, path, sizes)
    index = form.index(path)
    stride, align = form.stride(sizes), form.align
    taken = -(-stride // align) * align
    starts = form.header + np.cumsum(taken) - taken
    at, length = form.content(sizes)
    reading = form.length(sizes)
    assert index.samples == len(sizes)
    assert index.size == path.stat().st_size
    whole = path.read_bytes()
    for row in range(len(sizes)):
        assert sample_ranges(index, row) == [(int(starts[row]), int(reading[row]))], (
            f"sample {row} is where it was planned"
        )
        begin = int(starts[row] + at[row])
        expected = random_contents(form.dataset, row, int(length[row]))
        if isinstance(form, Dressed):
            expected = form.dress(expected, 0)
        assert whole[begin : begin + int(length[row])] == expected.tobytes(), f"contents of sample {row}"
        stored = memoryview(whole)[int(starts[row]) : int(starts[row] + reading[row])]
        decoded = form.decode(index.columns[0], stored)
        if decoded is not None:
            assert decoded.tobytes() == expected.tobytes(), f"sample {row} decodes to its contents"


def check_resolved(form: Resolved, count: int, path: Path) -> None:
    """Check that a file of the format holds, in the ranges of its index, the bytes that were written."""
    write_resolved(form, path, count)
    index = form.index(path)
    assert index.samples == count
    assert index.size == path.stat().st_size
    whole = path.read_bytes()
    size = form.size
    for row in range(count):
        found = b""
        for number, column in enumerate(index.columns):
            if column.row_bytes:
                one = FileIndex(index.samples, index.size, (column,))
                found += b"".join(whole[offset : offset + length] for offset, length in sample_ranges(one, row))
                continue
            units = range(row * column.pieces, (row + 1) * column.pieces)
            if column.pieces == 1:
                units = range(row // column.samples, row // column.samples + 1)
            decoded = b""
            for unit in units:
                offset, length = int(column.offset[unit]), int(column.length[unit])
                part = form.decode(column, memoryview(whole)[offset : offset + length])
                if part is None:
                    return  # no bytes to compare; other tests check the format's own reader
                decoded += part.tobytes()
            each = size // len(index.columns)
            begin = 0 if column.pieces > 1 else row % column.samples * each
            found += decoded[begin : begin + each]
            del number
        assert found == random_contents(form.dataset, row, size).tobytes(), f"sample {row} is what was written"


def check_damage(form: Format, path: Path) -> None:
    """Check that a cut file is indexed correctly or refused, and never crashes; `path` is a good file, which is cut."""
    whole = path.read_bytes()
    step = max(1, len(whole) // 64)
    for cut in [*range(0, len(whole), step), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        try:
            index = form.index(path)
        except (ExecutionError, OSError):
            continue
        for column in index.columns:
            inside = (column.offset >= 0) & (column.offset + column.length <= cut)
            assert inside[column.length > 0].all(), f"cut at {cut}: the index points outside the file"
    path.write_bytes(whole)
