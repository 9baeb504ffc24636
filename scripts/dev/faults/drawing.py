"""Random workloads of all kinds, and faults among the calls that they were seen to make."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Phase = Literal["prepare", "again", "loop", "save", "save in loop", "restore"]
"""What a fault is injected into: `again` is a prepare of data that are complete, `save in loop` saves within a loop."""

PHASES: Final[tuple[Phase, ...]] = ("prepare", "again", "loop", "save", "save in loop", "restore")

READING: Final = frozenset({"again", "loop", "restore"})
"""The phases that change nothing."""

Kind = Literal["errno", "short", "delay"]

#: A fault that meets every call from its first on has no last.
NO_LAST: Final = 10**9

_READING = (errno.EIO, errno.ESTALE, errno.EINTR)
_WRITING = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EINTR)
_NAMING = (errno.EIO, errno.EACCES, errno.ESTALE)
_MAKING = (*_NAMING, errno.ENOSPC, errno.EDQUOT)

#: The errors that each call is given; besides, all are delayed, and those that move bytes are short.
ERRORS: Final[dict[str, tuple[int, ...]]] = {
    "open": (*_NAMING, errno.EMFILE, errno.EINTR),
    "open for writing": (*_MAKING, errno.EMFILE, errno.EINTR),
    "close": (errno.EIO, errno.EINTR),
    "close for writing": _WRITING,
    "read": _READING,
    "pread": _READING,
    "write": _WRITING,
    "pwrite": _WRITING,
    "sendfile": _WRITING,
    "copy_file_range": _WRITING,
    "fsync": _WRITING,
    "fdatasync": _WRITING,
    "ftruncate": _WRITING,
    "truncate": _WRITING,
    "fallocate": (*_WRITING, errno.EOPNOTSUPP),
    "fadvise": (errno.EIO, errno.EINVAL),
    "mincore": (errno.EIO, errno.ENOMEM, errno.EAGAIN),
    "mmap": (errno.ENOMEM, errno.EACCES, errno.ENODEV),
    "flock": (errno.EIO, errno.ENOLCK, errno.EINTR),
    "fcntl": (errno.EIO, errno.ENOLCK, errno.EINTR),
    "stat": _NAMING,
    "fstat": (errno.EIO, errno.ESTALE),
    "statfs": _NAMING,
    "access": _NAMING,
    "readlink": _NAMING,
    "rename": _MAKING,
    "mkdir": _MAKING,
    "unlink": _NAMING,
    "rmdir": _NAMING,
    "opendir": (*_NAMING, errno.EMFILE),
    "readdir": (errno.EIO, errno.ESTALE),
}

_MOVING = frozenset({"read", "pread", "write", "pwrite", "sendfile", "copy_file_range"})

#: The share of faults that are delays of 200 ms.
_DELAYED = 0.06

_LOOKING = frozenset({"stat", "fstat", "statfs", "access", "readlink", "opendir", "readdir"})

_HEAD = 'dlio 1\nworkload faults "every call may fail"\n'


@dataclass(frozen=True)
class Workload:
    """A pattern in pieces, lines of its blocks; `api` is how it reads and writes where it can choose."""

    ranks: int
    api: str
    dataset: tuple[str, ...]
    prepare: tuple[str, ...]
    loop: tuple[str, ...]
    checkpoint: tuple[str, ...]
    restore: tuple[str, ...]

    def pattern(self, *verbs: str) -> str:
        """Return the pattern that does these verbs."""
        dataset = _block("dataset d", ("samples 24", "size 6000 B", 'path "d"', *self.dataset))
        parts = ("part weights 100 kB total", "part state 1001 B per rank", "transfer 20 kB", "keep 2", 'path "c"')
        return "".join([_HEAD, dataset, _block("checkpoint c", (*parts, *self.checkpoint)), *verbs])

    def verbs(self, phase: Phase) -> str:
        """Return the verbs of a phase."""
        train = ("read d", "batch 2 per rank", "shuffle samples globally each epoch")
        prepare = _block("prepare d", self.prepare)
        return {
            "prepare": prepare,
            "again": prepare,
            "loop": "drop caches\n" + _block("train", (*train, *self.loop)),
            "save": "repeat 2 {\n    save c\n}\n",
            "save in loop": _block("train", (*train, "checkpoint c every 4 steps")),
            "restore": _block("restore c", self.restore),
        }[phase]


def _block(head: str, lines: Sequence[str]) -> str:
    return "\n".join([head + " {", *(f"    {line}" for line in lines), "}", ""])


_LIBRARIES = frozenset({"format hdf5", "format npy", "format npz"})

_LOOPS = {
    "posix": (
        ("engine queued depth 4",),
        ("engine mmap",),
        ("open each sample",),
        ("open each epoch", "transfer 2 kB"),
        ("readers 2 by batch",),
        ("readers 2 by sample", "prefetch 3 batches"),
        ("scatter by node",),
        ("cache off",),
        (),
    ),
    "mpi-independent": ((), ("engine queued depth 4",), ("open each epoch",), ("readers 2 by batch",)),
    "mpi-collective": ((), ("transfer 4 kB",), ("open each epoch",), ("hints no-aggregation",)),
}

_WRITERS = ("into file per rank", "all ranks into shared file", "one per 2 ranks", "rank 0")

_RESTORES = ((), ("reads everything once",), ("shifted by 1 rank",), ("reads own part once",))


def draw_workload(source: random.Random, api: str, direct: bool) -> Workload:
    """Return a workload of this api; `direct` is whether files can be opened with O_DIRECT where it runs."""
    ranks = source.choice((1, 2, 2, 3))
    layouts = ("shared file", "3 files", "file per sample")
    layout = "shared file" if api == "mpi-collective" else source.choice(layouts)
    form = source.choice(("format raw", "format raw", "format tfrecord", "format tar", *sorted(_LIBRARIES)))
    dataset: tuple[str, ...] = (form, f"layout {layout}")
    if form in ("format hdf5", "format npz") and source.random() < 0.5:
        dataset += ("compress gzip",)
    loop = source.choice([each for each in _LOOPS[api] if direct or each != ("cache off",)])
    if form in _LIBRARIES and api == "posix" and source.random() < 0.5:
        loop = ("through library",)
    elif loop == ("cache off",) and form == "format raw":
        dataset += ("align 4 KiB",)
    # What may be compressed is written by the format's library alone.
    prepare = () if "compress gzip" in dataset else (f"api {api}",)
    return Workload(
        ranks,
        api,
        dataset,
        prepare,
        (f"api {api}", *loop),
        _draw_checkpoint(source, api, ranks),
        source.choice(_RESTORES if ranks > 1 else _RESTORES[:1]),
    )


def _draw_checkpoint(source: random.Random, api: str, ranks: int) -> tuple[str, ...]:
    writers = source.choice(_WRITERS)
    if api == "mpi-collective":
        writers = "all ranks into shared file"
    if writers == "one per 2 ranks" and ranks == 1:
        writers = "rank 0"
    lines = [f"writers {writers}", f"api {api}"]
    lines += source.choice(([], [], ["commit metadata"], ["commit none"]))
    lines += source.choice(([], ["async on"], ["async on", "in flight 2"]))
    lines += source.choice(([], [], ["metadata on"]))
    lines += source.choice(([], [], ["drain to drained"]))
    if writers in ("into file per rank", "one per 2 ranks"):
        lines += source.choice(([], ["folder per rank"]))
    if writers == "into file per rank" and ranks > 1:
        lines += source.choice(([], ["partner 1 rank"]))
    return tuple(lines)


@dataclass(frozen=True)
class Seen:
    """A call that a run was seen to make: its name, `r`, `w` or `-`, and on what below the folder."""

    call: str
    way: str
    path: str

    @property
    def thing(self) -> str:
        """Kind of the file or directory that it is on."""
        parts = self.path.removesuffix(" (deleted)").split("/")
        name = parts[-1]
        if name == "lock":
            return "lock"
        if name.startswith("manifest.json"):
            return "manifest"
        if "." not in name or name.endswith((".partial", ".old")):
            return "directory"
        return "data" if len(parts) > 1 and parts[1] == "d" else "checkpoint"

    @property
    def title(self) -> str:
        """The call, as `ERRORS` and tables have it."""
        return f"{self.call} for writing" if self.call in ("open", "close") and self.way == "w" else self.call


@dataclass(frozen=True)
class Fault:
    """Calls of a name on a rank, from one number to another, and what they meet.

    `value` is an errno, thousandths of bytes, or ms.
    """

    rank: int
    call: str
    first: int
    kind: Kind
    value: int
    last: int

    @property
    def arguments(self) -> str:
        """The fault as inject.c takes it."""
        return f"{self.rank} {self.call} {self.first} {self.kind} {self.value} {self.last}"

    @property
    def title(self) -> str:
        """The fault in a few words."""
        named = errno.errorcode[self.value] if self.kind == "errno" else self.kind
        return f"{named} from then on" if self.last > self.first else named

    @property
    def passing(self) -> bool:
        """Return whether it is no error: a program that tries again, asks for the rest, or waits gets all bytes."""
        return self.kind != "errno" or self.value == errno.EINTR


def draw_fault(source: random.Random, seen: Sequence[Sequence[Seen]]) -> Fault:
    """Return a fault in one of the calls that ranks were seen to make.

    Each kind of call on each kind of file is as likely, but those that only look come less often: there are many.
    """
    places: dict[tuple[int, str, str, str], list[int]] = {}
    for rank, calls in enumerate(seen):
        counts: dict[str, int] = {}
        for each in calls:
            number = counts[each.call] = counts.get(each.call, -1) + 1
            places.setdefault((rank, each.call, each.title, each.thing), []).append(number)
    named = sorted(places)
    ((rank, call, title, thing),) = source.choices(named, [1 if call in _LOOKING else 4 for _, call, _, _ in named])
    first = source.choice(places[rank, call, title, thing])
    kinds: list[tuple[Kind, int]] = [("errno", each) for each in ERRORS[title]]
    kinds += [("short", source.choice((1, 300, 900)))] * (2 if call in _MOVING else 0)
    kind, value = source.choice(kinds) if source.random() > _DELAYED else ("delay", 200)
    # What is asked again for ever never ends, and a delay of every call is one of many.
    lasts = (kind == "errno" and value != errno.EINTR) or (kind == "short" and value >= 300)
    last = NO_LAST if lasts and source.random() < 0.25 else first
    return Fault(rank, call, first, kind, value, last)
