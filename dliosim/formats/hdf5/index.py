"""The index of an HDF5 file: the places of its samples, read by h5py and checked against the size of the file."""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice, takewhile
from math import prod
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5d, h5f, h5g, h5i, h5l, h5o, h5p, h5s, h5t
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.formats.hdf5 import filters
from dliosim.formats.hdf5.geometry import ChunkGrid, chunk_grid
from dliosim.formats.header_scanner import FileLook, data_error, file_to_look_at
from dliosim.formats.protocols import ENCODED, LARGEST_INDEX, Column, FileIndex, Filter
from dliosim.formats.unsupported import cure_names, quote_names
from dliosim.model import ELEMENTS, Shape

_MOST_OBJECTS: Final = 100_000
_MOST_SHOWN: Final = 8


def find_datasets(file: Any, path: Path, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return names and data sets (h5py.h5d.DatasetID): `names`; else `records`, `records_0`, ...; else the longest.

    The longest is the one with most samples, along its first dimension. Raises ExecutionError [R401] if a name is
    missing, is a link or no data set, or if several are the longest.
    """
    root = h5g.open(file.id, b"/")
    found = names or _find_record_names(root) or (_find_longest(root, path),)
    return [(name, _find_dataset(root, path, name)) for name in found]


def _find_record_names(root: Any) -> tuple[str, ...]:
    if _is_dataset(root, "records"):
        return ("records",)
    return tuple(takewhile(partial(_is_dataset, root), (f"records_{part}" for part in count())))


def _is_dataset(root: Any, name: str) -> bool:
    raw = name.encode()
    if not root.links.exists(raw) or root.links.get_info(raw).type != h5l.TYPE_HARD:
        return False
    return isinstance(h5o.open(root, raw), h5d.DatasetID)


def _find_dataset(root: Any, path: Path, name: str) -> Any:
    here = root
    steps = name.strip("/").split("/")
    for place, step in enumerate(steps):
        if step in ("", ".", ".."):
            raise data_error(f"{path}: `{name}` is no name of a data set: `{step}` in it leads nowhere")
        raw = step.encode()
        if not isinstance(here, h5g.GroupID) or not here.links.exists(raw):
            raise data_error(f"{path} has no data set `{name}`{_list_present(root, path)}")
        if here.links.get_info(raw).type != h5l.TYPE_HARD:
            so_far = "/".join(steps[: place + 1])
            raise data_error(f"{path}: `{so_far}` is a link, and links are not followed")
        here = h5o.open(here, raw)
    if not isinstance(here, h5d.DatasetID):
        raise data_error(f"{path}: `{name}` is no data set")
    return here


def _list_present(root: Any, path: Path) -> str:
    """Return the first data sets of the file, as the end of a message about a missing one."""
    names = [name for name, _ in islice(_walk_datasets(root, path), _MOST_SHOWN + 1)]
    shown = ", ".join(f"`{name[:60]}`" for name in names[:_MOST_SHOWN])
    return f", and these: {shown}{', ...' if len(names) > _MOST_SHOWN else ''}" if names else ""


def _find_longest(root: Any, path: Path) -> str:
    """Return the data set with the longest first dimension; ExecutionError if a virtual one may be longer."""
    rows: dict[str, int] = {}
    virtual: dict[str, str] = {}
    for name, dset in _walk_datasets(root, path):
        if dset.get_create_plist().get_layout() == h5d.VIRTUAL:
            virtual[name] = describe_virtual(dset)  # its shape would open the files that it is made of
            continue
        space = dset.get_space()
        if space.get_simple_extent_type() == h5s.SIMPLE:
            rows[name] = int(space.shape[0])
    if virtual:
        name, text = next(iter(virtual.items()))
        others = f", or name those of this file to read{cure_names(sorted(rows))}" if rows else ""
        raise data_error(f"{path}: data set `{name}` {text}{others}")
    if not rows:
        raise data_error(f"{path} has no data set with samples; links to other files are not followed")
    most = max(rows.values())
    best = sorted(name for name, count in rows.items() if count == most)
    if len(best) > 1:
        text = f"{path} has several data sets of {most} samples, {quote_names(best)}"
        raise data_error(f"{text}: name those to read{cure_names(best)}")
    return best[0]


def describe_virtual(dset: Any) -> str:
    """Return that a data set is virtual, and what to read in its place: files, or data sets of the same file (`.`)."""
    create = dset.get_create_plist()
    sources = [
        (create.get_virtual_filename(i), create.get_virtual_dsetname(i))
        for i in range(min(create.get_virtual_count(), _MOST_OBJECTS))
    ]
    found = dict.fromkeys(f"`{(name if file == '.' else file)[:60]}`" for file, name in sources)
    shown = ", ".join(islice(found, _MOST_SHOWN)) + (", ..." if len(found) > _MOST_SHOWN else "")
    return f"is virtual: its samples are elsewhere; read {shown or 'the files that it is made of'}"


def _walk_datasets(root: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield all data sets with their names, those of outer groups first.

    HDF5's own walk (H5Ovisit) also asks for the size of every object's index, and crashes if that index is damaged.
    """
    waiting, seen, groups = deque([("", root)]), 0, {root}
    while waiting:
        before, group = waiting.popleft()
        for raw in _link_names(group, path, _MOST_OBJECTS - seen):
            seen += 1
            if group.links.get_info(raw).type != h5l.TYPE_HARD:
                continue
            name, found = before + raw.decode("utf-8", "replace"), h5o.open(group, raw)
            if isinstance(found, h5g.GroupID):
                if found not in groups:  # groups may hold each other
                    groups.add(found)
                    waiting.append((f"{name}/", found))
            elif isinstance(found, h5d.DatasetID):
                yield name, found


def _link_names(group: Any, path: Path, most: int) -> list[bytes]:
    names: list[bytes] = []

    def take(name: bytes) -> bool | None:
        names.append(name)
        return True if len(names) > most else None

    stopped, _ = group.links.iterate(take)
    if stopped:
        raise data_error(f"{path} has more than {_MOST_OBJECTS} groups and data sets: name those to read")
    return names


#: Chunks that a file may have more than bytes: chunks that were never written take no room in it
_FEW: Final = 1 << 20

_LARGEST_CHUNK: Final = 1 << 32


@dataclass(slots=True)
class _CountingFile:
    """A file for h5py that counts the bytes it reads. It keeps an OSError, as h5py raises another error for it."""

    look: FileLook  #: the open file
    at: int = 0  #: offset of the next read
    touched: int = 0  #: bytes read so far
    error: OSError | None = None  #: the last OSError of a read

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.at = offset + (0, self.at, self.look.size)[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, length: int) -> bytes:
        """Return bytes at the offset; h5py needs this method and `seek` to accept a file, but calls `readinto`."""
        buffer = bytearray(length)
        return bytes(buffer[: self.readinto(memoryview(buffer))])

    def readinto(self, buffer: memoryview) -> int:
        try:
            data = self.look.read(len(buffer), self.at)
        except OSError as error:
            self.error = error
            raise
        count = len(data)
        buffer[:count] = data
        self.at += count
        self.touched += count
        return count

    def flush(self) -> None:
        """Do nothing: nothing is written."""


def read_index(path: Path, names: tuple[str, ...]) -> FileIndex:
    """Return the index of a file; columns are the data sets of these names, or those that `find_datasets` finds.

    ExecutionError [R401] if the file is damaged, or does not say where its samples are.
    """
    with _open_counting(path) as (file, counted):
        chosen = find_datasets(file, path, names)
        found = [_column(path, name, dset, counted.look.size) for name, dset in chosen]
        row_bytes = [prod(dset.shape[1:]) * int(dset.get_type().get_size()) for _, dset in chosen]
        samples = {name: count for name, count, _ in found}
        if len(set(samples.values())) > 1:
            text = ", ".join(f"`{name}` {count}" for name, count in samples.items())
            raise data_error(f"{path}: data sets have different numbers of samples: {text}")
        columns = tuple(column for _, _, column in found)
        return FileIndex(found[0][1], counted.look.size, columns, counted.touched, sum(row_bytes))


def read_shape(path: Path, names: tuple[str, ...]) -> Shape | None:
    """Return the shape of a sample in each data set that `read_index` finds; None if patterns have none, or several."""
    with _open_counting(path) as (file, _):
        found = {
            Shape(_shape(name, dset)[1:], _element_type(name, dset).newbyteorder("=").name)
            for name, dset in find_datasets(file, path, names)
        }
    one = found.pop()
    return one if not found and one.extents and one.element in ELEMENTS else None


@contextmanager
def _open_counting(path: Path) -> Iterator[tuple[Any, _CountingFile]]:
    """Open the file with h5py and count its reads; h5py's errors become ExecutionError [R401] with the file's name."""
    with file_to_look_at(path) as look:
        counted = _CountingFile(look)
        try:
            with h5py.File(counted, "r") as file:
                yield file, counted
        except ExecutionError:
            raise
        except Exception as error:  # h5py maps HDF5's errors to a dozen types
            if counted.error is not None:
                raise counted.error from error
            raise data_error(f"{path} is no whole HDF5 file: {error}") from error


def _column(path: Path, name: str, dset: Any, size: int) -> tuple[str, int, Column]:
    """Return a data set's name, its number of samples, and their places."""
    where = f"{path}: data set `{name}`"
    create = dset.get_create_plist()
    layout = create.get_layout()
    if layout == h5d.VIRTUAL:
        raise data_error(f"{where} {describe_virtual(dset)}")
    if layout == h5d.COMPACT:
        raise data_error(f"{where} is compact: its data are in its header, where HDF5 does not report them")
    if create.get_external_count():
        raise data_error(f"{where} is external: its data are in other files")
    element_bytes = _element_type(where, dset).itemsize
    shape = _shape(where, dset)
    row_bytes = prod(shape[1:]) * element_bytes
    if prod(shape[1:]) == 0:
        raise data_error(f"{where} of shape {shape} has samples of no bytes")
    if shape[0] == 0:
        none = np.zeros(0, np.int64)
        return name, 0, Column(1, 1, row_bytes, row_bytes, none, none)
    if layout == h5d.CONTIGUOUS:
        return name, shape[0], _contiguous_column(where, dset, shape[0], row_bytes, size)
    return name, shape[0], _chunk_column(where, dset, create, shape, element_bytes, size)


def _shape(where: str, dset: Any) -> tuple[int, ...]:
    space = dset.get_space()
    if space.get_simple_extent_type() != h5s.SIMPLE:
        raise data_error(f"{where} is a scalar or empty: it has no samples")
    return tuple(int(extent) for extent in space.shape)


def _element_type(where: str, dset: Any) -> np.dtype[Any]:
    """Return the type of the elements; ExecutionError if their bytes are elsewhere, or numpy has no such type."""
    kind = dset.get_type()
    try:
        found: np.dtype[Any] = kind.dtype
    except TypeError as error:
        raise data_error(f"{where} has elements that numpy does not know: {error}") from error
    if found.hasobject:
        raise data_error(f"{where} has elements of varying length or references: their data are elsewhere")
    if found.itemsize != kind.get_size():
        raise data_error(f"{where} has elements of {kind.get_size()} bytes, which numpy reads as {found.itemsize}")
    return found


def _contiguous_column(where: str, dset: Any, count: int, row_bytes: int, size: int) -> Column:
    offset, length = dset.get_offset(), count * row_bytes
    if offset is None:
        raise data_error(f"{where} was never written: it has no place in the file")
    if dset.get_storage_size() < length or offset > size or length > size - offset:
        raise data_error(f"{where}: {length} bytes at {offset} are not all in the file of {size}")
    return Column(count, 1, row_bytes, length, np.array([offset], np.int64), np.array([length], np.int64))


def _chunk_column(where: str, dset: Any, create: Any, shape: tuple[int, ...], element_bytes: int, size: int) -> Column:
    chunk = tuple(int(length) for length in create.get_chunk())
    found = chunk_grid(shape, chunk, element_bytes)
    if found.units > min(size + _FEW, LARGEST_INDEX // 16):
        text = f"{where} of shape {shape} in chunks of {chunk} has {found.units} chunks: a file of {size} bytes"
        raise data_error(f"{text} is not believed to")
    if found.samples == 0:
        text = f"{where} of shape {shape} has chunks of {chunk}: of several samples, but none of them whole"
        raise data_error(f"{text}; `h5repack -l` can cut it by samples")
    if found.unit_bytes > _LARGEST_CHUNK:
        raise data_error(f"{where} has chunks of {found.unit_bytes} bytes, more than 4 GiB")
    described = map(create.get_filter, range(create.get_nfilters()))
    steps = tuple(
        Filter(filters.filter_name(code, text), tuple(map(int, values))) for code, _, values, text in described
    )
    numbers = _list_chunks(where, dset, found.units, len(shape))
    offset, length = numbers[:, 0], numbers[:, 1]
    places = _chunk_numbers(where, numbers[:, 3:], chunk, found)
    outside = (offset > size) | (length > size - np.minimum(offset, size))
    if outside.any():
        bad = int(np.argmax(outside))
        text = f"chunk {tuple(numbers[bad, 3:].tolist())}, {length[bad]} bytes at {offset[bad]}"
        raise data_error(f"{where}: {text}, is not all in the file of {size}")
    offsets, lengths = np.zeros(found.units, np.int64), np.zeros(found.units, np.int64)
    offsets[places] = offset.astype(np.int64)
    row_bytes = found.row_bytes
    if steps or found.is_tiled:
        row_bytes = ENCODED
        lengths[places] = length.astype(np.int64)
        before = (_element_filter(dset, create, chunk),) if filters.needs_elements(steps) else ()
        steps = (*before, *_add_skip_mask(where, steps, found.unit_bytes, numbers))
        if found.is_tiled:
            steps = (Filter(filters.TILED, chunk), *steps)
    else:
        if (length != found.unit_bytes).any():
            other = int(length[length != found.unit_bytes][0])
            raise data_error(f"{where} has a chunk of {other} bytes instead of {found.unit_bytes}")
        lengths[places] = found.run_bytes()[places]
    return Column(found.samples, found.pieces, row_bytes, found.unit_bytes, offsets, lengths, steps)


def _list_chunks(where: str, dset: Any, most: int, rank: int) -> NDArray[np.uint64]:
    """Return offset, length, filter mask and coordinates of each chunk that the file has; (chunks, 3 + rank)."""
    numbers = array("Q")
    base = int(h5i.get_file_id(dset).get_create_plist().get_userblock())
    if base and not _has_user_block_bug():
        base = 0

    def take(chunk: Any) -> bool | None:
        numbers.extend((chunk.byte_offset + base, chunk.size, chunk.filter_mask, *chunk.chunk_offset))
        return True if len(numbers) > most * (3 + rank) else None  # a damaged B-tree may contain itself

    if hasattr(dset, "chunk_iter"):
        dset.chunk_iter(take)
    else:  # HDF5 before 1.10.10 and 1.12.3 has no call for all chunks; this one starts at the first chunk each time
        for number in range(min(dset.get_num_chunks(), most + 1)):
            take(dset.get_chunk_info(number))
    found = np.frombuffer(numbers, np.uint64).reshape(-1, 3 + rank)
    if len(found) == 0:
        raise data_error(f"{where} was never written: none of its chunks has a place in the file")
    if len(found) > most:
        raise data_error(f"{where} has more chunks in its index than its shape has")
    return found


def _chunk_numbers(
    where: str, starts: NDArray[np.uint64], chunk: tuple[int, ...], found: ChunkGrid
) -> NDArray[np.int64]:
    """Return the number of each chunk in the order of samples."""
    index, rest = np.divmod(starts, np.array(chunk, np.uint64))
    if rest.any() or (index >= np.array(found.grid, np.uint64)).any():
        raise data_error(f"{where} has a chunk that begins where none of its shape can")
    steps = np.array([prod(found.grid[axis + 1 :]) for axis in range(len(chunk))], np.int64)
    places: NDArray[np.int64] = index.astype(np.int64) @ steps
    if len(places) != len(np.unique(places)):
        raise data_error(f"{where} has two chunks for one place")
    return places


def _add_skip_mask(
    where: str, steps: tuple[Filter, ...], unit_bytes: int, numbers: NDArray[np.uint64]
) -> tuple[Filter, ...]:
    """Return the filters with the mask of those that some chunks skipped; the length of a chunk shows if it did."""
    masks = {int(mask) & ((1 << len(steps)) - 1) for mask in np.unique(numbers[:, 2])} - {0}
    if not masks:
        return steps
    mask = masks.pop()
    plain = filters.filter_output_bytes(filters.active_filters(steps, mask), unit_bytes)
    skipped = (numbers[:, 2] & np.uint64((1 << len(steps)) - 1)) != 0
    if masks or plain is None or ((numbers[:, 1] == plain) != skipped).any():
        raise data_error(f"{where} has chunks that skipped filters and look the same as the others")
    return (*steps, Filter(filters.SKIPPED, (mask,)))


def _element_filter(dset: Any, create: Any, chunk: tuple[int, ...]) -> Filter:
    kind = dset.get_type().dtype
    plain = kind if kind.kind in "iuf" else np.dtype(f"V{kind.itemsize}")
    fill: tuple[int, ...] = ()
    if plain is kind and create.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED:
        value = np.zeros((), kind)
        create.get_fill_value(value)
        fill = tuple(value.tobytes())
    order = plain.str[0]  # "<", ">", or "|" if it has none
    return Filter(filters.ELEMENTS_OF, (ord(plain.kind), ord(order), plain.itemsize, len(chunk), *chunk, *fill))


@cache
def _has_user_block_bug() -> bool:
    """Return True if a chunk's offset is the same with and without a user block (HDF5 1.10.8 has this bug)."""
    places = []
    for block in (0, 512):
        create, access = h5p.create(h5p.FILE_CREATE), h5p.create(h5p.FILE_ACCESS)
        create.set_userblock(block)
        access.set_fapl_core(1 << 16, False)
        file = h5f.create(f"dliosim user block {block}".encode(), h5f.ACC_TRUNC, create, access)
        chunked = h5p.create(h5p.DATASET_CREATE)
        chunked.set_chunk((1,))
        chunked.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        dset = h5d.create(file, b"chunk", h5t.STD_U8LE, h5s.create_simple((1,)), chunked)
        places.append(dset.get_chunk_info(0).byte_offset)
    return bool(places[0] == places[1])
