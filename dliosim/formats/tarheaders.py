"""Members of a tar archive, by their headers alone (POSIX.1-2017 pax, "ustar Interchange Format", and GNU's additions).

Nothing is ever extracted, so that names are only names: those with `..` in them, or from the root, are taken as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.formats.protocols import Bytes, Ints

UNIT: Final = 512
"""Bytes of a header; data begin and end at multiples of it."""

LARGEST_EXTENSION: Final = 1 << 20
"""Bytes of a long name, or of a pax header, that is believed."""

#: From this size on a header says it in base 256, as GNU tar does: eleven octal digits end here.
_OCTAL_END: Final = 8**11

_BELOW_128: Final = bytes(range(128))
_TYPE: Final = slice(156, 157)
_REGULAR: Final = b"\0", b"0", b"7"
_NO_DATA: Final = b"1", b"2", b"3", b"4", b"5", b"6"

#: What is the same in every header that is written: mode 0644, nobody's, from 1970, a regular file, ustar 00.
_FIELDS: Final = {100: b"0000644\0", 108: b"0000000\0", 116: b"0000000\0", 136: b"00000000000\0", 148: b" " * 8,
                  156: b"0", 257: b"ustar\x0000"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """One member: `begin` is where its first header is, extended ones included, `end` where the next may begin."""

    name: str
    regular: bool
    begin: int
    data: int
    size: int
    end: int


def padded(sizes: Ints) -> Ints:
    """Bytes that data of these sizes take."""
    return -(-sizes // UNIT) * UNIT


def write_headers(names: list[bytes], sizes: Ints) -> Bytes:
    """(members, 512): ustar headers of regular files; names have at most 100 bytes."""
    rows = np.zeros((len(names), UNIT), np.uint8)
    rows[:, :100] = np.array(names, dtype="S100")[:, None].view(np.uint8)
    for at, field in _FIELDS.items():
        rows[:, at : at + len(field)] = np.frombuffer(field, np.uint8)
    rows[:, 124:135] = _octal(sizes, 11)
    large = sizes >= _OCTAL_END
    if large.any():
        rows[large, 124:128] = 0x80, 0, 0, 0
        rows[large, 128:136] = sizes[large].astype(">i8")[:, None].view(np.uint8)
    rows[:, 148:154] = _octal(rows.sum(axis=1, dtype=np.int64), 6)
    rows[:, 154] = 0
    return rows


def _octal(values: Ints, digits: int) -> Bytes:
    digit: Ints = values[:, None] >> 3 * np.arange(digits - 1, -1, -1) & 7
    return (digit + ord("0")).astype(np.uint8)


def members(take: Callable[[int, int], memoryview], size: int, archive: str, whole: bool) -> Iterator[Member]:
    """The members of an archive of `size` bytes, in order; `take` gives bytes by offset and count.

    `whole` is whether it must end in a block of zeros, as archives do; else it is a piece that ends with a member.
    Raises ExecutionError [R401], naming `archive` and offset, where a header has a wrong checksum or size, where a
    member lies outside of `size`, or is a sparse file.
    """
    offset = begin = 0
    name, length, extended = "", -1, False
    while offset < size:
        head = bytes(take(offset, UNIT))
        if len(head) < UNIT:
            raise ExecutionError(
                f"{archive}: a header at {offset} ends outside the {size} bytes of the archive", "R401"
            )
        if not any(head):
            if extended:
                raise ExecutionError(f"{archive}: the extended header at {begin} belongs to no member", "R401")
            return
        _check(head, archive, offset)
        kind = head[_TYPE]
        of_header = _number(head[124:136], archive, offset)
        data = offset + UNIT
        taken = 0 if kind in _NO_DATA else of_header if length < 0 or kind in b"xgLK" else length
        if taken > size - data:
            text = f"{archive}: the member at {offset} has {taken} bytes and ends outside the archive of {size}"
            raise ExecutionError(text, "R401")
        end = data + -(-taken // UNIT) * UNIT
        if kind in b"xgLK":
            if taken > LARGEST_EXTENSION:
                text = f"{archive}: the extended header at {offset} has {taken} bytes; {LARGEST_EXTENSION} are believed"
                raise ExecutionError(text, "R401")
            text_of = bytes(take(data, taken)) if kind != b"g" else b""
            if kind == b"L":
                name = text_of.split(b"\0")[0].decode("utf-8", "surrogateescape")
            elif kind == b"x":
                name, length = _pax(text_of, name, length, archive, offset)
            extended = extended or kind != b"g"
            offset = end
            begin = begin if extended else end
            continue
        if kind == b"S":
            raise ExecutionError(f"{archive}: the member at {offset} is a sparse file, which cannot be read", "R401")
        called = name or _name(head)
        regular = kind in _REGULAR and not (kind == b"\0" and called.endswith("/"))
        yield Member(called, regular, begin, data, taken, end)
        name, length, extended = "", -1, False
        offset = begin = end
    if whole or extended:
        raise ExecutionError(f"{archive}: ends at {size} without the zeros that end an archive", "R401")


def _check(head: bytes, archive: str, offset: int) -> None:
    said = _number(head[148:156], archive, offset)
    rest = head[:148] + head[156:]
    total = sum(rest) + 8 * ord(" ")
    signed = total - 256 * len(rest.translate(None, _BELOW_128))  # as some old writers added up
    if said not in (total, signed):
        text = f"{archive}: no tar header at {offset}: its checksum is {total}, and it says {said}"
        raise ExecutionError(text, "R401")


def _number(field: bytes, archive: str, offset: int) -> int:
    """A number of a header: octal digits, or in base 256 after a byte of 0x80; never negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.split(b"\0")[0].strip(b" ")
    if text.translate(None, b"01234567"):
        raise ExecutionError(f"{archive}: no tar header at {offset}: {field!r} is no number", "R401")
    return int(text or b"0", 8)


def _name(head: bytes) -> str:
    name = head[:100].split(b"\0")[0]
    if head[257:263] == b"ustar\0" and (prefix := head[345:500].split(b"\0")[0]):
        name = prefix + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _pax(records: bytes, name: str, length: int, archive: str, offset: int) -> tuple[str, int]:
    """Name and size of the next member, where these records ("%d key=value\\n") say so, else as they are."""
    at = 0
    while at < len(records):
        digits, space, _ = records[at : at + 20].partition(b" ")
        count = int(digits) if space and digits.isdigit() else 0
        key, equals, value = records[at + len(digits) + 1 : at + count - 1].partition(b"=")
        if count > len(records) - at or not equals or records[at + count - 1 : at + count] != b"\n":
            raise ExecutionError(f"{archive}: record at byte {at} of the pax header at {offset} is damaged", "R401")
        if key.startswith(b"GNU.sparse"):
            raise ExecutionError(f"{archive}: the member at {offset} is a sparse file, which cannot be read", "R401")
        if key == b"path":
            name = value.decode("utf-8", "surrogateescape")
        if key == b"size":
            if not value.isdigit() or len(value) > 18:
                raise ExecutionError(f"{archive}: the pax header at {offset} has a size {value[:20]!r}", "R401")
            length = int(value)
        at += count
    return name, length
