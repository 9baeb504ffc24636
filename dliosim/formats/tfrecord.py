"""TFRecord files of tf.train.Example records, as image pipelines of TensorFlow and DALI read them.

A record (tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details"), integers little-endian:

    uint64  length of data
    uint32  masked CRC-32C of these eight bytes
    byte    data[length]
    uint32  masked CRC-32C of data

where masked(crc) = ((crc >> 15) | (crc << 17)) + 0xa282ead8, modulo 2^32. A file is records one after the other.

Data is an Example of two features, `image/class/label` and then `image/encoded`, in protobuf's wire format: a field is
a tag (number << 3 | type; type 2 is a length, as varint, and that many bytes) and its value. With <x> for a length:

    0a <features>                                       Example.features
      0a <1b> 0a <11> image/class/label 12 <06>         Features.feature, an entry of the map: key, value
        1a <04> 0a <02> LL LL                           Feature.int64_list, Int64List.value, packed
      0a <entry> 0a <0d> image/encoded 12 <feature>     Features.feature: key, value
        0a <list> 0a <size> CONTENTS                    Feature.bytes_list, BytesList.value

The label is the sample's number modulo 1000, always in two bytes (a varint may end in zeros, and readers must accept
it). So a record's length follows from the sample's size alone. The contents are the last bytes of the data.

CRCs come from the package `crc32c` (github.com/ICRAR/crc32c). It and `google-crc32c` are both maintained, have wheels
for 3.10 to 3.13, use SSE 4.2, release the GIL and take the same time: 0.07 us for 128 bytes, 4 us for 128 KiB. But only
crc32c takes writable buffers; the other would need a copy of every sample. Below 32 KiB, which take a microsecond, it
keeps the GIL. Its licence is the LGPL, 2.1 or later. Only its compiled module is loaded: the package around it imports
importlib.metadata and argparse, 2.4 MB on each rank.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Final

from dliosim.formats.header_scanner import BLOCK, Scanner, data_error, file_to_read
from dliosim.formats.protocols import CLASSES, LARGEST_INDEX, Bytes, Column, FileIndex, Framed, Ints, index_ranges
from dliosim.lazy_numpy import np

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

#: Values from which a varint takes one byte more, up to 63 bits
_STEPS: Final = tuple(1 << 7 * count for count in range(1, 9))


def varint_size(values: Ints) -> Ints:
    """Return the bytes of each value as a varint; values from 0."""
    return 1 + np.searchsorted(_STEPS, values, side="right").astype(np.int64)


def encode_varints(values: Ints) -> Bytes:
    """Return (values, bytes each): varints of at least one value; all values must take the same number of bytes."""
    count = int(varint_size(values[:1])[0])
    groups = values[:, None] >> (7 * np.arange(count)) & 0x7F
    groups[:, :-1] |= 0x80
    return groups.astype(np.uint8)


def feature_bytes(example: memoryview, names: tuple[str, ...]) -> list[memoryview] | None:
    """Return the bytes of the features `names` of an Example, or of its first feature; of a list the first value.

    None if `names` is empty and no feature has bytes. Raises ExecutionError [R401] for data that are no Example, and
    for a name that is missing or has no bytes.
    """
    found: dict[bytes, memoryview] = {}
    for features in _submessages(example, 1):
        for entry in _submessages(features, 1):
            parts = {number: field for number, kind, field in _fields(entry) if kind == _BYTES}
            lists = _submessages(parts.get(2, example[:0]), 1)  # bytes_list of the Feature
            data = next((value for values in lists for value in _submessages(values, 1)), None)
            if data is not None:
                found[bytes(parts.get(1, b""))] = data
    if not names:
        return [next(iter(found.values()))] if found else None
    missing = next((name for name in names if name.encode() not in found), None)
    if missing is not None:
        have = ", ".join(f"`{key.decode(errors='replace')}`" for key in list(found)[:8]) or "none"
        raise data_error(f"a tfrecord has no feature `{missing}` of bytes; of bytes it has {have}")
    return [found[name.encode()] for name in names]


def _submessages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the fields of number `wanted` that have a length."""
    for number, kind, value in _fields(message):
        if number == wanted and kind == _BYTES:
            yield value


def _fields(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (number, wire type, bytes of the value) of each field; reads nothing outside of `message`."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        number, kind = tag >> 3, tag & 7
        begin = at
        if kind == _VARINT:
            _, at = _read_varint(message, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        elif kind == _BYTES:
            length, begin = _read_varint(message, at)
            at = begin + length
        else:
            raise data_error(f"a tfrecord's data are no Example: wire type {kind} of field {number}")
        if at > len(message):
            text = (
                f"a tfrecord's data are no Example: field {number} ends {at - len(message)} bytes outside its message"
            )
            raise data_error(text)
        yield number, kind, message[begin:at]


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return (value, position of the next byte); reads ten bytes at most."""
    value = 0
    for count, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise data_error("a tfrecord's data are no Example: a number does not end")


#: Largest data of a record, bytes: the limit of a protobuf message (protobuf.dev/programming-guides/proto-limits)
LARGEST: Final = (1 << 31) - 1

_HEAD: Final = 12
_FOOT: Final = 4
_LABEL: Final = b"\x0a\x1b\x0a\x11image/class/label\x12\x06\x1a\x04\x0a\x02"
_KEY: Final = b"\x0a\x0dimage/encoded"
_LABEL_BYTES: Final = len(_LABEL) + 2
_MOST_AROUND: Final = 128  # bytes of an Example around contents: 29 of the label, 15 of the key, 5 tags and lengths
_GZIP: Final = b"\x1f\x8b"
_HEADER: Final = struct.Struct("<QI")
_LINES: Final = 16_384


def _load_crc32c() -> Callable[[memoryview | bytes], int]:
    """Return the function of the compiled module of `crc32c`; ImportError if there is none."""
    package = find_spec("crc32c")
    spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:
        raise ImportError("no module named crc32c._crc32c")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[memoryview | bytes], int] = module.crc32c
    return function


_crc32c = _load_crc32c()


class TfRecord(Framed):
    """The format `tfrecord`; see `protocols.Framed`."""

    name = "tfrecord"
    uses = ("shape", "names")
    sidecars = ("index",)  # of DALI's reader: a line of text a record, `offset length`

    def refuse(self) -> tuple[str, str] | None:
        """Refuse samples that no record can hold, and settings that records do not use."""
        size = self.dataset.constant_size
        if size is not None and size > LARGEST - _MOST_AROUND and _example_bytes_cached(size) > LARGEST:
            return "size", "a record of tfrecord is a protobuf message, which must be shorter than 2 GiB"
        return super().refuse()

    def index(self, path: Path) -> FileIndex:
        """Return the records by the sidecar, if there is one that fits this file; else by the records' headers.

        A sidecar fits if its records follow each other from byte 0 to the end of the file. Headers that are read are
        checked by their CRC; ExecutionError [R401] if one is wrong or a record ends outside the file.
        """
        with file_to_read(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            found, touched = None, 0
            with suppress(FileNotFoundError):
                found, touched = _read_sidecar(path.with_suffix(".index"), size)
            if found is None:
                scanner = Scanner(stream.fileno(), touched)
                found = _scan_records(scanner, path, size)
                touched = scanner.touched
        return index_ranges(size, *found, touched)

    def decode(self, column: Column | None, data: memoryview) -> Bytes | None:
        """Check both CRCs of a record and parse its Example; return the features of `names`, or the first with bytes.

        None if it has no feature with bytes and `names` is empty. Raises ExecutionError [R401] for damaged records.
        """
        if len(data) < _HEAD + _FOOT:
            raise data_error(f"a tfrecord of {len(data)} bytes: it ends at byte {len(data)} of its frame")
        length, check = _HEADER.unpack_from(data)
        if _mask_crc(_crc32c(data[:8])) != check:
            raise data_error("a tfrecord's length does not have its CRC, at byte 0 of the record")
        if length != len(data) - _HEAD - _FOOT:
            raise data_error(f"a tfrecord of {len(data)} bytes says, at byte 0, that its data are {length}")
        body = data[_HEAD : _HEAD + length]
        if _mask_crc(_crc32c(body)) != int.from_bytes(data[-_FOOT:], "little"):
            text = f"a tfrecord's data do not have their CRC, bytes {_HEAD} to {_HEAD + length - 1} of the record"
            raise data_error(text)
        parts = feature_bytes(body, self.dataset.names)
        if parts is None:
            return None
        flat = [np.frombuffer(part, np.uint8) for part in parts]
        return flat[0] if len(flat) == 1 else np.concatenate(flat)

    def stride(self, sizes: Ints) -> Ints:
        """Return the bytes of a record with its frame."""
        return _example_bytes(sizes) + (_HEAD + _FOOT)

    def content(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Return the range of the contents, the last bytes of a record's data."""
        return _HEAD + _example_bytes(sizes) - sizes, sizes

    def frame(self, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Write length and CRCs around the Examples, and the Examples around the contents.

        Raises ExecutionError [R401] for a sample that is too large for a record.
        """
        data = _example_bytes(sizes)
        if int(data.max(initial=0)) > LARGEST:
            which = int(np.argmax(data > LARGEST))
            text = f"sample {samples[which]} of {sizes[which]} bytes is too large for tfrecord: a record is below 2 GiB"
            raise data_error(text)
        flat = np.frombuffer(out, np.uint8)
        before = _HEAD + data - sizes
        if _is_uniform(sizes):
            prefix, label = _sample_prefix(int(sizes[0]))
            flat[starts[:, None] + np.arange(len(prefix))] = prefix
            flat[starts[:, None] + np.arange(label, label + 2)] = _labels(samples)
        else:
            for width in np.unique(before).tolist():  # a few: one for each combination of varint lengths
                rows = np.flatnonzero(before == width)
                flat[starts[rows, None] + np.arange(width)] = _prefixes(samples[rows], sizes[rows], width)
        ends = np.empty((len(starts), 2), np.uint64)
        for row, (start, length) in enumerate(zip(starts.tolist(), data.tolist(), strict=True)):
            body = start + _HEAD
            ends[row] = _crc32c(out[start : start + 8]), _crc32c(out[body : body + length])
        ends = ((ends >> np.uint64(15)) | (ends << np.uint64(17))) + np.uint64(0xA282EAD8)
        words = ends.astype("<u4").view(np.uint8).reshape(-1, 2, 4)  # modulo 2^32
        flat[starts[:, None] + np.arange(8, 12)] = words[:, 0]
        flat[(starts + _HEAD + data)[:, None] + np.arange(_FOOT)] = words[:, 1]

    def write_sidecar(self, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """Yield the index that tfrecord2idx of DALI, or of the package `tfrecord`, would write."""
        offset = 0
        for begin in range(0, len(sizes), _LINES):
            lengths = self.stride(sizes[begin : begin + _LINES])
            offsets = offset + np.cumsum(lengths) - lengths
            offset = int(offsets[-1] + lengths[-1])
            rows = zip(offsets.tolist(), lengths.tolist(), strict=True)
            yield "".join([f"{at} {length}\n" for at, length in rows]).encode()


def _mask_crc(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _lengths(sizes: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the four lengths before contents of these sizes, outermost first: features, entry, feature, list."""
    of_list = 1 + varint_size(sizes) + sizes
    feature = 1 + varint_size(of_list) + of_list
    entry = len(_KEY) + 1 + varint_size(feature) + feature
    features = _LABEL_BYTES + 1 + varint_size(entry) + entry
    return features, entry, feature, of_list


def _is_uniform(sizes: Ints) -> bool:
    """Return True if there is at least one size and all are equal."""
    return len(sizes) > 0 and bool((sizes == sizes[0]).all())


def _example_bytes(sizes: Ints) -> Ints:
    """Return the bytes of the Example around contents of these sizes."""
    return (
        np.full(len(sizes), _example_bytes_cached(int(sizes[0]))) if _is_uniform(sizes) else _example_bytes_each(sizes)
    )


@lru_cache(maxsize=64)
def _example_bytes_cached(size: int) -> int:
    return int(_example_bytes_each(np.array([size]))[0])


def _example_bytes_each(sizes: Ints) -> Ints:
    features = _lengths(sizes)[0]
    return 1 + varint_size(features) + features


@lru_cache(maxsize=64)
def _sample_prefix(size: int) -> tuple[Bytes, int]:
    """Return the bytes before contents of a size, and the position of the label in them; the label is sample 0's."""
    sizes = np.array([size])
    label = _HEAD + 1 + int(varint_size(_lengths(sizes)[0])[0]) + len(_LABEL)
    return _prefixes(np.zeros(1, np.int64), sizes, _HEAD + _example_bytes_cached(size) - size)[0], label


def _labels(samples: Ints) -> Bytes:
    """Return (samples, 2): the label of each, a varint."""
    labels = samples % CLASSES
    return np.stack([labels & 0x7F | 0x80, labels >> 7], axis=1).astype(np.uint8)


def _prefixes(samples: Ints, sizes: Ints, width: int) -> Bytes:
    """Return the bytes before the contents, (samples, width); all prefixes of these sizes must have `width` bytes."""
    rows = np.zeros((len(samples), width), np.uint8)
    features, entry, feature, of_list = _lengths(sizes)
    data = 1 + varint_size(features) + features
    rows[:, :8] = data.astype("<u8").view(np.uint8).reshape(-1, 8)
    # Each of the four lengths grows with the size. So prefixes of equal length in all have equal lengths in each part.
    parts = (
        b"\x0a", encode_varints(features), _LABEL, _labels(samples), b"\x0a", encode_varints(entry), _KEY + b"\x12",
        encode_varints(feature), b"\x0a", encode_varints(of_list), b"\x0a", encode_varints(sizes),
    )  # fmt: skip
    at = _HEAD
    for part in parts:
        block = np.frombuffer(part, np.uint8)[None, :] if isinstance(part, bytes) else part
        rows[:, at : at + block.shape[1]] = block
        at += block.shape[1]
    return rows


def _read_sidecar(path: Path, size: int) -> tuple[tuple[Ints, Ints] | None, int]:
    """Return offsets and lengths if the sidecar covers a file of `size` bytes, else None; and the bytes read.

    Raises FileNotFoundError if there is no sidecar.
    """
    pieces: list[Ints] = []
    touched, end, rest = 0, 0, b""
    with file_to_read(path) as stream:
        if os.fstat(stream.fileno()).st_size > LARGEST_INDEX:
            return None, 0
        while block := stream.read(BLOCK):
            touched += len(block)
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if len(rest) > 64:  # a line of two numbers is shorter
                return None, touched
            rows = _parse_lines(whole + newline)
            if rows is None:
                return None, touched
            offset, length = rows[:, 0], rows[:, 1]
            inside = (length >= _HEAD + _FOOT) & (length <= size) & (offset >= 0) & (offset <= size - length)
            after = np.concatenate([[end], (offset + length)[:-1]]) if len(rows) else offset
            if not (inside.all() and (offset == after).all()):
                return None, touched
            end = int(offset[-1] + length[-1]) if len(rows) else end
            pieces.append(rows)
    if rest or end != size:
        return None, touched
    every = np.concatenate(pieces) if pieces else np.zeros((0, 2), np.int64)
    return (np.ascontiguousarray(every[:, 0]), np.ascontiguousarray(every[:, 1])), touched


def _parse_lines(text: bytes) -> Ints | None:
    """Return the numbers of whole lines, (lines, 2), or None if there is anything else."""
    lines = text.count(b"\n")
    if text.translate(None, b"0123456789 \n") or text.count(b" ") != lines:
        return None
    words = text.split()
    if len(words) != 2 * lines or any(len(word) > 18 for word in words):
        return None
    return np.array(words, dtype="S18").astype(np.int64).reshape(-1, 2)


def _scan_records(scanner: Scanner, path: Path, size: int) -> tuple[Ints, Ints]:
    """Return offsets and lengths of the records, by their headers. Raises ExecutionError [R401]."""
    offsets, lengths = array("q"), array("q")
    offset = 0
    while offset < size:
        head = scanner.take(offset, _HEAD)
        if len(head) < _HEAD:
            raise data_error(f"{path}: record {len(offsets)}, at {offset}, ends in its header")
        length, check = _HEADER.unpack(head)
        if _mask_crc(_crc32c(head[:8])) != check:
            text = f"{path}: record {len(offsets)}, at {offset}, is no tfrecord: its length does not have its CRC"
            if bytes(head[:2]) == _GZIP:
                text += " (the file begins as gzip does: compressed records are not read)"
            raise data_error(text)
        if length > size - offset - _HEAD - _FOOT:
            text = f"{path}: record {len(offsets)}, at {offset}, has {length} bytes and ends outside the file of {size}"
            raise data_error(text)
        offsets.append(offset)
        lengths.append(length + _HEAD + _FOOT)
        offset += length + _HEAD + _FOOT
    return np.array(offsets, np.int64), np.array(lengths, np.int64)
