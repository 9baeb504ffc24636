"""The checkpoints of an application: what it saved, by which ranks, and when."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, Ints, group_rows
from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.data_files import DataFiles
from dliosim.analyze.infer.facts import Fact
from dliosim.analyze.infer.loops import LoopFacts, list_inside
from dliosim.analyze.infer.reads import count_by, find_spans, mode_of
from dliosim.analyze.infer.sums import find_means
from dliosim.readable import count, percent
from dliosim.units import format_bytes

#: A file that has less bytes than this many times those up to its last one was written once.
_TWICE: Final = 1.5
#: The share of what is restored that all ranks read from which on each restores everything.
_EVERYTHING: Final = 0.8
#: The share of writes during steps of their rank from which on a save is in the background: a blocking one has none.
_IN_STEPS: Final = 0.2
#: Bytes that differ by less are those of whole restores.
_SAME: Final = 0.05
#: Parts of a file that are listed, at most.
_MOST_PARTS: Final = 8
#: Steps by which a save in the background may begin later than others.
_LATE: Final = 1
#: Names of calls that delete a file.
_DELETES: Final = ("unlink", "unlinkat", "remove")


@dataclass(frozen=True, slots=True)
class SaveFacts:
    """The saves of one folder."""

    rows: Bools  #: operations on its files among the events
    saves: int  #: saves
    restores: int  #: restores
    reads_everything: bool  #: each rank restores all of it
    restore_doubt: str  #: what restores do not explain of its reads; empty if they do
    cadence: str  #: when a loop saves it: `every 5 steps`; empty if no loop does
    is_regular: bool  #: it does so at equal intervals
    parts: list[Fact]  #: its parts
    facts: dict[str, Fact]  #: settings by their heads


def list_saves(view: View, datasets: Sequence[DataFiles], loop: LoopFacts | None) -> Iterator[SaveFacts]:
    """Yield what was saved, by folders: files that are no data, named as checkpoints or written in a loop or after it.

    `loop` is the one whose steps a save follows.
    """
    events = view.events
    data = {path for one in datasets for path in one.paths}
    is_kept = np.array([path not in data for path in events.files] + [False])[events.file] & view.operations
    writes = is_kept & view.basic & events.is_kind("write") & (view.bytes > 0)
    is_late = events.begin >= (loop.begin if loop is not None else np.iinfo(np.int64).max)
    rows = np.flatnonzero(writes & (view.purpose("checkpoint") | (view.purpose("data set") & is_late)))
    is_file = np.isin(events.file, events.file[rows]) | view.purpose("checkpoint")  # one may have another name later
    files = np.unique(events.file[is_kept & is_file])
    names = np.array(_name_families([events.files[number] for number in files.tolist()]))
    for name in dict.fromkeys(names[np.isin(files, events.file[rows])].tolist()):
        own = np.isin(events.file, files[names == name]) & is_kept
        yield _describe(view, own, loop)


def _name_families(paths: Sequence[str]) -> list[str]:
    """Return the family of each file of checkpoints: their folders below all, without the parts that have numbers."""
    folders = [path.rpartition("/")[0] for path in paths]
    above = len(os.path.commonpath(folders).split("/")) if folders and all(folders) else 0
    return ["/".join(part for part in one.split("/")[above:] if not re.search(r"\d", part)) for one in folders]


def _describe(view: View, own: Bools, loop: LoopFacts | None) -> SaveFacts:
    events = view.events
    writes = np.flatnonzero(own & view.basic & events.is_kind("write") & (view.bytes > 0))
    rank = view.groups_of(writes)
    number = _number_saves(view, own, writes, loop)
    saves = int(number.max()) + 1
    total = int(view.bytes[writes].sum())
    writers = len(np.unique(rank))
    files = mode_of(count_by(count_by(number, events.file[writes].astype(np.int64))[0][0])[1])[0]
    ranks = view.ranks
    each = total // saves
    why = f"{count(saves, 'save')} of {format_bytes(total)} in all"
    end = int((np.maximum(events.offset[writes], 0) + view.bytes[writes]).max())
    is_once = len(np.unique(events.file[writes])) == 1 and total < _TWICE * end
    is_counted = loop is not None or is_once or bool(events.is_kind("compute").any())
    facts: dict[str, Fact] = {}
    if writers == 1 and ranks > 1:
        facts["writers"] = Fact(f"rank {int(rank[0])}", "one rank writes")
    elif files == 1 and writers > 1:
        facts["writers"] = Fact("all ranks into shared file", f"{count(writers, 'rank')} write one file")
    else:
        into = "into file per rank" if files >= writers else f"one per {-(-ranks // files)} ranks"
        facts["writers"] = Fact(into, f"{count(files, 'file')} of {count(writers, 'rank')}")
    call, share = mode_of(view.bytes[writes])
    is_known = find_means(events)[writes].mean() < 0.5
    if is_known and share > 0.5 and call >= 4096 and len(writes) > 2 * saves * files:
        facts["transfer"] = Fact(format_bytes(call), "most calls that write")
    elif len(writes) > saves * files:
        facts["transfer"] = Fact(format_bytes(-(-total // len(writes))), "the mean of calls of different sizes", False)
    buffers = [number for number, name in enumerate(events.names) if "flush" in name]  # to the kernel alone
    flushed = int((own & view.basic & events.is_kind("fsync") & ~np.isin(events.name, buffers)).sum())
    facts["fsync"] = Fact("on" if flushed >= saves else "off", f"{count(flushed, 'fsync')} for {count(saves, 'save')}")
    if (share := _share_in_steps(view, writes)) > _IN_STEPS:
        facts["async"] = Fact("on", f"{percent(share, 2)} of its writes are while their rank computes")
    if saves > 1:
        facts["keep"] = _find_keep(view, own, saves, files, writes)
    cadence = _find_cadence(view, writes, rank, number, loop)
    restores, shared, doubt = _count_restores(view, own, each, ranks, files)
    whole = round(shared * each) if shared <= _EVERYTHING else 0
    kind = "whole" if writers == 1 and ranks > 1 else "total"
    sizes = _list_parts(view, writes[number == 0], call) if files == 1 and not whole else []
    sizes = sizes if len(sizes) * saves <= len(writes) and sum(sizes) * saves == total else [each - whole]
    parts = [
        Fact(f"state{place or ''} {format_bytes(size)} {kind}", why, is_counted) for place, size in enumerate(sizes)
    ]
    if whole:
        parts.append(Fact(f"shared {format_bytes(whole)} whole", "each rank has read it in a restore", is_counted))
    return SaveFacts(own, saves, restores, shared > _EVERYTHING, doubt, *cadence, parts, facts)


def _list_parts(view: View, writes: Ints, call: int) -> list[int]:
    """Return the bytes of the parts of a file: a call that is not one of those that cut parts ends one; [] if many."""
    sizes = view.bytes[writes[np.argsort(view.events.offset[writes], kind="stable")]]
    ends = np.flatnonzero(sizes != call)
    found: list[int] = np.add.reduceat(sizes, np.append(0, ends[:-1] + 1)).tolist() if len(ends) else []
    return found if 1 < len(found) <= _MOST_PARTS and ends[-1] == len(sizes) - 1 else []


def _share_in_steps(view: View, writes: Ints) -> float:
    """Return the share of some writes that begin while their rank computes."""
    computes = np.flatnonzero(view.events.is_kind("compute"))
    inside = find_spans(view, computes, view.groups_of(writes), view.events.begin[writes]) >= 0
    return float(inside.mean())


def _find_keep(view: View, own: Bools, saves: int, files: int, writes: Ints) -> Fact:
    """Return how many saves are kept, of `files` each."""
    events = view.events
    written = {events.files[number] for number in np.unique(events.file[writes]).tolist()}
    if len(written) <= files:
        return Fact("1", "each save writes the files of the one before")
    deletes = own & np.isin(events.name, [number for number, name in enumerate(events.names) if name in _DELETES])
    gone = [events.files[number].rpartition("/")[2] for number in np.unique(events.file[deletes]).tolist()]
    names = {path.rpartition("/")[2] for path in written}  # a folder may have another name by then
    deleted = sum(name in names for name in gone)
    if not deleted:
        return Fact("", f"none of {saves} saves was deleted, so all stay; more of them may show it", is_sure=False)
    return Fact(str(max(saves - deleted // files, 1)), f"{count(deleted, 'file')} of {len(written):_} were deleted")


def _count_restores(view: View, own: Bools, size: int, ranks: int, files: int) -> tuple[int, float, str]:
    """Return how often a checkpoint was read, the share of it that all ranks read, and what restores do not explain."""
    rows = np.flatnonzero(own & view.basic & view.events.is_kind("read") & (view.bytes > 0))
    if not len(rows):
        return 0, 0.0, ""
    file, offset = view.events.file[rows].astype(np.int64), view.events.offset[rows]
    (_, file, offset, moved), _ = count_by(view.groups_of(rows), file, offset, view.bytes[rows])
    (_, _, each), readers = count_by(file, offset, moved)
    shared = int(each[readers == ranks].sum()) / int(each.sum()) if ranks > 1 else 0.0
    shared = 1.0 if shared > _EVERYTHING else shared if shared > _SAME else 0.0
    total, whole = int(view.bytes[rows].sum()), max(round(size * (1 + shared * (ranks - 1))), 1)
    restores = max(round(total / whole), 1)
    is_same = abs(total - restores * whole) <= _SAME * total
    doubt = "" if is_same else f"{format_bytes(total)} were read: ranks read parts more than once, or not all of it"
    if not doubt and len(np.unique(view.events.file[rows])) > files:
        doubt = "files of several saves were read: this reads the newest save each time"
    return restores, shared if is_same else float(shared == 1), doubt


def _count_steps_before(view: View, loop: LoopFacts | None, rank: Ints, time: Ints) -> Ints:
    """Return how many steps of a loop, or of all, a rank had done at some times; (times,)."""
    events = view.events
    computes = list_inside(view, loop.spans if loop is not None else np.zeros(0, np.int64), "compute")
    own = view.groups_of(computes)
    done = np.zeros(len(time), np.int64)
    for number in np.unique(rank).tolist():
        ends = np.sort(events.end[computes[own == number]])
        done[rank == number] = np.searchsorted(ends, time[rank == number], "right")
    return done


def _number_saves(view: View, own: Bools, writes: Ints, loop: LoopFacts | None) -> Ints:
    """Return the number of the save that each write is part of, from 0.

    Saves have folders of their own, or else they open their files after other steps.
    """
    events = view.events
    folders = np.unique([path.rpartition("/")[0] for path in events.files], return_inverse=True)[1]
    order = np.unique(folders[events.file[writes]], return_inverse=True)[1].astype(np.int64)
    times, rank = events.begin[writes], view.groups_of(writes)
    first, last = np.full(order.max() + 1, times.max()), np.zeros(order.max() + 1, np.int64)
    np.minimum.at(first, order, times)
    np.maximum.at(last, order, times)
    begin = np.argsort(first)
    if len(first) == 1 or (first[begin][1:] < last[begin][:-1]).any():  # not of one save each
        if loop is None and not events.is_kind("compute").any():
            return _number_by_names(view, writes)
        opens = np.flatnonzero(own & view.basic & events.is_kind("open"))
        order = _count_steps_before(view, loop, rank, _find_openings(view, opens, writes))
    first = np.unique(order, return_index=True)[1]
    ranked = np.argsort(np.argsort(events.begin[writes[first]]))
    numbers: Ints = ranked[np.unique(order, return_inverse=True)[1]].astype(np.int64)
    return numbers


def _find_openings(view: View, opens: Ints, writes: Ints) -> Ints:
    """Return when the file of each write was last opened by its process; its own begin if it was not; (writes,)."""
    events, both = view.events, np.concatenate([opens, writes])
    is_write = np.arange(len(both)) >= len(opens)
    order = np.lexsort((is_write, events.begin[both], events.file[both], events.process[both]))
    place = np.maximum.accumulate(np.where(is_write[order], -1, np.arange(len(both))))
    opened = both[order[np.maximum(place, 0)]]
    is_own = (place >= 0) & (events.file[opened] == events.file[both[order]])
    is_own &= events.process[opened] == events.process[both[order]]
    found = np.empty(len(both), np.int64)
    found[order] = events.begin[np.where(is_own, opened, both[order])]
    return found[len(opens) :]


def _number_by_names(view: View, writes: Ints) -> Ints:
    """Return the number of the save of each write by the names of files: another by the same process is a new save.

    Such files have names that differ in numbers, and more time between them than a file takes.
    """
    events = view.events
    begin, end = events.begin[writes], events.end[writes]
    files = [rows for _, rows in group_rows(events.file[writes].astype(np.int64))]
    files.sort(key=lambda rows: int(begin[rows].min()))
    longest = max(int(end[rows].max() - begin[rows].min()) for rows in files)
    found, number, last = np.zeros(len(writes), np.int64), 0, int(begin[files[0]].min())
    seen: set[tuple[int, str]] = set()
    for rows in files:
        plain = re.sub(r"\d+", "#", events.files[events.file[writes[rows[0]]]])
        names = {(process, plain) for process in np.unique(events.process[writes[rows]]).tolist()}
        if int(begin[rows].min()) - last > longest and names & seen:
            number, seen = number + 1, set()
        found[rows], seen, last = number, seen | names, max(last, int(end[rows].max()))
    return found


def _find_cadence(view: View, writes: Ints, rank: Ints, number: Ints, loop: LoopFacts | None) -> tuple[str, bool]:
    """Return after which steps or epochs a loop saves, empty if it does not, and whether intervals are equal."""
    if loop is None or not loop.steps:
        return "", True
    done = _count_steps_before(view, loop, rank, view.events.begin[writes])
    steps = np.full(int(number.max()) + 1, done.max())
    np.minimum.at(steps, number, done)
    epoch, whole = loop.steps, loop.steps * max(loop.epochs, 1)
    if not steps.all():
        return "", True
    if len(steps) == 1 and steps[0] >= whole:
        return "at end", True
    if (steps % epoch == 0).all():
        about = whole / epoch / len(steps) if len(steps) > 1 else steps[0] / epoch
        every = max(round(about), 1)
        return f"every {count(every, 'epoch')}", bool(len(steps) == 1 or len(np.unique(np.diff(steps))) == 1)
    # In the background writes begin some steps late, so only intervals with as many saves in an epoch may be it.
    place = (steps - 1) % epoch + 1
    many = mode_of(count_by((steps - 1) // epoch)[1])[0]
    same = np.diff(steps)[np.diff((steps - 1) // epoch) == 0]
    about = float(same.mean()) if len(same) else float(place.min())
    every = min(range(epoch // (many + 1) + 1, epoch // many + 1), key=lambda one: abs(one - about), default=int(about))
    is_regular = bool((np.abs(same - every) <= max(_LATE, every / 4)).all())
    return f"every {count(max(every, 1), 'step')}", is_regular
