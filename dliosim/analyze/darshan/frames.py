"""Frames by which the process that reads a log hands over what it finds: a line of JSON, and arrays of numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

#: Bytes of a frame's line.
_LONGEST_LINE: Final = 8 << 20
#: Bytes of a frame's arrays.
_MOST_BYTES: Final = 1 << 33
_TYPES: Final = ("<i8", "<u8", "<f8")


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece of a log."""

    kind: str  #: what it is
    fields: Mapping[str, Any]  #: values of JSON
    arrays: Mapping[str, NDArray[Any]]  #: numbers


def write_frame(out: BinaryIO, kind: str, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a frame."""
    shapes = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
    out.write(json.dumps({"kind": kind, "fields": fields, "arrays": shapes}).encode() + b"\n")
    for array in arrays.values():
        out.write(np.ascontiguousarray(array).tobytes())


def read_frames(source: BinaryIO) -> Iterator[Frame]:
    """Yield all frames; raises ValueError where one is cut or is none."""
    while line := source.readline(_LONGEST_LINE):
        if not line.endswith(b"\n"):
            raise ValueError("a frame is cut")
        header = json.loads(line)
        arrays = {name: _read_array(source, *shape) for name, shape in header["arrays"].items()}
        yield Frame(header["kind"], header["fields"], arrays)


def _read_array(source: BinaryIO, kind: str, shape: list[int]) -> NDArray[Any]:
    if kind not in _TYPES or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("an array of an unknown type")
    size = 8
    for length in shape:
        size *= length
    if size > _MOST_BYTES:
        raise ValueError("an array is too large")
    data = source.read(size)
    if len(data) < size:
        raise ValueError("a frame is cut")
    return np.frombuffer(data, kind).reshape(shape)
