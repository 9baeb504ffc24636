"""Traces as markdown: what is done in which order, and two of them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from fidelity.compare import Likeness, Profile, likeness, sizes
from fidelity.tracing import READS, UNKNOWN, WRITES, Record


def sequence(records: Sequence[Record]) -> Iterator[str]:
    """Yield calls one after another, a row each; equal ones that follow each other (`x 3`) share a row."""
    yield from head("call", "file", "offset", "asked", "returned")
    for (call, file, offset, asked, returned), group in groupby(records, _call_cells):
        count = len(list(group))
        yield row(f"{call} x {count}" if count > 1 else call, file, offset, asked, returned)


def alone(seen: Profile) -> Iterator[str]:
    """Yield the figures of one trace."""
    yield from head("", "real")
    yield from (row(name, figure) for name, figure in zip(_NAMES, _figures(seen), strict=True))


def side_by_side(real: Profile, tool: Profile) -> Iterator[str]:
    """Yield the figures of two traces, and how similar they are."""
    yield from head("", "real", "tool")
    for name, one, other in zip(_NAMES, _figures(real), _figures(tool), strict=True):
        yield row(name, one, other)
    yield ""
    yield from head("similarity", "0 to 1")
    yield from (row(name, f"{value:.3f}") for name, value in _similarities(likeness(real, tool)))


#: The columns of `similarity_cells`; all but the similarities are `real / tool`.
SIMILARITY_HEAD: Final = (
    "threads",
    "opens",
    "reads",
    "reads that return none",
    "bytes",
    "0, 1, 2, ... in flight, % of the time",
    "same order",
    "same order, each thread",
    "in both",
    "sizes by count",
    "sizes by bytes",
)


def similarity_cells(real: Profile, tool: Profile) -> Iterator[str]:
    """Yield the same as cells of one row; SIMILARITY_HEAD is its head."""
    for one, other in zip(_short(real), _short(tool), strict=True):
        yield one if one == other else f"{one} / {other}"
    found = likeness(real, tool)
    for value in (found.order, found.per_worker, found.calls, found.sizes, found.sizes_by_bytes):
        yield f"{value:.3f}"


def head(*cells: str) -> Iterator[str]:
    """Yield the head of a table."""
    yield row(*cells)
    yield "|" + "---|" * len(cells)


def row(*cells: object) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


_NAMES = (
    "threads that read",
    "reads that return bytes",
    "reads that return none",
    "bytes read",
    "bytes of files read",
    "read twice or more, %",
    "reads at a time, most",
    "reads at a time, mean",
    "0, 1, 2, ... reads at a time, % of the time",
    "opens",
    "closes",
    "stats",
    "seeks",
    "mappings",
    "sizes of reads",
)


def _figures(seen: Profile) -> Iterable[object]:
    calls = seen.calls
    yield len(seen.workers)
    yield len(seen.extents)
    yield seen.empty
    yield seen.total_bytes
    yield seen.unique
    yield f"{100 * (seen.total_bytes / seen.unique - 1):.1f}" if seen.unique else "-"
    yield seen.most
    yield f"{seen.mean:.2f}"
    yield _shares(seen)
    yield calls["openat"]
    yield calls["close"]
    yield calls["fstat"] + calls["newfstatat"] + calls["statx"]
    yield calls["lseek"]
    yield calls["mmap"]
    yield ", ".join(f"2^{size}: {count}" for size, count in sorted(sizes(seen.extents, False).items()))


def _short(seen: Profile) -> Iterator[str]:
    yield str(len(seen.workers))
    yield str(seen.calls["openat"])
    yield str(len(seen.extents))
    yield str(seen.empty)
    yield str(seen.total_bytes)
    yield _shares(seen)


def _shares(seen: Profile) -> str:
    return ", ".join(f"{100 * share:.0f}" for share in seen.at_a_time)


def _similarities(found: Likeness) -> Iterator[tuple[str, float]]:
    yield "reads in the same order", found.order
    yield "the same for each thread and the most similar one", found.per_worker
    yield "reads in both, in any order", found.calls
    yield "bytes of files in both", found.data
    yield "sizes of reads, by count (cosine)", found.sizes
    yield "sizes of reads, by bytes (cosine)", found.sizes_by_bytes


def _call_cells(record: Record) -> tuple[str, str, str, str, str]:
    moves = record.call in (*READS, *WRITES)
    place = str(record.offset) if record.offset != UNKNOWN else ""
    return (
        record.call,
        record.file,
        place,
        str(record.asked) if moves or record.call == "mmap" else "",
        str(record.returned) if moves else "",
    )
