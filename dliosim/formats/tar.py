"""Tar archives as shards of WebDataset (github.com/webdataset/webdataset, "The WebDataset Format").

A sample is two members, as in published data sets: `000000012.bin` with its contents, and `000000012.cls` with its
label, the sample's number modulo 1000, in decimal digits. Each member is a header of 512 bytes, its data, and zeros up
to a multiple of 512. A sample is read whole, with its headers and padding, as WebDataset does. An archive ends with two
blocks of zeros and more zeros up to a multiple of 10240 bytes (a record of tar).

Archives of other writers are read by their headers alone (POSIX.1-2017 pax, "ustar Interchange Format", and GNU's
additions). No member is ever extracted, so a name with `..` in it or from the root is harmless.
"""

from __future__ import annotations

import io
import os
import tarfile
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dliosim.formats.header_scanner import Scanner, data_error, file_to_read
from dliosim.formats.protocols import CLASSES, Bytes, Column, FileIndex, Framed, Ints, index_ranges
from dliosim.lazy_numpy import np

#: Bytes of a header; members begin and end at multiples of it
UNIT: Final = 512

#: The longest long name or pax header that is accepted, bytes
LARGEST_EXTENSION: Final = 1 << 20

#: From this size on a header holds it in base 256, as GNU tar does: eleven octal digits are not enough.
_OCTAL_END: Final = 8**11

_BELOW_128: Final = bytes(range(128))
_REGULAR: Final = b"\0", b"0", b"7"
_NO_DATA: Final = b"1", b"2", b"3", b"4", b"5", b"6"

#: Fields that are the same in every header that is written: mode 0644, owner 0, time 0, a regular file, ustar 00.
_FIELDS: Final = {100: b"0000644\0", 108: b"0000000\0", 116: b"0000000\0", 136: b"00000000000\0", 148: b" " * 8,
                  156: b"0", 257: b"ustar\x0000"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TarMember:
    """One member of an archive. Numbers are bytes from the start of the archive."""

    name: str  #: path in the archive
    regular: bool  #: True for a regular file
    begin: int  #: start of its first header, extended headers included
    end: int  #: start of the next member


def pad_sizes(sizes: Ints) -> Ints:
    """Return the bytes that data of these sizes take with their padding."""
    return -(-sizes // UNIT) * UNIT


def write_headers(names: list[bytes], sizes: Ints) -> Bytes:
    """Return (members, 512): ustar headers of regular files; names have at most 100 bytes."""
    rows = np.zeros((len(names), UNIT), np.uint8)
    rows[:, :100] = np.array(names, dtype="S100")[:, None].view(np.uint8)
    for at, field in _FIELDS.items():
        rows[:, at : at + len(field)] = np.frombuffer(field, np.uint8)
    rows[:, 124:135] = _format_octal(sizes, 11)
    large = sizes >= _OCTAL_END
    if large.any():
        rows[large, 124:128] = 0x80, 0, 0, 0
        rows[large, 128:136] = sizes[large].astype(">i8")[:, None].view(np.uint8)
    rows[:, 148:154] = _format_octal(rows.sum(axis=1, dtype=np.int64), 6)
    rows[:, 154] = 0
    return rows


def _format_octal(values: Ints, digits: int) -> Bytes:
    digit: Ints = values[:, None] >> 3 * np.arange(digits - 1, -1, -1) & 7
    return (digit + ord("0")).astype(np.uint8)


def parse_members(take: Callable[[int, int], memoryview], size: int, archive: str, whole: bool) -> Iterator[TarMember]:
    """Yield the members of an archive of `size` bytes, in order; `take` returns bytes by offset and count.

    With `whole` the archive must end in a block of zeros, as archives do; without it, it is a piece that ends with a
    member. Raises ExecutionError [R401], with `archive` and offset, if a header has a wrong checksum or size, if
    a member ends outside of `size`, or is a sparse file.
    """
    offset = begin = 0
    name, length, extended = "", -1, False
    while offset < size:
        head = bytes(take(offset, UNIT))
        if len(head) < UNIT:
            raise data_error(f"{archive}: a header at {offset} ends outside the {size} bytes of the archive")
        if not any(head):
            if extended:
                raise data_error(f"{archive}: the extended header at {begin} belongs to no member")
            return
        _check_header(head, archive, offset)
        kind = head[156:157]
        of_header = _parse_number(head[124:136], archive, offset)
        data = offset + UNIT
        taken = 0 if kind in _NO_DATA else of_header if length < 0 or kind in b"xgLK" else length
        if taken > size - data:
            text = f"{archive}: the member at {offset} has {taken} bytes and ends outside the archive of {size}"
            raise data_error(text)
        end = data + -(-taken // UNIT) * UNIT
        if kind in b"xgLK":
            if taken > LARGEST_EXTENSION:
                text = f"{archive}: the extended header at {offset} has {taken} bytes; {LARGEST_EXTENSION} are believed"
                raise data_error(text)
            text_of = bytes(take(data, taken)) if kind != b"g" else b""
            if kind == b"L":
                name = text_of.split(b"\0")[0].decode("utf-8", "surrogateescape")
            elif kind == b"x":
                name, length = _parse_pax(text_of, name, length, archive, offset)
            extended = extended or kind != b"g"
            offset = end
            begin = begin if extended else end
            continue
        if kind == b"S":
            raise data_error(f"{archive}: the member at {offset} is a sparse file, which cannot be read")
        called = name or _parse_name(head)
        regular = kind in _REGULAR and not (kind == b"\0" and called.endswith("/"))
        yield TarMember(called, regular, begin, end)
        name, length, extended = "", -1, False
        offset = begin = end
    if whole or extended:
        raise data_error(f"{archive}: ends at {size} without the zeros that end an archive")


def _check_header(head: bytes, archive: str, offset: int) -> None:
    stored = _parse_number(head[148:156], archive, offset)
    rest = head[:148] + head[156:]
    total = sum(rest) + 8 * ord(" ")
    signed = total - 256 * len(rest.translate(None, _BELOW_128))  # some old writers summed signed bytes
    if stored not in (total, signed):
        raise data_error(f"{archive}: no tar header at {offset}: its checksum is {total}, and it says {stored}")


def _parse_number(field: bytes, archive: str, offset: int) -> int:
    """Return a number of a header: octal digits, or base 256 after a byte of 0x80; never negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.split(b"\0")[0].strip(b" ")
    if text.translate(None, b"01234567"):
        raise data_error(f"{archive}: no tar header at {offset}: {field!r} is no number")
    return int(text or b"0", 8)


def _parse_name(head: bytes) -> str:
    name = head[:100].split(b"\0")[0]
    if head[257:263] == b"ustar\0" and (prefix := head[345:500].split(b"\0")[0]):
        name = prefix + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _parse_pax(records: bytes, name: str, length: int, archive: str, offset: int) -> tuple[str, int]:
    r"""Return name and size of the next member: those of these records ("%d key=value\\n"), else those given."""
    at = 0
    while at < len(records):
        digits, space, _ = records[at : at + 20].partition(b" ")
        count = int(digits) if space and digits.isdigit() else 0
        key, equals, value = records[at + len(digits) + 1 : at + count - 1].partition(b"=")
        if count > len(records) - at or not equals or records[at + count - 1 : at + count] != b"\n":
            raise data_error(f"{archive}: record at byte {at} of the pax header at {offset} is damaged")
        if key.startswith(b"GNU.sparse"):
            raise data_error(f"{archive}: the member at {offset} is a sparse file, which cannot be read")
        if key == b"path":
            name = value.decode("utf-8", "surrogateescape")
        if key == b"size":
            if not value.isdigit() or len(value) > 18:
                raise data_error(f"{archive}: the pax header at {offset} has a size {value[:20]!r}")
            length = int(value)
        at += count
    return name, length


_RECORD: Final = 20 * UNIT
_LABEL: Final = 2 * UNIT


class Tar(Framed):
    """The format `tar`; see `protocols.Framed`."""

    name = "tar"
    uses = ("shape",)

    def index(self, path: Path) -> FileIndex:
        """Return the samples by the members' headers: members in a row with one name up to the first dot are a sample.

        That is WebDataset's rule. As there, some members belong to no sample: those that are no regular files, those
        without a dot in the last part of their name, and those named `__so__` or in a folder of such a name. A sample
        is from the first header of its first member, a pax header or a long name included, to the end of the padding of
        its last member. No name is refused, as nothing is extracted. Raises ExecutionError [R401] if an archive does
        not end as archives do.
        """
        begins, ends = array("q"), array("q")
        with file_to_read(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            scanner = Scanner(stream.fileno())
            current, suffixes = "", set[str]()
            for member in parse_members(scanner.take, size, str(path), whole=True):
                key, suffix = _sample_key(member.name)
                if not member.regular or not key:
                    continue
                if key != current:
                    begins.append(member.begin)
                    ends.append(member.end)
                    current, suffixes = key, set()
                elif suffix in suffixes:
                    text = f"{path}: sample {len(begins) - 1} has two members `{suffix}`, the second at {member.begin}"
                    raise data_error(text)
                suffixes.add(suffix)
                ends[-1] = member.end
        if not size:
            raise data_error(f"{path} is empty, and no tar archive")
        offset = np.array(begins, np.int64)
        return index_ranges(size, offset, np.array(ends, np.int64) - offset, scanner.touched)

    def decode(self, column: Column | None, data: memoryview) -> Bytes | None:
        """Check all headers of a sample; return the contents of its first member, as tarfile finds it in memory.

        Raises ExecutionError [R401] if headers are damaged or no member has contents.
        """
        # The headers are checked first: tarfile stops without an error at a damaged one, and may hang on a negative
        # size.
        found = list(
            parse_members(lambda offset, count: data[offset : offset + count], len(data), "a sample of tar", False)
        )
        last = found[-1].end if found else 0
        if last != len(data) or last % UNIT:
            raise data_error(f"a sample of tar has members up to byte {last}, and {len(data)} bytes")
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
                first = next((member for member in archive if member.isreg() and _sample_key(member.name)[0]), None)
        except (tarfile.TarError, ValueError, EOFError, OverflowError) as error:
            raise data_error(f"a sample of tar cannot be read: {error}") from error
        if first is None:
            raise data_error("a sample of tar has no member with contents")
        return np.frombuffer(data, np.uint8)[first.offset_data : first.offset_data + first.size]

    @property
    def align(self) -> int:
        """512: members begin at blocks of tar."""
        return UNIT

    def stride(self, sizes: Ints) -> Ints:
        """Return the bytes of both members, with their padding."""
        return UNIT + pad_sizes(sizes) + _LABEL

    def content(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Return the range of the data of the first member."""
        return np.full_like(sizes, UNIT), sizes

    def trailer(self, counts: Ints, ends: Ints) -> Ints:
        """Return two blocks of zeros, and more up to a whole record."""
        return -(-(ends + 2 * UNIT) // _RECORD) * _RECORD - ends

    def frame(self, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Write headers before the contents, and padding and the label's member after them."""
        numbers = samples.tolist()
        heads = write_headers([b"%09d.bin" % number for number in numbers], sizes)
        labels = np.array([b"%d" % (number % CLASSES) for number in numbers], dtype="S3")
        tails = np.zeros((len(numbers), _LABEL), np.uint8)
        tails[:, :UNIT] = write_headers([b"%09d.cls" % number for number in numbers], np.char.str_len(labels))
        tails[:, UNIT : UNIT + 3] = labels[:, None].view(np.uint8)
        before, after, zeros = heads.reshape(-1).data, tails.reshape(-1).data, bytes(UNIT)
        begins, fills = (starts + UNIT + sizes).tolist(), (pad_sizes(sizes) - sizes).tolist()
        for row, (start, begin, fill) in enumerate(zip(starts.tolist(), begins, fills, strict=True)):
            out[start : start + UNIT] = before[row * UNIT : (row + 1) * UNIT]
            out[begin : begin + fill] = zeros[:fill]
            out[begin + fill : begin + fill + _LABEL] = after[row * _LABEL : (row + 1) * _LABEL]


def _sample_key(name: str) -> tuple[str, str]:
    """Return (name up to the first dot of its last part, the rest in small letters); empty if in no sample."""
    folder, slash, last = name.rpartition("/")
    stem, dot, suffix = last.partition(".")
    top = name.partition("/")[0]
    special = len(top) >= 4 and top.startswith("__") and top.endswith("__")
    return ("", "") if special or not stem or not dot else (folder + slash + stem, suffix.lower())
