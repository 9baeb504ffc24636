"""Archives of numpy, `.npz`: zip files of arrays, stored as they are or deflated. Files of dliosim hold one array, `x`.

In a stored file every row has its place (`Framed`); a deflated file is one encoded unit (`Resolved`). Files of other
writers may be either, so both have the same index and decoder.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from dliosim.formats import protocols
from dliosim.formats.header_scanner import FileLook, data_error, file_to_look_at
from dliosim.formats.numpy_files import npy_header, zip_headers
from dliosim.formats.unsupported import cure_names, refuse_sizes
from dliosim.lazy_numpy import np
from dliosim.model import Dataset, Shape

_FILE: Final = f"{npy_header.MEMBER}.npy"
_BATCH: Final = 4 << 20
#: The most that deflate can shrink data: it takes at least a bit for 258 bytes, https://zlib.net/zlib_tech.html.
_LARGEST_RATIO: Final = 1032
_RAW_DEFLATE: Final = -15
_FILTERS: Final = (protocols.Filter("deflate"),)
#: Bytes before the array of a file that is written; its fields have a fixed length.
_MEMBER_HEADER: Final = len(zip_headers.local_header(zip_headers.ZipMember(_FILE, zip_headers.STORED, 0, 0, 0)))


class Npz(protocols.LibraryReadable):
    """The format `npz`, with the common part of stored and deflated archives; see `protocols.Format`."""

    name = "npz"
    #: Python's zipfile needs the codec cp437 for the names of members.
    libraries = ("encodings.cp437", "zipfile")

    def refuse(self) -> tuple[str, str] | None:
        """Refuse several data sets a record, codecs other than deflate, and sizes that vary within a file."""
        taken = ("compress", "names", "parts") if self.dataset.source else ("compress",)
        refused = npy_header.refuse_arrays(self.dataset, self.name, taken)
        if refused is not None or self.dataset.compress is None:
            return refused
        if self.dataset.compress.codec != "gzip":
            return "compress", "zip files hold what deflate makes: `compress gzip`"
        return refuse_sizes(self.dataset, "what is deflated as one has one size")

    def index(self, path: Path) -> protocols.FileIndex:
        """Return a column for each array of `names`, else for `x` or the only array; reads directory and headers alone.

        The first array gives the number of samples. The others must have as many, or be whole samples as it is.
        ExecutionError [R401] if the file is damaged.
        """
        with file_to_look_at(path) as look:
            directory = zip_headers.read_directory(look, path)
            found = list(self._list_arrays(look, directory, path))
        touched = directory.touched + sum(offset - member.offset + array.header for member, array, _, offset in found)
        columns = tuple(_column(*each) for each in found)
        rows = [one for _, _, one, _ in found]
        return protocols.FileIndex(
            rows[0].samples, look.size, columns, min(look.size, touched), sum(one.size for one in rows)
        )

    def shape(self, path: Path) -> Shape | None:
        """Return the shape of each array, without the axis that counts samples."""
        with file_to_look_at(path) as look:
            found = self._list_arrays(look, zip_headers.read_directory(look, path), path)
            shapes = {npy_header.shape_of_rows(array, rows) for _, array, rows, _ in found}
        return shapes.pop() if len(shapes) == 1 else None

    def _list_arrays(
        self, look: FileLook, directory: zip_headers.Directory, path: Path
    ) -> Iterator[tuple[zip_headers.ZipMember, npy_header.Array, npy_header.SampleRows, int]]:
        """Yield each array that is read: its member, its header, its samples, and the offset of the member's data."""
        first: npy_header.SampleRows | None = None
        for member in _select_members(directory, self.dataset.names, path):
            where = f"`{member.name[:60]}` in {path}"
            offset = zip_headers.data_offset(look, member, directory, path)
            array = npy_header.parse_array_header(partial(_read_beginning, look, member, offset, where), where)
            if array.header + array.size != member.size:
                text = f"{where} has {member.size} bytes, and by its header, {array}, {array.header + array.size}"
                raise data_error(text)
            rows = npy_header.sample_rows(array, self.dataset, where, first)
            first = first or rows
            yield member, array, rows, offset

    def decode(self, column: protocols.Column | None, data: memoryview) -> protocols.Bytes | None:
        """Inflate a whole member and check its CRC; return rows of a stored one as they are. ExecutionError [R401]."""
        if column is None or not column.filters:
            return np.frombuffer(data, np.uint8)
        begin, crc = zip_headers.parse_local_header(data)
        most = npy_header.LARGEST_HEADER + column.unit_bytes
        inflater = zlib.decompressobj(_RAW_DEFLATE)
        try:
            plain = inflater.decompress(data[begin:], most + 1)
        except zlib.error as error:
            raise data_error(f"what was deflated is damaged: {error}") from error
        if not inflater.eof or inflater.unused_data:
            raise data_error("what was deflated does not end where it should")
        if crc is not None and zlib.crc32(plain) != crc:
            raise data_error(f"what was deflated has CRC {zlib.crc32(plain):08x} and not {crc:08x}")
        header = npy_header.header_length(plain[: npy_header.BEGINNING], "what was deflated")
        if len(plain) != header + column.unit_bytes:
            raise data_error(f"what was deflated gives {len(plain)} bytes and not {header + column.unit_bytes}")
        return np.frombuffer(plain, np.uint8)[header:]

    def open_library(self, path: Path, comm: object | None, collective: bool) -> npy_header.ArrayFile:
        """Open a file by `numpy.load`, which does not use MPI."""
        return npy_header.ArrayFile(path, self.dataset)


class StoredNpz(Npz, protocols.Framed):
    """The stored variant; see `protocols.Framed`."""

    @property
    def checksum(self) -> Callable[[memoryview, int], int]:
        """CRC-32 of the member."""
        return zlib.crc32

    @cached_property
    def header(self) -> int:
        """Bytes of the headers of the member and of its array."""
        return _MEMBER_HEADER + len(npy_header.array_header(self.dataset, 1, 1))

    def trailer(self, counts: protocols.Ints, ends: protocols.Ints) -> protocols.Ints:
        """Return the bytes of the directory and its end."""
        return zip_headers.trailer_sizes(_FILE, ends - _MEMBER_HEADER, ends)

    def start_checksum(self, count: int, end: int) -> int:
        """Return the CRC of the array's header, which is part of the member."""
        return zlib.crc32(self._array_header(count, end))

    def write_header(self, count: int, end: int, checksum: int) -> bytes:
        """Return the headers of the member and of its array."""
        return zip_headers.local_header(_member_entry(end, checksum)) + self._array_header(count, end)

    def write_trailer(self, count: int, end: int, checksum: int) -> bytes:
        """Return the directory and its end."""
        return zip_headers.trailer(_member_entry(end, checksum), end)

    def _array_header(self, count: int, end: int) -> bytes:
        return npy_header.array_header(self.dataset, count, end - self.header)


class DeflatedNpz(Npz, protocols.Built):
    """The deflated variant; see `protocols.Resolved`."""

    @property
    def batch(self) -> int:
        """Samples in 4 MiB."""
        return max(1, _BATCH // self.size)

    def encoder_bytes(self, made: int, sample: int) -> int:
        """Return the bytes that deflating a MiB at a time takes."""
        return 4 << 20

    def build(self, path: Path, count: int, batches: Iterator[protocols.Bytes], encoding: protocols.EncodeTime) -> None:
        """Deflate the samples in order, and write the sizes into the header at the end."""
        size = count * self.size
        array = npy_header.array_header(self.dataset, count, size)
        level = self.dataset.compress.level if self.dataset.compress is not None else 0
        deflater = zlib.compressobj(level, zlib.DEFLATED, _RAW_DEFLATE)
        empty = zip_headers.local_header(zip_headers.ZipMember(_FILE, zip_headers.DEFLATED, 0, 0, 0))
        crc, given = zlib.crc32(array), 0
        with path.open("wb") as stream:
            stream.write(empty)
            stream.write(deflater.compress(array))
            for batch in batches:
                for rows in protocols.cut_bytes(np.ascontiguousarray(batch).reshape(-1).data):
                    began = time.perf_counter_ns()
                    crc = zlib.crc32(rows, crc)
                    piece = deflater.compress(rows)
                    encoding.encode_ns += time.perf_counter_ns() - began
                    given += len(rows)
                    stream.write(piece)
            began = time.perf_counter_ns()
            piece = deflater.flush()
            encoding.encode_ns += time.perf_counter_ns() - began
            stream.write(piece)
            end = stream.tell()
            member = zip_headers.ZipMember(_FILE, zip_headers.DEFLATED, crc, end - len(empty), len(array) + size)
            stream.write(zip_headers.trailer(member, end))
            stream.seek(0)
            stream.write(zip_headers.local_header(member))
        if given != size:
            raise ValueError(f"{path} was given {given} bytes for {count} samples of {self.size}")

    def forecast(self, count: int) -> protocols.FileIndex:
        """Return one unit, of the samples' bytes divided by `compressible`."""
        each = self.size
        array = npy_header.array_header(self.dataset, count, count * each)
        stored = len(array) + round(count * each / self.dataset.content_ratio)
        member = zip_headers.ZipMember(_FILE, zip_headers.DEFLATED, 0, stored, len(array) + count * each)
        offset = len(zip_headers.local_header(member))
        last = len(zip_headers.trailer(member, offset + stored))
        column = npy_header.array_column(npy_header.SampleRows(count, each, True), 0, offset + stored, _FILTERS)
        return protocols.FileIndex(count, offset + stored + last, (column,), offset + len(array) + last)


def npz(dataset: Dataset) -> Npz:
    """Return the stored variant, or the deflated one for data sets with `compress` and for existing files."""
    return DeflatedNpz(dataset) if dataset.compress is not None or dataset.source else StoredNpz(dataset)


def _member_entry(end: int, checksum: int) -> zip_headers.ZipMember:
    return zip_headers.ZipMember(_FILE, zip_headers.STORED, checksum, end - _MEMBER_HEADER, end - _MEMBER_HEADER)


def _select_members(
    directory: zip_headers.Directory, names: tuple[str, ...], path: Path
) -> tuple[zip_headers.ZipMember, ...]:
    """Return the members of these names, in their order; an array's name is its member's without `.npy`."""
    arrays = {member.name.removesuffix(".npy"): member for member in directory.members if member.name.endswith(".npy")}
    if not names:
        names = tuple(arrays) if len(arrays) == 1 else (npy_header.MEMBER,)
    there = ", ".join(f"`{name[:60]}`" for name in list(arrays)[:10]) + (", ..." if len(arrays) > 10 else "")
    for name in names:
        if name not in arrays:
            text = f"{path} has no array `{name}`, and these: {there}" if arrays else f"{path} holds no array"
            raise data_error(f"{text}{cure_names(list(arrays))}")
    return tuple(arrays[name] for name in names)


def _read_beginning(look: FileLook, member: zip_headers.ZipMember, offset: int, where: str, most: int) -> bytes:
    """Return the first `most` bytes of a member, inflated if it is deflated.

    ExecutionError [R401] for a member that cannot be read.
    """
    if member.encrypted:
        raise data_error(f"{where} is encrypted")
    if member.method not in (zip_headers.STORED, zip_headers.DEFLATED):
        raise data_error(f"{where} is compressed by method {member.method}; known are 0 and 8 (deflate)")
    if member.method == zip_headers.STORED and member.size != member.stored:
        raise data_error(f"{where} is stored as it is, but {member.size} bytes in {member.stored}")
    if member.size > (member.stored + 1) * _LARGEST_RATIO:
        raise data_error(f"{where} has {member.stored} bytes, which cannot inflate to {member.size}")
    if member.method == zip_headers.STORED:
        return look.read(min(most, member.size), offset)
    data = look.read(min(2 * most + 1024, member.stored), offset)
    try:
        return zlib.decompressobj(_RAW_DEFLATE).decompress(data, most)
    except zlib.error as error:
        raise data_error(f"{where} is damaged: {error}") from error


def _column(
    member: zip_headers.ZipMember, array: npy_header.Array, rows: npy_header.SampleRows, offset: int
) -> protocols.Column:
    if member.method == zip_headers.STORED:
        return npy_header.array_column(rows, offset + array.header)
    # The unit begins at the member's own header, which has its CRC. As a parameter of the filter, the CRC would give
    # every file its own decoder.
    return npy_header.array_column(rows, member.offset, offset - member.offset + member.stored, _FILTERS)
