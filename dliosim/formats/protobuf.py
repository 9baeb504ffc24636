"""The part of protobuf's wire format that tf.train.Example needs (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dliosim.errors import ExecutionError
from dliosim.formats.protocols import Bytes, Ints
from dliosim.lazy_numpy import np

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_STEPS: Final = tuple(1 << 7 * count for count in range(1, 9))
"""Values from which a varint takes one byte more, up to 63 bits."""


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

    None where `names` is empty and no feature has bytes. Raises ExecutionError [R401] for data that are no Example, and
    for a name that is missing or has no bytes.
    """
    found: dict[bytes, memoryview] = {}
    for features in _submessages(example, 1):
        for entry in _submessages(features, 1):
            key, value = b"", None
            for number, kind, field in _fields(entry):
                if (number, kind) == (1, _BYTES):
                    key = bytes(field)
                elif (number, kind) == (2, _BYTES):
                    value = field
            data = None if value is None else _first_list_value(value)
            if data is not None:
                found[key] = data
    if not names:
        return [next(iter(found.values()))] if found else None
    missing = next((name for name in names if name.encode() not in found), None)
    if missing is not None:
        have = ", ".join(f"`{key.decode(errors='replace')}`" for key in list(found)[:8]) or "none"
        raise ExecutionError(f"a tfrecord has no feature `{missing}` of bytes; of bytes it has {have}", "R401")
    return [found[name.encode()] for name in names]


def _first_list_value(feature: memoryview) -> memoryview | None:
    """Return the first value of a Feature's bytes_list."""
    for values in _submessages(feature, 1):
        for value in _submessages(values, 1):
            return value
    return None


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
            raise ExecutionError(f"a tfrecord's data are no Example: wire type {kind} of field {number}", "R401")
        if at > len(message):
            text = (
                f"a tfrecord's data are no Example: field {number} ends {at - len(message)} bytes outside its message"
            )
            raise ExecutionError(text, "R401")
        yield number, kind, message[begin:at]


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return (value, position of the next byte); reads ten bytes at most."""
    value = 0
    for count, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise ExecutionError("a tfrecord's data are no Example: a number does not end", "R401")
