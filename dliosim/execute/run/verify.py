"""Compare data on storage with what was written: checkpoints by checksums, data sets by generating them again."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.datasets.file_writer import FileWriter
from dliosim.execute.datasets.library_writer import generate_contents, make_sidecars
from dliosim.execute.datasets.open_dataset import open_files
from dliosim.execute.datasets.prepare import make_writer
from dliosim.execute.io_errors import error_reason, is_damage
from dliosim.execute.mpi.world import World
from dliosim.execute.payload.payload_format import crc32_combine
from dliosim.execute.phases.context import DatasetFiles, OpenDataset, Options, Progress, Session
from dliosim.execute.safe_open import open_folder, open_for_read
from dliosim.execute.store.locking import NAME as LOCK
from dliosim.execute.store.manifest import NAME, CheckpointManifest
from dliosim.formats.protocols import Built, Format
from dliosim.formats.registry import bind, import_libraries, import_modules
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Dataset, Job, Workload
from dliosim.plan.samples.places import FilePart
from dliosim.plan.samples.sample_to_file import bind_file

_ASTRAY = {errno.ENOENT: "is missing", errno.ELOOP: "is a symbolic link, not a file"}

#: Faults that a rank describes; of more it gives the number.
_MOST_FAULTS = 100

#: Bytes of a checkpoint's file that a rank reads and sums at a time.
_PIECE = 16 << 20

#: Pieces whose sums are held at a time, whatever size a manifest says that a file has.
_PIECES = 1 << 16

#: The sum of a piece that could not be read; less than the sums of all other ranks together.
_UNREAD = -(1 << 40)

#: Bytes of a call.
_TRANSFER = 4 << 20


#: `unread`: it cannot be read, and may be right. `surplus`: it was not written. `unfinished`: it does not count.
FaultKind: TypeAlias = Literal["damaged", "unread", "surplus", "unfinished"]


class Fault(NamedTuple):
    """The reason why a file, a data set or a checkpoint differs from what was written."""

    #: words that follow its name
    why: str
    #: what it is an instance of
    kind: FaultKind = "damaged"


class Target(NamedTuple):
    """A data set or a checkpoint to verify."""

    #: its directory
    directory: Path
    #: what it is
    kind: Literal["data set", "checkpoint", "directory"]
    #: the data set or the checkpoint; None if its manifest does not say what it is
    made: Dataset | CheckpointManifest | None = None
    #: bytes of all files of a data set
    bytes: int = 0
    #: why it cannot be verified; None if it can
    fault: Fault | None = None

    @property
    def is_leftover(self) -> bool:
        """Return whether the target is a checkpoint that was never finished, and so does not count as one."""
        return self.fault is not None and self.fault.kind == "unfinished"


@dataclass(slots=True)
class Tally:
    """The files that this rank (after `join`: all ranks) has examined, and their faults."""

    #: number of files
    files: int = 0
    #: their bytes
    bytes: int = 0
    #: why each file is wrong, by its name; of the whole, the name is "."
    faults: dict[str, Fault] = field(default_factory=dict)
    #: number of wrong files that `faults` has no room for
    more: int = 0
    #: samples that cannot be compared, as the library of their format cannot read them one by one
    unknown: int = 0

    def add_fault(self, name: str, why: str, kind: FaultKind = "damaged") -> None:
        """Note that a file is wrong; `why` follows its name, and the first reason stays."""
        if name not in self.faults and len(self.faults) >= _MOST_FAULTS:
            self.more += 1
        else:
            self.faults.setdefault(name, Fault(why, kind))

    @contextmanager
    def catch_errors(self, directory: Path, name: str) -> Iterator[None]:
        """Make an OSError of the block, which opens or reads a file, a fault of the file, and end the block."""
        try:
            yield
        except OSError as error:
            why = error_reason(error).replace(f"{directory / name}: ", "").removeprefix("open refused on ")
            if is_damage(error):
                self.add_fault(name, _ASTRAY.get(error.errno or 0, f"cannot be read: {why}"))
            else:
                self.add_fault(name, f"cannot be read: {why}", "unread")

    def find_surplus(self, directory: Path, folder: str, is_expected: Callable[[str], bool]) -> None:
        """Note the unexpected entries of a folder; names are relative to `directory`."""
        try:
            with open_folder(directory / folder) as opened:
                for entry in sorted(os.listdir(opened)):  # noqa: PTH208
                    name = os.path.normpath(f"{folder}/{entry}").lstrip("/")
                    if not is_expected(name):
                        self.add_fault(name, "does not belong there", "surplus")
        except OSError as error:
            damaged = is_damage(error)
            is_link = damaged and (directory / folder).is_symlink()
            why = "is a symbolic link, not a directory" if is_link else error_reason(error)
            self.add_fault(folder or ".", why, "damaged" if damaged else "unread")

    def join(self, world: World) -> Tally:
        """Return the tally of all ranks, on every rank. Collective."""
        counts = np.array([self.files, self.bytes, self.more, self.unknown, len(self.faults)], np.int64)
        files, size, more, unknown, faults = world.allreduce(counts, "sum").tolist()
        joined: dict[str, Fault] = {}
        for own in world.comm.allgather(self.faults) if faults else ():
            joined = {**own, **joined}
        return Tally(files, size, dict(sorted(joined.items())), more, unknown)


def verify_target(world: World, progress: Progress, target: Target) -> Tally:
    """Compare a data set or a checkpoint with what was written. Collective; the result is the same on every rank."""
    directory, made = target.directory, target.made
    if isinstance(made, CheckpointManifest):
        return verify_checkpoint(world, progress, directory, made)
    tally = Tally()
    if target.fault is not None:
        tally.add_fault(".", *target.fault)
    if made is not None:
        workload = Workload(made.name, "", made.seed, Job(world.size, world.nodes), (made,), (), ())
        session = Session(workload, world, {}, Options(verify=True), progress)
        try:
            return _verify_dataset(session, made, directory, target.bytes)
        except DliosimError as error:
            if not error.shared:
                raise
            tally.add_fault(".", error.message, "damaged" if error.code == "R401" else "unread")
    return tally


def verify_checkpoint(world: World, progress: Progress, directory: Path, saved: CheckpointManifest) -> Tally:
    """Compare size and CRC-32 of each file with the manifest. Collective.

    Ranks share the pieces of all files, so that one file of many ranks is read by all of them, too.
    """
    tally, names = Tally(), list(saved.files)
    sizes = np.array([saved.files[name][0] for name in names], np.int64)
    sound = np.zeros(len(names), np.int64)
    for file in range(world.rank, len(names), world.size):
        with tally.catch_errors(directory, names[file]), _open_below(directory, names[file]) as descriptor:
            found = os.fstat(descriptor).st_size
            if found == sizes[file]:
                sound[file] = 1
                tally.files, tally.bytes = tally.files + 1, tally.bytes + found
            else:
                tally.add_fault(names[file], f"has {found} bytes, not {sizes[file]}")
    if world.rank == 0:
        folders = {name.rpartition("/")[0] for name in names} - {""}
        expected = {NAME, *names, *folders}
        for folder in ("", *sorted(folders)):
            tally.find_surplus(directory, folder, expected.__contains__)
    world.allreduce(sound, "sum")
    _compare_sums(world, progress, directory, saved, sizes, sound, tally)
    return tally.join(world)


def _compare_sums(
    world: World,
    progress: Progress,
    directory: Path,
    saved: CheckpointManifest,
    sizes: NDArray[np.int64],
    sound: NDArray[np.int64],
    tally: Tally,
) -> None:
    """Compare the CRC-32 of the files that are `sound`; of one that cannot be read this is set to 0. Collective."""
    names = list(saved.files)
    starts = np.cumsum([0, *(-(-sizes // _PIECE) * sound)])
    totals, at, done = [0] * len(names), 0, 0
    buffer, room = allocate(_PIECE), np.empty(_PIECES, np.int64)
    with progress.track_bytes(f"verify {saved.name}", lambda: int(sizes.sum()) // world.size):
        while at < starts[-1]:
            sums = room[: int(starts[-1]) - at]
            sums[:] = 0
            first, last = np.searchsorted(starts, [at, at + len(sums) - 1], "right").tolist()
            parts = [
                (file, max(at, int(starts[file])), min(at + len(sums), int(starts[file + 1])))
                for file in range(first - 1, last)
            ]
            for file, begin, end in parts:
                own = range(begin + (world.rank - begin) % world.size, end, world.size)
                if own:
                    sums[own.start - at : end - at : world.size] = _UNREAD
                    with tally.catch_errors(directory, names[file]), _open_below(directory, names[file]) as descriptor:
                        for piece in own:
                            data = _read_range(descriptor, (piece - int(starts[file])) * _PIECE, buffer)
                            sums[piece - at] = zlib.crc32(data)
                            done += len(data)
                            progress.tick(perf_counter_ns(), 0, done)
            world.allreduce(sums, "sum")
            for file, begin, end in parts:
                found_sums = sums[begin - at : end - at].tolist()
                if min(found_sums, default=0) < 0:
                    sound[file] = 0
                elif file % world.size == world.rank:
                    for piece, value in enumerate(found_sums, begin - int(starts[file])):
                        length = min(_PIECE, int(sizes[file]) - piece * _PIECE)
                        totals[file] = crc32_combine(totals[file], value, length)
            # The rest of a file that could not be read is passed over.
            at = at + len(sums) if sound[parts[-1][0]] else int(starts[parts[-1][0] + 1])
    for file in range(world.rank, len(names), world.size):
        right = saved.files[names[file]][1]
        if sound[file] and totals[file] != right:
            tally.add_fault(names[file], f"has CRC-32 {totals[file]:08x}, not {right:08x}")


def _verify_dataset(session: Session, dataset: Dataset, directory: Path, size: int) -> Tally:
    """Compare each byte of a data set with what `prepare` writes; `size` is the sum of its files' bytes. Collective.

    Of files that a library makes, the samples are compared and the index is read, which says where they are. Raises
    DliosimError on every rank if that index is wrong, or the library is missing.
    """
    world, tally = session.world, Tally()
    form = bind(dataset)
    session.world.run_on_all(lambda: import_modules([dataset]))
    import_libraries(form)
    folders = [dataset.folder_name(folder) for folder in range(dataset.layout.folders)]
    for folder in sorted({".", *folders})[world.rank :: world.size]:
        tally.find_surplus(directory, folder, partial(_is_part, form))
    opened = open_files(session, DatasetFiles(dataset, directory, dataset.file_name))
    total, own = opened.places.total_bytes, opened.places.parts(world.size, world.rank)
    if total != size and world.rank == 0 and form.needs_index:
        tally.add_fault(NAME, f"says that all files have {size} bytes, and they have {total}")
    with session.progress.track_bytes(f"verify {dataset.name}", lambda: size // world.size):
        if isinstance(form, Built):
            _verify_samples(session, opened, form, own, tally)
        else:
            _verify_chunks(session, opened, make_writer(opened.places), own, tally)
    return tally.join(world)


def _verify_chunks(
    session: Session, opened: OpenDataset, writer: FileWriter, parts: Iterable[FilePart], tally: Tally
) -> None:
    """Make the bytes of parts of files again, chunk by chunk, and compare them with those of the files."""
    directory = opened.directory
    made, found, done = memoryview(b""), memoryview(b""), 0
    for placed in writer.place(parts):
        part, name = placed.part, opened.name(placed.part.file)
        needed = writer.largest_chunk(part, _TRANSFER)
        if len(made) < needed:
            made, found = allocate(needed), allocate(needed)
        with tally.catch_errors(directory, name), _open_below(directory, name) as descriptor:
            if _check_size(tally, name, descriptor, opened.places.file_size(part.file), part.first):
                for offset, data in placed.chunks(_TRANSFER, made):
                    if not _compare(tally, name, descriptor, offset, data, found):
                        break
                    done += len(data)
                    session.progress.tick(perf_counter_ns(), 0, done)
        if part.first and opened.places.form.sidecars:
            _verify_sidecars(opened, part.file, tally)


def _verify_sidecars(opened: OpenDataset, file: int, tally: Tally) -> None:
    for suffix, pieces in make_sidecars(opened.places.form, *opened.places.samples_of(file)):
        name = str(Path(opened.name(file)).with_suffix(f".{suffix}"))
        with tally.catch_errors(opened.directory, name), _open_below(opened.directory, name) as descriptor:
            at = 0
            for piece in pieces:
                if not _compare(tally, name, descriptor, at, memoryview(piece), allocate(len(piece))):
                    break
                at += len(piece)
            else:
                _check_size(tally, name, descriptor, at, True)


def _verify_samples(
    session: Session, opened: OpenDataset, form: Built, parts: Iterable[FilePart], tally: Tally
) -> None:
    """Make the samples of parts of files again, and compare them with what the format's library reads."""
    library = form.library_reader()
    done = 0
    for part in parts:
        name, at = opened.name(part.file), part.first_sample
        own = cast(Built, bind_file(form, at))
        found: NDArray[np.uint8] = np.empty((max(1, own.batch), own.size), np.uint8)
        start, _ = opened.places.samples_of(part.file)
        with tally.catch_errors(opened.directory, name), _open_below(opened.directory, name) as descriptor:
            if part.first:
                tally.files, tally.bytes = tally.files + 1, tally.bytes + os.fstat(descriptor).st_size
            if library is None:
                tally.unknown += part.last_sample - part.first_sample
                continue
            with closing(library.open_library(opened.path(part.file), None, False)) as file:
                for right in generate_contents(session, own, own.batch, at, part.last_sample, VerbRecord(), done):
                    rows = found[: len(right)]
                    file.read(at - start, len(right), rows.data.cast("B"))
                    wrong = np.flatnonzero((rows != right).any(axis=1))
                    if len(wrong):
                        tally.add_fault(name, f"has another sample {at + int(wrong[0])} than was prepared")
                        break
                    at += len(right)
        done += part.last_sample - part.first_sample


def _check_size(tally: Tally, name: str, descriptor: int, size: int, counts: bool) -> bool:
    """Return whether a file has its size; count it if it `counts`, else another rank does that."""
    found = os.fstat(descriptor).st_size
    tally.files += counts
    tally.bytes += found if counts else 0
    if found != size:
        tally.add_fault(name, f"has {found} bytes, not {size}")
    return found == size


def _compare(tally: Tally, name: str, descriptor: int, offset: int, data: memoryview, buffer: memoryview) -> bool:
    """Return whether a file has these bytes at an offset; name the first one that differs."""
    found = np.frombuffer(_read_range(descriptor, offset, buffer[: len(data)]), np.uint8)
    expected = np.frombuffer(data, np.uint8)
    differs = np.flatnonzero(found != expected[: len(found)])[:1]
    if len(differs):
        at = int(differs[0])
        tally.add_fault(name, f"byte {offset + at} is 0x{found[at]:02x}, not 0x{expected[at]:02x}")
    elif len(found) < len(expected):
        tally.add_fault(name, f"ends at byte {offset + len(found)}, and {len(expected) - len(found)} more are missing")
    else:
        return True
    return False


@contextmanager
def _open_below(directory: Path, name: str) -> Iterator[int]:
    """Open a file of a directory, or of a folder of it, to read; neither is a link."""
    path = directory / name
    with open_folder(path.parent) as folder, open_for_read(path.name, folder) as descriptor:
        yield descriptor


def _read_range(descriptor: int, offset: int, buffer: memoryview) -> memoryview:
    """Fill the buffer from an offset of a file, and return what there was. Raises OSError."""
    got = 0
    while got < len(buffer) and (more := os.preadv(descriptor, [buffer[got:]], offset + got)):
        got += more
    return buffer[:got]


def _is_part(form: Format, name: str) -> bool:
    """Return whether a data set has a file or a folder of this name, which is relative to its directory."""
    dataset = form.dataset
    path, layout = Path(name), dataset.layout
    number = path.stem if path.suffix else name
    if not (number.isdecimal() and len(number) < 19):
        return name in (NAME, LOCK)  # a job has a lock on a copy that it made or reads
    if not path.suffix:
        return int(name) < layout.folders > 1 and dataset.folder_name(int(name)) == name
    own = Path(dataset.file_name(int(number)))
    return int(number) < layout.files and path in (own, *(own.with_suffix(f".{one}") for one in form.sidecars))
