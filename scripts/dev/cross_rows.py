"""The rows of cross_check.py: which there are, what each compares, and roughly how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness import roughly
from peers import FIO_BUFFERS

KIB, MIB = 1 << 10, 1 << 20

# For the estimate: seconds to start and end a run, seconds a call, and bytes a second from memory and of storage.
_START, _CALL = 0.4, 1.5e-6
_MEMORY, _STORAGE = 8e9, 1e9

#: For each row: the api, the order of reads, the tool that it is compared with, and its title.
READS = (
    ("posix", "random", "fio", "fio psync"),
    ("posix", "random, sync off", "fio", "fio psync"),
    ("posix", "random", "bare", "a bare loop"),
    ("posix", "random, sync off", "bare", "a bare loop"),
    ("posix", "random", "ior", "IOR POSIX -z"),
    ("mpi-independent", "random", "ior", "IOR MPIIO -z"),
    ("mpi-collective", "in order", "ior", "IOR MPIIO -c"),
)


@dataclass(frozen=True)
class Setting:
    """The setting of a measurement. `launcher` starts ranks: its words, `-n RANKS` and the command."""

    place: Path
    size: int
    pairs: int
    passes: int
    cache: str
    launcher: list[str]


class ReadRow(NamedTuple):
    """Calls of `size` bytes on `ranks` ranks, by an api and in an order, `batch` a step, against a tool."""

    size: int
    ranks: int
    api: str
    order: str
    tool: str
    name: str
    batch: int

    def title(self) -> str:
        return f"{self.size // KIB} KiB, {self.api}, {self.order}, batch {self.batch}"

    def __str__(self) -> str:
        return f"reads, {self.title()}, ranks {self.ranks}, {self.name}"

    def seconds(self, setting: Setting) -> float:
        """Estimate the seconds of all its pairs."""
        passes = 1 if setting.cache == "cold" else setting.passes + 1
        size = passes * setting.size
        return _seconds(
            setting, size / (_MEMORY if setting.cache == "warm" else _STORAGE), size // self.size // self.ranks
        )


class WriteRow(NamedTuple):
    """`size` bytes written in a layout by `ranks` ranks, against fio with its buffers filled in one of its ways."""

    layout: str
    size: int
    ranks: int
    buffers: str

    def title(self) -> str:
        return f"{self.size // MIB} MiB, {self.layout}"

    def __str__(self) -> str:
        return f"writes, {self.title()}, ranks {self.ranks}, fio's buffers {self.buffers}"

    def seconds(self, setting: Setting) -> float:
        """Estimate the seconds of all its pairs."""
        return _seconds(setting, self.size / _STORAGE + self.size / _MEMORY, 2 * self.size // MIB)  # it is read once


def _seconds(setting: Setting, moving: float, calls: int) -> float:
    """Return the seconds of a row's runs: two a pair and one more; a rank makes `calls` calls in `moving` seconds."""
    return (2 * (setting.pairs + 1) + 1) * (_START + moving + calls * _CALL)


def read_rows(
    cache: str, sizes: Sequence[int], ranks: Sequence[int], batches: Sequence[int], tools: set[str]
) -> Iterator[ReadRow]:
    """Yield the rows for which there is a tool, the rows of one size together."""
    for size in sizes:
        for number in ranks:
            for api, order, tool, name in READS:
                # MPI-IO uses the cache on most file systems, for any setting; one rank waits for no other.
                some = (cache != "direct" or api == "posix") and (number > 1 or order != "random, sync off")
                if (tool in tools or tool == "bare") and some:
                    # IOR's collective calls have one transfer of each rank.
                    for batch in (1,) if order == "in order" else batches:
                        yield ReadRow(size, number, api, order, tool, name, batch)


def write_rows(size: int, ranks: Sequence[int]) -> list[WriteRow]:
    layouts = ("shared file", "file per sample")
    return [WriteRow(layout, size, number, way) for layout in layouts for number in ranks for way in FIO_BUFFERS]


def plan(setting: Setting, rows: Sequence[ReadRow | WriteRow]) -> str:
    """Return the amount of work, for the user who waits for it."""
    seconds = sum(one.seconds(setting) for one in rows)
    pairs = f"{len(rows)} rows, pairs in each: {setting.pairs}, and one that is dropped"
    return f"{pairs}; roughly {roughly(seconds)}, if storage moves {_STORAGE / 1e9:.0f} GB/s"
