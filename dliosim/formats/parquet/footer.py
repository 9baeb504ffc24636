"""The footer of a Parquet file of any writer: its leaf columns, row groups and column chunks.

It is read here and not by pyarrow: pyarrow 26 ends the process at a column chunk of a damaged footer
(`RowGroupMetaData.column`: a C++ exception that is not caught; docs/dev/decisions.md, "Tried and taken back").

The footer is a struct in Thrift's compact protocol (apache/thrift, doc/specs/thrift-compact-protocol.md) with the
fields of apache/parquet-format, parquet.thrift. Fields that do not say where data are stored are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from dliosim.formats.header_scanner import data_error, file_to_look_at
from dliosim.formats.protocols import ENCODED, LARGEST_INDEX, Column, FileIndex, Filter, Ints
from dliosim.formats.unsupported import quote_names
from dliosim.lazy_numpy import np
from dliosim.model import Dataset

MAGIC: Final = b"PAR1"

#: The largest decoded column chunk, bytes; files with larger ones are refused
MOST_DECODED: Final = 1 << 32

_ENCRYPTED = b"PARE"
_TAIL = 8  # length of the footer, magic
_DEEPEST = 64  # levels of structs and of columns in columns

_CODECS = ("", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")

# Types of the compact protocol.
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_INTEGERS: Final = (_I16, _I32, _I64)
_FIXED: Final = {_I8: 1, _DOUBLE: 8, _UUID: 16}
_ITEMS: Final = {_TRUE: _I8, _FALSE: _I8}  # a truth value has a byte only as an item of a list or map

_Fields: TypeAlias = dict[int, Any]

#: Fields that are kept, by number: a dict for those of a struct, or of each struct of a list.
_META: Final[_Fields] = {4: {}, 6: {}, 7: {}, 9: {}, 11: {}}
_KEPT: Final[_Fields] = {2: {1: {}, 4: {}, 5: {}}, 3: {}, 4: {1: {1: {}, 3: _META}, 3: {}}}


@dataclass(frozen=True, slots=True)
class Footer:
    """The contents of a footer. Arrays of column chunks are (row groups, leaves)."""

    size: int  #: bytes of the file
    touched: int  #: bytes read at the end of the file
    leaves: tuple[str, ...]  #: paths of the leaf columns (`image.bytes`)
    rows: Ints  #: rows of each row group
    begin: Ints  #: offset of each column chunk in the file, as stored, not checked
    length: Ints  #: bytes of each column chunk, as stored, not checked
    decoded: Ints  #: bytes of each column chunk before compression, as stored, not checked
    codec: tuple[str, ...]  #: codec of each leaf's first chunk; "" without one or without compression

    def select_leaves(self, path: Path, names: tuple[str, ...]) -> list[int]:
        """Return the numbers of the leaves at or below `names`, in the order of the file; all without `names`.

        ExecutionError [R401] for a name that the file does not have.
        """
        found: set[int] = set()
        for name in names:
            below = [leaf for leaf, place in enumerate(self.leaves) if place == name or place.startswith(name + ".")]
            if not below:
                raise data_error(f"{path} has no column `{name}`; it has {quote_names(self.leaves)}")
            found.update(below)
        return sorted(found) if names else list(range(len(self.leaves)))


def read_footer(path: Path) -> Footer:
    """Read the footer, and the 8 bytes after it with its length.

    ExecutionError [R401] if the file is no Parquet file, is cut short, or its footer is damaged or encrypted.
    """
    with file_to_look_at(path) as look:
        size = look.size
        tail = look.read(_TAIL, max(0, size - _TAIL))
        if tail[4:] == _ENCRYPTED:
            raise data_error(f"{path} has an encrypted footer, which cannot be read")
        if tail[4:] != MAGIC:
            raise data_error(f"{path} is no Parquet file or is cut short: it does not end with PAR1")
        length, most = int.from_bytes(tail[:4], "little"), min(size - _TAIL - len(MAGIC), LARGEST_INDEX)
        if not 0 < length <= most:
            raise data_error(f"{path} says that its footer has {length} bytes, which is not from 1 to {most}")
        data = look.read(length, size - _TAIL - length)
    thrift = _Thrift(data)
    try:
        return _build_footer(thrift.read_struct(_KEPT), size, length + _TAIL)
    except _Damage as error:
        begin = size - _TAIL - length
        text = f"{path}: the footer, {length} bytes from {begin}, is damaged: {error} (by byte {begin + thrift.at})"
        raise data_error(text) from error


#: The struct without a field that is kept.
_EMPTY: Final[dict[int, Any]] = {}


class _Damage(ValueError):
    """A fault of a footer, as the end of a message."""


class _Thrift:
    """Bytes of a struct and the position of the next one; raises _Damage if they end too early."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data

    def read_struct(self, kept: _Fields, depth: int = 0) -> _Fields:
        """Return the fields in `kept`, by number."""
        found: _Fields = {}
        number = 0
        while header := self._read_byte():
            number = number + (header >> 4) if header >> 4 else self._read_value(_I16, {}, depth)
            value = self._read_value(header & 15, kept.get(number, {}), depth + 1)
            if number in kept:
                found[number] = value
        return found

    def _read_value(self, kind: int, kept: _Fields, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _Damage(f"over {_DEEPEST} structs in each other")
        if kind in _INTEGERS:
            coded = self._read_varint()
            return coded >> 1 ^ -(coded & 1)
        if kind == _BINARY:
            return self._take(self._read_varint())
        if kind == _STRUCT:
            return self.read_struct(kept, depth)
        if kind in (_LIST, _SET):
            header = self._read_byte()
            count = header >> 4 if header >> 4 < 15 else self._read_varint()
            return self._read_items([header & 15], count, kept, depth + 1)
        if kind == _MAP:
            count = self._read_varint()
            kinds = self._read_byte() if count else 0
            return self._read_items([kinds >> 4, kinds & 15], count, kept, depth + 1)
        if kind not in (*_FIXED, *_ITEMS):
            raise _Damage(f"no type has number {kind}")
        return self._take(_FIXED.get(kind, 0))

    def _read_items(self, kinds: list[int], count: int, kept: _Fields, depth: int) -> list[Any]:
        if count > len(self._data) - self.at:  # each takes at least a byte
            raise _Damage(f"a list or map of {count} items does not fit")
        kinds = [_ITEMS.get(kind, kind) for kind in kinds]
        items: list[Any] = []
        for _ in range(count):
            for kind in kinds:
                value = self._read_value(kind, kept, depth)
                if kept:  # what is skipped takes no memory, and empty structs next to none
                    items.append(_EMPTY if value == {} else value)
        return items

    def _read_varint(self) -> int:
        number = self._data[self.at] if self.at < len(self._data) else 128
        if number < 128:  # most of them
            self.at += 1
            return number
        number = 0
        for count, part in enumerate(self._data[self.at : self.at + 10]):  # ten bytes hold 64 bits
            number |= (part & 127) << 7 * count
            if part < 128 and not number >> 64:
                self.at += count + 1
                return number
        raise _Damage("a number ends too early, or has over 64 bits")

    def _read_byte(self) -> int:
        if self.at >= len(self._data):
            raise _Damage("it ends too early")
        self.at += 1
        return self._data[self.at - 1]

    def _take(self, length: int) -> bytes:
        if length > len(self._data) - self.at:
            raise _Damage(f"a value of {length} bytes does not fit")
        self.at += length
        return self._data[self.at - length : self.at]


def _require_field(fields: Any, number: int, kind: type, what: str) -> Any:
    """Return a field; raise _Damage if it is missing, or of another type."""
    value = fields.get(number) if isinstance(fields, dict) else None
    if not isinstance(value, kind):
        raise _Damage(f"{what} is missing")
    return value


def _parse_chunk(fields: Any) -> tuple[int, int, int, int]:
    """Return a column chunk's offset, its bytes, its bytes before compression, and its codec."""
    if isinstance(fields, dict) and 1 in fields:
        raise _Damage(f"a column chunk is in another file, {fields[1]!r:.80}")
    meta = _require_field(fields, 3, dict, "the description of a chunk (or it is encrypted)")
    numbers = {9: "the offset of a chunk", 7: "the length of a chunk", 6: "a size", 4: "a codec"}
    begin, length, decoded, codec = (_require_field(meta, number, int, what) for number, what in numbers.items())
    dictionary = meta.get(11)
    if isinstance(dictionary, int) and len(MAGIC) <= dictionary < begin:  # some writers store 0 if there is none
        begin = dictionary
    return begin, length, decoded, codec


def _build_footer(fields: _Fields, size: int, touched: int) -> Footer:
    leaves = _leaf_paths(_require_field(fields, 2, list, "the schema"))
    total = _require_field(fields, 3, int, "the number of rows")
    rows: list[int] = []
    numbers: list[list[tuple[int, int, int, int]]] = []
    for group in _require_field(fields, 4, list, "the list of row groups"):
        rows.append(_require_field(group, 3, int, "the number of rows of a row group"))
        chunks = _require_field(group, 1, list, "the list of a row group's chunks")
        numbers.append([_parse_chunk(chunk) for chunk in chunks])
        if rows[-1] < 0 or len(numbers[-1]) != len(leaves):
            text = f"row group {len(rows) - 1} has {rows[-1]} rows"
            raise _Damage(f"{text} and {len(numbers[-1])} chunks of {len(leaves)} columns")
    if sum(rows) != total:
        raise _Damage(f"it says that there are {total} rows, but the row groups have {sum(rows)}")
    table = np.array(numbers, np.int64).reshape(len(rows), len(leaves), 4)
    codecs = table[0, :, 3].tolist() if rows else [0] * len(leaves)
    names = tuple(_CODECS[codec] if 0 <= codec < len(_CODECS) else f"codec {codec}" for codec in codecs)
    begin, length, decoded = (table[:, :, column] for column in range(3))
    return Footer(size, touched, tuple(leaves), np.array(rows, np.int64), begin, length, decoded, names)


def _leaf_paths(elements: list[Any]) -> list[str]:
    """Return the paths of the leaves of a schema, given as its nodes, each before its children."""
    leaves: list[str] = []
    above: list[tuple[str, int]] = [("", 1)]  # of each level the prefix of its paths, and the nodes that still follow
    for number, element in enumerate(elements):
        name = _require_field(element, 4, bytes, "a column's name").decode(errors="replace")
        while above and not above[-1][1]:
            above.pop()
        if not above or len(above) > _DEEPEST:
            raise _Damage(f"the schema has a root only down to column {number}, or over {_DEEPEST} levels")
        prefix, left = above.pop()
        above.append((prefix, left - 1))
        place = prefix + name
        if 1 in element:  # a leaf has a type
            leaves.append(place)
            continue
        children = _require_field(element, 5, int, "a column's type")
        if children < 0:
            raise _Damage(f"column {place!r} has {children} columns in it")
        above.append(("" if number == 0 else place + ".", children))
    if any(left for _, left in above):
        raise _Damage("columns of the schema are missing")
    if not leaves:
        raise _Damage("there are no columns")
    return leaves


def footer_index(path: Path, footer: Footer, dataset: Dataset) -> FileIndex:
    """Return the places of the samples by a footer, without pyarrow."""
    columns = tuple(_column(path, footer, leaf) for leaf in footer.select_leaves(path, dataset.names))
    return FileIndex(int(footer.rows.sum()), footer.size, columns, footer.touched)


def _column(path: Path, footer: Footer, leaf: int) -> Column:
    """Return the chunks of a leaf, without those of empty row groups, which some writers leave.

    ExecutionError [R401] for a chunk that is not between the magic and the footer.
    """
    full = np.flatnonzero(footer.rows)
    rows, begin, length = footer.rows[full], footer.begin[full, leaf], footer.length[full, leaf]
    decoded, end = footer.decoded[full, leaf], footer.size - footer.touched
    inside = (begin >= len(MAGIC)) & (begin <= end) & (length > 0)
    inside[inside] = length[inside] <= end - begin[inside]  # a sum could be over 64 bits
    for good, problem in (
        (inside, f"outside the data, bytes {len(MAGIC)} to {end}"),
        ((decoded >= 0) & (decoded <= MOST_DECODED), f"and {{}} when decoded, over {MOST_DECODED}"),
    ):
        if not good.all():
            unit = int(np.argmin(good))
            place = f"column `{footer.leaves[leaf]}` of row group {full[unit]}"
            text = f"{path}: {place} is said to have {length[unit]} bytes from {begin[unit]}, "
            raise data_error(text + problem.format(decoded[unit]))
    even = len(rows) < 2 or ((rows[:-1] == rows[0]).all() and rows[-1] <= rows[0])
    codec = footer.codec[leaf]
    filters, first = (Filter(codec),) if codec else (), None if even else np.cumsum(rows) - rows
    return Column(int(rows.max(initial=1)), 1, ENCODED, int(decoded.max(initial=0)), begin, length, filters, first)
