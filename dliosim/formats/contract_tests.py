"""Checks that every format must pass; tests of this package and of other packages call them."""

from __future__ import annotations

from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.formats import protocols
from dliosim.lazy_numpy import np
from dliosim.model import Dataset


def random_contents(dataset: Dataset, sample: int, size: int) -> protocols.Bytes:
    """Return random bytes for a sample, instead of those that a run makes."""
    return np.random.default_rng([dataset.seed, sample]).integers(0, 256, size, np.uint8)


def _make_contents(form: protocols.Format, sample: int, size: int) -> protocols.Bytes:
    data = random_contents(form.dataset, sample, size)
    return form.dress(data, 0) if isinstance(form, protocols.Dressed) else data


def _sample_ends(form: protocols.Framed, sizes: protocols.Ints) -> tuple[protocols.Ints, protocols.Ints]:
    """Return the start of each sample behind the header, and the start of a next one after it."""
    taken = -(-form.stride(sizes) // form.align) * form.align
    ends = np.cumsum(taken)
    return ends - taken, ends


def build_framed(form: protocols.Framed, sizes: protocols.Ints, first: int = 0) -> bytes:
    """Return the whole bytes of a file with samples `first` and those after it, of `sizes`, made as a run makes it."""
    count, header = len(sizes), form.header
    starts, ends = _sample_ends(form, sizes)
    body = bytearray(int(ends.max(initial=0)))
    at, length = form.content(sizes)
    for row in range(count):
        data = _make_contents(form, first + row, int(length[row]))
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


def write_framed(form: protocols.Framed, path: Path, sizes: protocols.Ints, first: int = 0) -> None:
    """Write a file of a framed format with its sidecars."""
    path.write_bytes(build_framed(form, sizes, first))
    for suffix in form.sidecars:
        path.with_suffix(f".{suffix}").write_bytes(b"".join(form.write_sidecar(suffix, first, sizes)))


def write_resolved(form: protocols.Resolved, path: Path, count: int, first: int = 0) -> None:
    """Write a file of a resolved format, in place or built, as a run does."""
    size = form.size
    rows = [random_contents(form.dataset, first + row, size) for row in range(count)]
    samples = np.array(rows, np.uint8).reshape(count, size)
    if isinstance(form, protocols.Built):
        most = max(1, form.batch)
        form.build(path, count, (samples[at : at + most] for at in range(0, count, most)), protocols.EncodeTime())
        return
    assert isinstance(form, protocols.Preallocated), "a resolved format is one of the two kinds"
    form.lay_out(path, count)
    index = form.index(path)
    with path.open("r+b") as stream:
        for row, data in enumerate(samples):
            done = 0
            for offset, length in sample_ranges(index, row):
                stream.seek(offset)
                stream.write(data[done : done + length].tobytes())
                done += length
            assert done == size, "the ranges of a sample add up to it"


def sample_ranges(index: protocols.FileIndex, sample: int) -> list[tuple[int, int]]:
    """Return (offset, length) of each range of a sample (from 0 in its file): whole units of encoded columns."""
    return [place for column in index.columns for place in _column_ranges(column, sample)]


def _column_ranges(column: protocols.Column, sample: int) -> list[tuple[int, int]]:
    first, row = _find_unit(column, sample)
    places, left = [], column.row_bytes
    for unit in range(first, first + column.pieces):
        length = int(column.length[unit])
        if column.row_bytes:
            length = min(length, left)
            left -= length
        places.append((int(column.offset[unit]) + row * column.row_bytes, length))
    return places


def _find_unit(column: protocols.Column, sample: int) -> tuple[int, int]:
    """Return the first unit that holds bytes of a sample, and the number of the sample in it."""
    if column.pieces > 1:
        return sample * column.pieces, 0
    if column.first is None:
        return divmod(sample, column.samples)
    unit = int(np.searchsorted(column.first, sample, side="right")) - 1
    return unit, sample - int(column.first[unit])


def check_framed(form: protocols.Framed, sizes: protocols.Ints, path: Path) -> None:
    """Check that a file made as a run makes it has its samples, by its own index, where they were planned."""
    write_framed(form, path, sizes)
    index = form.index(path)
    starts = form.header + _sample_ends(form, sizes)[0]
    at, length = form.content(sizes)
    reading = form.length(sizes)
    assert index.samples == len(sizes)
    assert index.size == path.stat().st_size
    whole = path.read_bytes()
    for row in range(len(sizes)):
        start, read = int(starts[row]), int(reading[row])
        assert sample_ranges(index, row) == [(start, read)], f"sample {row} is where it was planned"
        begin = start + int(at[row])
        expected = _make_contents(form, row, int(length[row])).tobytes()
        assert whole[begin : begin + int(length[row])] == expected, f"contents of sample {row}"
        decoded = form.decode(index.columns[0], memoryview(whole)[start : start + read])
        if decoded is not None:
            assert decoded.tobytes() == expected, f"sample {row} decodes to its contents"


def check_resolved(form: protocols.Resolved, count: int, path: Path) -> None:
    """Check that a file of the format holds, in the ranges of its index, the bytes that were written."""
    write_resolved(form, path, count)
    index = form.index(path)
    assert index.samples == count
    assert index.size == path.stat().st_size
    whole = memoryview(path.read_bytes())
    size = form.size
    for row in range(count):
        found = b""
        for column in index.columns:
            data = b""
            for offset, length in _column_ranges(column, row):
                stored = whole[offset : offset + length]
                part = np.frombuffer(stored, np.uint8) if column.row_bytes else form.decode(column, stored)
                if part is None:
                    return  # no bytes to compare; other tests check the format's own reader
                data += part.tobytes()
            each = size // len(index.columns)
            begin = _find_unit(column, row)[1] * each
            found += data if column.row_bytes else data[begin : begin + each]
        assert found == random_contents(form.dataset, row, size).tobytes(), f"sample {row} is what was written"


def check_damage(form: protocols.Format, path: Path) -> None:
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
