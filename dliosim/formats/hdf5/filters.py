"""HDF5's filters, executed for real: deflate, shuffle and Fletcher's checksum here, all others by HDF5 itself.

HDF5 has no call that runs a filter on bytes. But it runs filters on the chunks of a file in memory: stored bytes are
written to such a file as they are and read back decoded, or the other way round. So every filter of the library works,
also those of plugins, and it is the same decoder that applications use.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from itertools import count
from threading import get_ident
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5d, h5f, h5p, h5s, h5t, h5z

from dliosim.errors import ExecutionError
from dliosim.formats.header_scanner import data_error
from dliosim.formats.protocols import Bytes, Filter

#: These are no filters of HDF5, but carry more that decoding needs. "elements" comes first where a filter depends on
#: them: kind and order of the type by numpy's letters, its bytes, the dimensions of a chunk, its extents, bytes of the
#: fill value. "tiled", the extents of a chunk, comes before it where decoding gives no runs of samples. "skipped" comes
#: last if some chunks, which did not compress, are stored without the filters of that mask; their length shows it.
ELEMENTS_OF: Final = "elements"
SKIPPED: Final = "skipped"
TILED: Final = "tiled"
_NO_FILTERS: Final = (ELEMENTS_OF, SKIPPED, TILED)

#: Filters of HDF5 and h5py with their numbers, which are registered with The HDF Group.
_CODES: Final = {
    "deflate": 1, "shuffle": 2, "fletcher32": 3, "szip": 4, "nbit": 5, "scaleoffset": 6, "lzf": 32000,
}  # fmt: skip
_NAMES: Final = {code: name for name, code in _CODES.items()}
_OURS: Final = ("deflate", "shuffle", "fletcher32")

_CHECKSUM: Final = 4
#: The largest number of pixels of a block (H5_SZIP_MAX_PIXELS_PER_BLOCK)
_SZIP_BLOCK: Final = 32
_BLOCK: Final = 1 << 16
_numbers = count()


def filter_name(code: int, text: bytes) -> str:
    """Return the name of a filter: HDF5's own, else the name in the file and the number (`blosc#32001`)."""
    if code in _NAMES:
        return _NAMES[code]
    plain = "".join(letter for letter in text.decode("ascii", "replace")[:40] if letter.isprintable() and letter != "#")
    return f"{plain}#{code}"


def needs_elements(filters: tuple[Filter, ...]) -> bool:
    """Return True if HDF5 must decode these filters and one depends on the elements' type (`lzf` alone does not)."""
    return any(step.name not in _OURS for step in filters) and [step.name for step in filters] != ["lzf"]


def filter_output_bytes(filters: tuple[Filter, ...], unit_bytes: int) -> int | None:
    """Return the bytes of a chunk of `unit_bytes` after these filters; None if they depend on its contents."""
    if any(step.name not in ("shuffle", "fletcher32") for step in filters):
        return None
    return unit_bytes + _CHECKSUM * sum(step.name == "fletcher32" for step in filters)


def active_filters(filters: tuple[Filter, ...], mask: int) -> tuple[Filter, ...]:
    """Return the filters that a chunk with this mask went through: bit i of the mask is set if it skipped filter i."""
    return tuple(step for place, step in enumerate(filters) if not mask >> place & 1)


def decode(filters: tuple[Filter, ...], unit_bytes: int, data: memoryview) -> Bytes:
    """Return the `unit_bytes` bytes of a chunk before its filters, which are listed in the order of writing.

    Raises ExecutionError: [R401] if the data are damaged, as far as the filters show it (lzf has no checksum),
    [R403] if this HDF5 does not have a filter.
    """
    elements = next((step.parameters for step in filters if step.name == ELEMENTS_OF), ())
    mask = next((step.parameters[0] for step in filters if step.name == SKIPPED), 0)
    steps = tuple(step for step in filters if step.name not in _NO_FILTERS)
    left = active_filters(steps, mask)
    if mask and len(data) == filter_output_bytes(left, unit_bytes):
        return _decode(left, elements, unit_bytes, data)
    return _decode(steps, elements, unit_bytes, data)


def encode(filters: tuple[Filter, ...], data: Bytes) -> tuple[int, bytes]:
    """Return the mask of skipped filters and the encoded chunk, made by HDF5's own filters.

    A chunk that a compressor makes no shorter skips all filters, so that its length distinguishes it from the others.
    """
    chunk = _memory_chunk(get_ident(), filters, (), len(data))
    chunk.write(h5s.ALL, h5s.ALL, data)
    chunk.flush()
    mask, stored = chunk.read_direct_chunk((0,))
    if len(stored) == len(data) and filter_output_bytes(filters, len(data)) is None:
        return (1 << len(filters)) - 1, data.tobytes()
    return int(mask), bytes(stored)


def fletcher32(data: Bytes) -> int:
    """Return the checksum of HDF5 (H5_checksum_fletcher32): Fletcher's, over 16-bit words, high byte first.

    Two sums with end-around carry: of the words, and of the sums so far. An odd last byte is the high byte of a word.
    """
    words = data[: len(data) // 2 * 2].view(">u2")
    if len(data) % 2:
        words = np.append(words, np.array([int(data[-1]) << 8], ">u2"))
    one = two = 0
    for begin in range(0, len(words), _BLOCK):
        block = words[begin : begin + _BLOCK].astype(np.uint64)
        two += len(block) * one + int(block @ np.arange(len(block), 0, -1, dtype=np.uint64))
        one += int(block.sum())
    return _fold_carry(two) << 16 | _fold_carry(one)


def _fold_carry(total: int) -> int:
    """Return a sum of 16-bit words with end-around carry: 1 to 65535, and 0 only for 0."""
    return (total - 1) % 0xFFFF + 1 if total else 0


def _decode(steps: tuple[Filter, ...], elements: tuple[int, ...], unit_bytes: int, data: memoryview) -> Bytes:
    if any(step.name not in _OURS for step in steps):
        return _decode_by_library(steps, elements, unit_bytes, data)
    found: Bytes = np.frombuffer(data, np.uint8)
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        if step.name == "fletcher32":
            found = _check_fletcher32(found)
        elif step.name == "deflate":
            found = _inflate(found, _max_encoded_bytes(steps[:place], unit_bytes))
        else:
            found = _unshuffle(found, step.parameters[0] if step.parameters else 1)
    if len(found) != unit_bytes:
        raise data_error(f"a chunk decodes to {len(found)} bytes instead of {unit_bytes}")
    return found


def _max_encoded_bytes(steps: tuple[Filter, ...], unit_bytes: int) -> int:
    """Return the largest size that these filters make of a chunk; HDF5 lets deflate add a thousandth and 12 bytes."""
    most = unit_bytes
    for step in steps:
        most += {"fletcher32": _CHECKSUM, "deflate": most // 1000 + 13}.get(step.name, 0)
    return most


def _check_fletcher32(data: Bytes) -> Bytes:
    if len(data) < _CHECKSUM:
        raise data_error(f"a chunk of {len(data)} bytes is too short for its checksum")
    stored, found = int.from_bytes(data[-_CHECKSUM:].tobytes(), "little"), fletcher32(data[:-_CHECKSUM])
    # HDF5 before 1.6.3 swapped the bytes of both sums on little-endian machines; its readers take either.
    swapped = (found & 0x00FF00FF) << 8 | (found & 0xFF00FF00) >> 8
    if stored not in (found, swapped):
        raise data_error(f"a chunk's checksum (fletcher32) is {stored:#010x}, of its bytes {found:#010x}")
    return data[:-_CHECKSUM]


def _inflate(data: Bytes, most: int) -> Bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data.data, most + 1)  # limits the memory to a chunk, also for a damaged stream
    except zlib.error as error:
        raise data_error(f"a chunk does not inflate: {error}") from error
    if len(found) > most or not stream.eof:
        how = "to more than" if len(found) > most else "and ends before its"
        raise data_error(f"a chunk inflates {how} {most} bytes")
    return np.frombuffer(found, np.uint8)


def _unshuffle(data: Bytes, element_bytes: int) -> Bytes:
    if element_bytes < 2 or len(data) < element_bytes:
        return data
    whole = len(data) // element_bytes * element_bytes
    out = np.empty_like(data)
    out[:whole].reshape(-1, element_bytes)[:] = data[:whole].reshape(element_bytes, -1).T
    out[whole:] = data[whole:]  # HDF5 does not shuffle the bytes after the last whole element
    return out


def _decode_by_library(
    steps: tuple[Filter, ...], elements: tuple[int, ...], unit_bytes: int, data: memoryview
) -> Bytes:
    chunk = _memory_chunk(get_ident(), steps, elements, unit_bytes)
    out = np.empty(unit_bytes, np.uint8)
    try:
        chunk.write_direct_chunk((0,) * chunk.rank, bytes(data), 0)
        chunk.read(h5s.ALL, h5s.ALL, out, mtype=chunk.get_type())
    except (OSError, RuntimeError, ValueError) as error:
        names = ", ".join(step.name for step in steps)
        raise data_error(f"HDF5 cannot decode a chunk ({names}): {error}") from error
    return out


@lru_cache(maxsize=8)
def _memory_chunk(thread: int, steps: tuple[Filter, ...], elements: tuple[int, ...], unit_bytes: int) -> Any:
    """Return a data set of one chunk in memory, with these filters; one for each thread, as it is written and read.

    It is kept: creating it takes 0.2 ms, more than decoding a chunk of 64 KiB.
    """
    missing = [step.name for step in steps if not h5z.filter_avail(filter_code(step.name))]
    if missing:
        text = f"this HDF5 ({h5py.version.hdf5_version}) has no filter {', '.join(missing)}"
        raise ExecutionError(f"{text}: a package that brings it, and HDF5_PLUGIN_PATH, make it known", "R403")
    for step in steps:
        if step.name == "szip" and not (len(step.parameters) > 1 and 2 <= step.parameters[1] <= _SZIP_BLOCK):
            raise data_error(f"a filter szip has parameters {step.parameters}, by which HDF5 would divide")
    access, create = h5p.create(h5p.FILE_ACCESS), h5p.create(h5p.DATASET_CREATE)
    access.set_fapl_core(1 << 16, False)
    kind: Any = h5t.STD_U8LE
    extents: tuple[int, ...] = (unit_bytes,)
    if elements:
        letter, order, element_bytes, rank, *numbers = elements
        extents = tuple(numbers[:rank])
        fill = bytes(numbers[rank:])
        numpy_type = np.dtype(f"{chr(order)}{chr(letter)}{element_bytes}")
        kind = h5t.py_create(numpy_type)
        if fill:
            create.set_fill_value(np.frombuffer(fill, numpy_type))
    create.set_chunk(extents)
    create.set_fill_time(h5d.FILL_TIME_NEVER)
    for step in steps:
        create.set_filter(filter_code(step.name), h5z.FLAG_OPTIONAL, step.parameters)
    caching = h5p.create(h5p.DATASET_ACCESS)
    caching.set_chunk_cache(1, 0, 1.0)  # no cache: every write encodes, every read decodes
    file = h5f.create(f"dliosim filters {next(_numbers)}".encode(), h5f.ACC_TRUNC, fapl=access)
    return h5d.create(file, b"chunk", kind, h5s.create_simple(extents), create, dapl=caching)


def filter_code(name: str) -> int:
    """Return the number of a filter by its name here."""
    return _CODES[name] if name in _CODES else int(name.rpartition("#")[2])
