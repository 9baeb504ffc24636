"""Zip files: writing the headers around one member, and reading the directory of any file.

After PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 (local headers), 4.3.12 (directory), 4.3.14 to 4.3.16 (its end) and
4.5.3 (ZIP64). Local headers always have sizes of 8 bytes, as numpy's have, so that all have one length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dliosim.errors import ExecutionError
from dliosim.formats.header_scanner import FileLook, data_error
from dliosim.formats.protocols import Ints
from dliosim.lazy_numpy import np

STORED: Final = 0
DEFLATED: Final = 8

#: Sizes and offsets from this value on do not fit into the 4 bytes of the older records
ZIP64: Final = 0xFFFFFFFF

#: The largest directory that is read, bytes: some hundred thousand members
LARGEST_DIRECTORY: Final = 32 << 20

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_SIZES: Final = struct.Struct("<2H2Q")

_LOCAL_MARK: Final = b"PK\x03\x04"
_ENTRY_MARK: Final = b"PK\x01\x02"
_END_MARK: Final = b"PK\x05\x06"
_END64_MARK: Final = b"PK\x06\x06"
_LOCATOR_MARK: Final = b"PK\x06\x07"

#: A comment of 65,535 bytes may follow the end record.
_LONGEST_END: Final = _END.size + 0xFFFF
#: Bytes from the end in which the end records are looked for first, and an ordinary directory is too.
_ORDINARY_END: Final = 512
_VERSION: Final = 45  # the first with ZIP64
_DATE: Final = 0x21  # 1 January 1980, the first possible date: the same data give the same bytes
_UNIX: Final = 3 << 8
_MODE: Final = 0o600 << 16
_ENCRYPTED: Final = 1
_CRC_AFTER: Final = 1 << 3
_UTF8: Final = 1 << 11


@dataclass(frozen=True, slots=True)
class ZipMember:
    """An entry of a directory."""

    name: str  #: name of the member
    method: int  #: compression, STORED or DEFLATED
    crc: int  #: CRC-32 of the member before compression
    stored: int  #: bytes in the file, after the local header
    size: int  #: bytes before compression
    offset: int = 0  #: offset of the local header in the file
    encrypted: bool = False  #: True for an encrypted member


@dataclass(frozen=True, slots=True)
class Directory:
    """The directory of a zip file."""

    members: tuple[ZipMember, ...]  #: entries in the order of the directory
    begin: int  #: offset of the directory in the file
    touched: int  #: bytes of the directory and its end records


def local_header(member: ZipMember) -> bytes:
    """Return the header before the bytes of a member."""
    name = member.name.encode("ascii")
    fields = (_VERSION, 0, member.method, 0, _DATE, member.crc, ZIP64, ZIP64, len(name), _SIZES.size)
    return _LOCAL.pack(_LOCAL_MARK, *fields) + name + _SIZES.pack(1, 16, member.size, member.stored)


def trailer(member: ZipMember, end: int) -> bytes:
    """Return directory and end records of a file with one member, whose bytes end at `end`."""
    name = member.name.encode("ascii")
    long = max(member.stored, member.size) >= ZIP64
    extra = _SIZES.pack(1, 16, member.size, member.stored) if long else b""
    stored, size = (ZIP64, ZIP64) if long else (member.stored, member.size)
    fields = (_UNIX | _VERSION, _VERSION, 0, member.method, 0, _DATE, member.crc, stored, size)
    entry = _ENTRY.pack(_ENTRY_MARK, *fields, len(name), len(extra), 0, 0, 0, _MODE, 0) + name + extra
    last = b""
    if end >= ZIP64:
        at = end + len(entry)
        last = _END64.pack(_END64_MARK, _END64.size - 12, _UNIX | _VERSION, _VERSION, 0, 0, 1, 1, len(entry), end)
        last += _LOCATOR.pack(_LOCATOR_MARK, 0, at, 1)
    return entry + last + _END.pack(_END_MARK, 0, 0, 1, 1, len(entry), min(end, ZIP64), 0)


def trailer_sizes(name: str, sizes: Ints, ends: Ints) -> Ints:
    """Return the bytes of `trailer` for stored members of `sizes` that end at `ends`."""
    plain = _ENTRY.size + len(name) + _END.size
    return plain + np.where(sizes >= ZIP64, _SIZES.size, 0) + np.where(ends >= ZIP64, _END64.size + _LOCATOR.size, 0)


def read_directory(look: FileLook, path: Path) -> Directory:
    """Read the directory of a zip file of any writer.

    Raises ExecutionError [R401] if there is none, if it is cut short, or points outside the file.
    """
    size = look.size
    for most in (_ORDINARY_END, _LONGEST_END + _LOCATOR.size):
        tail_begin = max(0, size - most)
        tail = look.read(size - tail_begin, tail_begin)
        at = _find_end(tail)
        if at >= _LOCATOR.size or (at >= 0 and not tail_begin):
            break
    if at < 0:
        raise _damage_error(path, "there is no end record")
    end = tail_begin + at
    _, disk, _, _, count, length, begin, _ = _END.unpack_from(tail, at)
    if ZIP64 in (length, begin) or count == 0xFFFF:
        found = _read_end64(look, tail[:at], end, path)
        if found is not None:
            end, count, length, begin = found
    if disk not in (0, 0xFFFF):
        raise _damage_error(path, f"it is part {disk} of several files")
    if begin + length != end:
        raise _damage_error(
            path, f"its directory, {length} bytes at {begin}, does not end where its end record is, at {end}"
        )
    if length > LARGEST_DIRECTORY:
        raise data_error(f"{path} has a directory of {length} bytes; more than {LARGEST_DIRECTORY} are not read")
    data = tail[begin - tail_begin :][:length] if begin >= tail_begin else look.read(length, begin)
    if len(data) < length:
        raise _damage_error(path, "it is cut short")
    members = tuple(_parse_entries(data, begin, path))
    if len(members) != count:
        raise _damage_error(path, f"its directory has {len(members)} members, and should have {count}")
    return Directory(members, begin, size - begin)


def data_offset(look: FileLook, member: ZipMember, directory: Directory, path: Path) -> int:
    """Return the offset of a member's bytes, by its local header; ExecutionError [R401] if that is damaged."""
    head = look.read(_LOCAL.size + len(member.name) * 4, member.offset)
    if len(head) < _LOCAL.size or not head.startswith(_LOCAL_MARK):
        raise _damage_error(path, f"no member begins at {member.offset}, where `{member.name[:60]}` should")
    flags, name, extra = _LOCAL.unpack_from(head)[2], *_LOCAL.unpack_from(head)[-2:]
    if _decode_name(head[_LOCAL.size : _LOCAL.size + name], flags) != member.name:
        raise _damage_error(path, f"the member at {member.offset} is another than `{member.name[:60]}`")
    begin: int = member.offset + _LOCAL.size + name + extra
    if begin + member.stored > directory.begin:
        raise _damage_error(path, f"member `{member.name[:60]}` is longer than the bytes before the directory")
    return begin


def parse_local_header(data: memoryview) -> tuple[int, int | None]:
    """Return the length of the local header at the front of `data`, and its CRC, or None if that follows the member.

    A writer that puts the CRC after the member leaves 0 here. So a CRC other than 0 is valid even if the flags are
    damaged. Raises ExecutionError [R401] if there is no header.
    """
    if len(data) < _LOCAL.size or bytes(data[:4]) != _LOCAL_MARK:
        raise data_error("a member of a zip file begins otherwise")
    _, _, flags, _, _, _, crc, _, _, name, extra = _LOCAL.unpack_from(data)
    return _LOCAL.size + name + extra, None if flags & _CRC_AFTER and not crc else crc


def _find_end(tail: bytes) -> int:
    """Return where the end record begins in the last bytes of a file; -1 without one."""
    at = len(tail)
    while (at := tail.rfind(_END_MARK, 0, at)) >= 0:
        if at + _END.size <= len(tail) and at + _END.size + _END.unpack_from(tail, at)[-1] == len(tail):
            return at
    return -1


def _read_end64(look: FileLook, before: bytes, end: int, path: Path) -> tuple[int, int, int, int] | None:
    """Return (offset, members, bytes of the directory, its offset) of the ZIP64 end record, or None without one."""
    if len(before) < _LOCATOR.size or not before[-_LOCATOR.size :].startswith(_LOCATOR_MARK):
        return None
    at: int = _LOCATOR.unpack(before[-_LOCATOR.size :])[2]
    # The check also keeps the offset in the range of pread.
    record = look.read(_END64.size, at) if at + _END64.size + _LOCATOR.size <= end else b""
    if len(record) < _END64.size or not record.startswith(_END64_MARK):
        raise _damage_error(path, f"there is no ZIP64 end record at {at}")
    count, length, begin = _END64.unpack(record)[-3:]
    return at, count, length, begin


def _parse_entries(data: bytes, begin: int, path: Path) -> Iterator[ZipMember]:
    at = 0
    while at < len(data):
        if at + _ENTRY.size > len(data) or not data.startswith(_ENTRY_MARK, at):
            raise _damage_error(path, f"its directory makes no sense at {begin + at}")
        _, _, _, flags, method, _, _, crc, stored, size, name, extra, comment, _, _, _, offset = _ENTRY.unpack_from(
            data, at
        )
        after = at + _ENTRY.size + name
        following = after + extra + comment
        if following > len(data):
            raise _damage_error(path, f"its directory is cut short at {begin + at}")
        size, stored, offset = _apply_zip64(data[after : after + extra], size, stored, offset)
        text = _decode_name(data[at + _ENTRY.size : after], flags)
        if offset + _LOCAL.size + stored > begin:
            raise _damage_error(path, f"member `{text[:60]}`, {stored} bytes at {offset}, is outside the file")
        yield ZipMember(text, method, crc, stored, size, offset, bool(flags & _ENCRYPTED))
        at = following


def _apply_zip64(extra: bytes, *values: int) -> tuple[int, int, int]:
    """Return (size, stored, offset); those with the value `ZIP64` are in the ZIP64 field, in this order."""
    found, at = list(values), 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        field = extra[at + 4 : at + 4 + length]
        if kind == 1:
            full = [number for number, value in enumerate(found) if value == ZIP64]
            for place, number in enumerate(full[: len(field) // 8]):
                found[number] = struct.unpack_from("<Q", field, place * 8)[0]
            break
        at += 4 + length
    return found[0], found[1], found[2]


def _decode_name(name: bytes, flags: int) -> str:
    return name.decode("utf-8", "replace") if flags & _UTF8 else name.decode("cp437")


def _damage_error(path: Path, what: str) -> ExecutionError:
    return data_error(f"{path} is no whole zip file: {what}")
