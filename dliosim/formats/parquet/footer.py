"""The footer of a Parquet file of any writer: its leaf columns, row groups and column chunks.

It is read here and not by pyarrow: pyarrow 26 ends the process at a column chunk of a damaged footer
(`RowGroupMetaData.column`: a C++ exception that is not caught). The footer is a struct in Thrift's compact protocol
(apache/thrift, doc/specs/thrift-compact-protocol.md) with the fields of apache/parquet-format, parquet.thrift. Fields
that do not say where data are stored are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from dliosim.errors import ExecutionError
from dliosim.formats.header_scanner import file_to_look_at
from dliosim.formats.protocols import ENCODED, LARGEST_INDEX, Column, FileIndex, Filter, Ints
from dliosim.lazy_numpy import np
from dliosim.model import Dataset

MAGIC: Final = b"PAR1"

MOST_DECODED: Final = 1 << 32
"""The largest decoded column chunk, bytes; files with larger ones are refused."""

_ENCRYPTED = b"PARE"
_TAIL = 8  # length of the footer, magic
_DEEPEST = 64  # levels of structs and of columns in columns

_CODECS = ("", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")

# Types of the compact protocol.
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)

_Fields: TypeAlias = dict[int, Any]
_Readers: TypeAlias = dict[int, tuple[int, Callable[["_Thrift"], Any]]]


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
                raise ExecutionError(f"{path} has no column `{name}`; it has {quote_names(self.leaves)}", "R401")
            found.update(below)
        return sorted(found) if names else list(range(len(self.leaves)))


def quote_names(names: tuple[str, ...]) -> str:
    """Return the first names, for a sentence."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(f"`{name}`" for name in names[:8]) + more


def read_footer(path: Path) -> Footer:
    """Read the footer, and the 8 bytes after it with its length.

    ExecutionError [R401] where the file is no Parquet file, is cut short, or its footer is damaged or encrypted.
    """
    with file_to_look_at(path) as look:
        size = look.size
        tail = look.read(_TAIL, max(0, size - _TAIL))
        if tail[4:] == _ENCRYPTED:
            raise ExecutionError(f"{path} has an encrypted footer, which cannot be read", "R401")
        if tail[4:] != MAGIC:
            raise ExecutionError(f"{path} is no Parquet file or is cut short: it does not end with PAR1", "R401")
        length, most = int.from_bytes(tail[:4], "little"), min(size - _TAIL - len(MAGIC), LARGEST_INDEX)
        if not 0 < length <= most:
            text = f"{path} says that its footer has {length} bytes, which is not from 1 to {most}"
            raise ExecutionError(text, "R401")
        data = look.read(length, size - _TAIL - length)
    thrift = _Thrift(data)
    try:
        return _build_footer(thrift.struct(_FILE), size, length + _TAIL)
    except _Damage as error:
        begin = size - _TAIL - length
        text = f"{path}: the footer, {length} bytes from {begin}, is damaged: {error} (by byte {begin + thrift.at})"
        raise ExecutionError(text, "R401") from error


class _Damage(ValueError):
    """A fault of a footer, as the end of a message."""


class _Thrift:
    """Bytes of a struct and the position of the next one; raises _Damage where they end too early."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data

    def byte(self) -> int:
        if self.at >= len(self._data):
            raise _Damage("it ends too early")
        self.at += 1
        return self._data[self.at - 1]

    def varint(self) -> int:
        number = shift = 0
        while shift < 70:  # ten bytes hold 64 bits
            part = self.byte()
            number |= (part & 127) << shift
            if part < 128:
                break
            shift += 7
        if part > 127 or number >> 64:
            raise _Damage("a number has over 64 bits")
        return number

    def integer(self) -> int:
        coded = self.varint()
        return coded >> 1 ^ -(coded & 1)

    def text(self) -> str:
        length = self._skip_binary()
        return self._data[self.at - length : self.at].decode(errors="replace")

    def struct(self, readers: _Readers) -> _Fields:
        """Return the fields that have a reader, by number."""
        found: _Fields = {}
        number = 0
        while header := self.byte():
            number = number + (header >> 4) if header >> 4 else self.integer()
            kind = header & 15
            expected, read = readers.get(number, (0, None))
            if read is None:
                self.skip(kind, 0)
            elif kind != expected:
                raise _Damage(f"field {number} has type {kind}, not {expected}")
            else:
                found[number] = read(self)
        return found

    def items(self) -> tuple[int, int]:
        """Return the type of a list's items and their number; each item takes at least a byte."""
        header = self.byte()
        count = header >> 4 if header >> 4 < 15 else self.varint()
        if count > len(self._data) - self.at:
            raise _Damage(f"a list of {count} items does not fit")
        return header & 15, count

    def skip(self, kind: int, depth: int) -> None:
        """Skip a value; a truth value has a byte only as an item of a list or map."""
        if depth > _DEEPEST:
            raise _Damage(f"over {_DEEPEST} structs in each other")
        if kind in (_I16, _I32, _I64):
            self.varint()
        elif kind in (_I8, _DOUBLE, _UUID):
            self._advance({_I8: 1, _DOUBLE: 8, _UUID: 16}[kind])
        elif kind == _BINARY:
            self._skip_binary()
        elif kind in (_LIST, _SET):
            item, count = self.items()
            for _ in range(count):
                self._skip_item(item, depth + 1)
        elif kind == _MAP:
            count = self.varint()
            kinds = self.byte() if count else 0
            if count > len(self._data) - self.at:
                raise _Damage(f"a map of {count} items does not fit")
            for _ in range(count):
                self._skip_item(kinds >> 4, depth + 1)
                self._skip_item(kinds & 15, depth + 1)
        elif kind == _STRUCT:
            while header := self.byte():
                if not header >> 4:
                    self.varint()
                self.skip(header & 15, depth + 1)
        elif kind not in (_TRUE, _FALSE):
            raise _Damage(f"no type has number {kind}")

    def _skip_item(self, kind: int, depth: int) -> None:
        if kind in (_TRUE, _FALSE):
            self._advance(1)
        else:
            self.skip(kind, depth)

    def _skip_binary(self) -> int:
        length = self.varint()
        self._advance(length)
        return length

    def _advance(self, length: int) -> None:
        if length > len(self._data) - self.at:
            raise _Damage(f"a value of {length} bytes does not fit")
        self.at += length


def _integer(kind: int) -> tuple[int, Callable[[_Thrift], int]]:
    return kind, _Thrift.integer


def _struct(readers: _Readers, make: Callable[[_Fields], Any]) -> tuple[int, Callable[[_Thrift], Any]]:
    return _STRUCT, lambda thrift: make(thrift.struct(readers))


def _list(readers: _Readers, make: Callable[[_Fields], Any]) -> tuple[int, Callable[[_Thrift], list[Any]]]:
    """Return a reader of a list of structs, each converted before the next is read, so that memory stays small."""

    def read(thrift: _Thrift) -> list[Any]:
        kind, count = thrift.items()
        if count and kind != _STRUCT:
            raise _Damage(f"a list of type {kind}, not of structs")
        return [make(thrift.struct(readers)) for _ in range(count)]

    return _LIST, read


def _require_field(fields: _Fields, number: int, what: str) -> Any:
    if number not in fields:
        raise _Damage(f"{what} is missing")
    return fields[number]


def _schema_element(fields: _Fields) -> tuple[str, int | None]:
    """Return the name of a node of the schema, and the number of its children, None for a leaf."""
    return _require_field(fields, 4, "a column's name"), None if 1 in fields else _require_field(
        fields, 5, "a column's type"
    )


def _parse_chunk_meta(fields: _Fields) -> tuple[int, int, int, int]:
    """Return a column chunk's offset, its bytes, its bytes before compression, and its codec."""
    begin, dictionary = _require_field(fields, 9, "the offset of a chunk"), fields.get(11, 0)
    if len(MAGIC) <= dictionary < begin:  # some writers store 0 where there is none
        begin = dictionary
    return (
        begin,
        _require_field(fields, 7, "the length of a chunk"),
        _require_field(fields, 6, "a size"),
        _require_field(fields, 4, "a codec"),
    )


def _parse_chunk(fields: _Fields) -> tuple[int, int, int, int]:
    if 1 in fields:
        raise _Damage(f"a column chunk is in another file, {fields[1]!r}")
    found: tuple[int, int, int, int] = _require_field(fields, 3, "the description of a chunk (or it is encrypted)")
    return found


def _parse_group(fields: _Fields) -> tuple[int, list[tuple[int, int, int, int]]]:
    return _require_field(fields, 3, "the number of rows of a row group"), _require_field(
        fields, 1, "the chunks of a row group"
    )


_TEXT = (_BINARY, _Thrift.text)
_ELEMENT: _Readers = {1: _integer(_I32), 4: _TEXT, 5: _integer(_I32)}
_META: _Readers = {4: _integer(_I32), 6: _integer(_I64), 7: _integer(_I64), 9: _integer(_I64), 11: _integer(_I64)}
_CHUNK: _Readers = {1: _TEXT, 3: _struct(_META, _parse_chunk_meta)}
_GROUP: _Readers = {1: _list(_CHUNK, _parse_chunk), 3: _integer(_I64)}
_FILE: _Readers = {2: _list(_ELEMENT, _schema_element), 3: _integer(_I64), 4: _list(_GROUP, _parse_group)}


def _build_footer(fields: _Fields, size: int, touched: int) -> Footer:
    leaves = _leaf_paths(_require_field(fields, 2, "the schema"))
    groups = _require_field(fields, 4, "the list of row groups")
    for number, (rows, chunks) in enumerate(groups):
        if rows < 0 or len(chunks) != len(leaves):
            raise _Damage(f"row group {number} has {rows} rows and {len(chunks)} chunks of {len(leaves)} columns")
    total, rows = _require_field(fields, 3, "the number of rows"), [rows for rows, _ in groups]
    if sum(rows) != total:
        raise _Damage(f"it says that there are {total} rows, but the row groups have {sum(rows)}")
    numbers = np.array([chunks for _, chunks in groups], np.int64).reshape(len(groups), len(leaves), 4)
    codecs = numbers[0, :, 3].tolist() if groups else [0] * len(leaves)
    names = [_CODECS[codec] if 0 <= codec < len(_CODECS) else f"codec {codec}" for codec in codecs]
    return Footer(
        size,
        touched,
        tuple(leaves),
        np.array(rows, np.int64),
        numbers[:, :, 0],
        numbers[:, :, 1],
        numbers[:, :, 2],
        tuple(names),
    )


def _leaf_paths(elements: list[tuple[str, int | None]]) -> list[str]:
    """Return the paths of the leaves of a schema, given as its nodes, each before its children."""
    leaves: list[str] = []
    above: list[tuple[str, int]] = [("", 1)]  # of each level the prefix of its paths, and the nodes that still follow
    for number, (name, children) in enumerate(elements):
        while above and not above[-1][1]:
            above.pop()
        if not above or len(above) > _DEEPEST:
            raise _Damage(f"the schema has a root only down to column {number}, or over {_DEEPEST} levels")
        prefix, left = above.pop()
        above.append((prefix, left - 1))
        place = prefix + name
        if children is None:
            leaves.append(place)
        elif children < 0:
            raise _Damage(f"column {place!r} has {children} columns in it")
        else:
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
            raise ExecutionError(text + problem.format(decoded[unit]), "R401")
    even = len(rows) < 2 or ((rows[:-1] == rows[0]).all() and rows[-1] <= rows[0])
    codec = footer.codec[leaf]
    return Column(
        int(rows.max(initial=1)),
        1,
        ENCODED,
        int(decoded.max(initial=0)),
        begin,
        length,
        (Filter(codec),) if codec else (),
        None if even else np.cumsum(rows) - rows,
    )
