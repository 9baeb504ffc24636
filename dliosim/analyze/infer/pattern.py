"""The text of a pattern that does what a trace shows, each line with how sure it is and from what."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, group_rows
from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.data_files import DataFiles, list_data_files
from dliosim.analyze.infer.facts import Block, Fact, Line, Setting
from dliosim.analyze.infer.loops import LoopFacts, list_loops
from dliosim.analyze.infer.reads import count_at_once, count_by, lanes_of
from dliosim.analyze.infer.saves import SaveFacts, list_saves
from dliosim.analyze.infer.sums import spread_sums
from dliosim.analyze.read.darshan.counters import LogTrace
from dliosim.errors import HELP, TraceError
from dliosim.formats.registry import bind
from dliosim.language.settings.phrases import write_distribution, write_size
from dliosim.model import ELEMENTS, Columns, Dataset, Distribution, Workload, constant
from dliosim.model.fitted_sizes import fit_sizes
from dliosim.plan.forecast.forecast import forecast
from dliosim.readable import count, percent, printable
from dliosim.readable import size as bytes_of

#: Settings of a loop in the order in which they are written.
_ORDER: Final = (
    *("epochs", "requests", "batch", "last batch", "shard", "shuffle", "api", "engine", "transfer", "open", "readers"),
    *("compute", "sync"),
)
#: What a loop of a pattern has by default, so that no line says it.
_USUAL: Final = {"shard": "by sample", "transfer": "", "last batch": "drop", "api": "posix"}
#: Parts of a run that `--trace` may record alone.
_PART: Final = re.compile(r"--trace[ =]['\"]?[^-'\"]*\b(epochs?|steps?|ranks?) \d")
#: What sums of calls do not say.
_SUMS: Final = "the log has sums: calls in order, as by DXT or DFTracer, would show it"
_UNSEEN: Final = {
    **{head: Fact("", _SUMS, False) for head in ("batch", "shuffle", "readers", "fsync")},
    "compute": Fact("0 s", _SUMS, False),
}
#: The share of a data set's writes within the reads of another from which on it is made of that.
_MOSTLY: Final = 0.8
#: A distribution of sizes that differs for this share of samples at most is sure.
_NEAR: Final = 0.1
#: Columns of one width next to each other are a run; a pattern has at most this many.
_MOST_RUNS: Final = 64
#: Verbs of loops.
_LOOPS: Final = ("train", "evaluate", "infer")


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a trace, but for the writes that made its data sets."""

    parts: dict[str, tuple[float, float]]  #: bytes and calls of loops, saves, restores and other files
    files: float  #: share of its files that are of data sets and checkpoints


@dataclass(frozen=True, slots=True)
class InferredPattern:
    """A pattern out of a trace."""

    lines: Sequence[Line]  #: its lines, with `NAME` for its name
    work: Work  #: what the trace did
    ranks: int  #: ranks of the trace
    makes_data: bool  #: the trace has writes that made data sets


def infer_pattern(view: View, keep_names: bool = False) -> InferredPattern:
    """Return the pattern of a job by its trace; TraceError if that is incomplete, or nothing was read or saved.

    With `keep_names` comments have the first and the last file of each data set.
    """
    if view.trace.incomplete:
        raise TraceError(
            f"{view.trace.path} is incomplete, so its job is unknown: {view.trace.incomplete[0]}"
            f"{HELP}record the job again; `dliosim analyze {view.trace.path}` shows what the trace has"
        )
    if view.trace.source == "dliosim" and _PART.search(view.trace.command):
        text = f"{view.trace.path} has a part of a run, by `{view.trace.command}`"
        raise TraceError(f"{text}{HELP}record the whole run, by `--trace` alone")
    are_sums = isinstance(view.trace, LogTrace) and not len(view.events)
    if isinstance(view.trace, LogTrace) and are_sums:
        view = View(replace(view.trace, events=spread_sums(view.trace)))
    are_ranks = len(view.groups) == 1 or any(one.rank >= 0 for one in view.events.processes)
    datasets = list_data_files(view)
    if not are_ranks and _have_workers(view, datasets):
        processes = tuple(replace(one, rank=0) for one in view.events.processes)
        view = View(replace(view.trace, events=replace(view.events, processes=processes)))
        datasets = list_data_files(view)
    loops = list_loops(view, datasets)
    datasets = [data for loop in loops if loop.sources is not None for data in loop.sources.members]
    saves = list(list_saves(view, datasets, next((loop for loop in loops if loop.has_compute), None)))
    if not loops and not saves:
        raise TraceError(_explain_nothing(view))
    _mark_doubts(view, loops, saves, are_sums, are_ranks)
    lines = tuple(_list_lines(view, datasets, loops, saves, keep_names, are_sums))
    makes_data = any(data.were_written for data in datasets)
    return InferredPattern(lines, _measure_work(view, datasets, saves), view.ranks, makes_data)


def _mark_doubts(
    view: View, loops: Sequence[LoopFacts], saves: Sequence[SaveFacts], are_sums: bool, are_ranks: bool
) -> None:
    """Mark the facts of loops and saves that a log without calls, or without ranks, cannot know."""
    for loop in () if are_ranks else loops:
        if "readers" in loop.facts:
            why = f"{loop.facts['readers'].why}; no process has a rank, so they may be ranks or their readers"
            loop.facts["readers"] = replace(loop.facts["readers"], why=why, is_sure=False)
    for one in () if are_ranks else saves:
        if "writers" in one.facts:
            one.facts["writers"] = replace(one.facts["writers"], is_sure=False)
    for one in saves if are_sums else ():
        one.parts[:] = [replace(fact, is_sure=False) for fact in one.parts]
    for facts in [*(loop.facts for loop in loops), *(one.facts for one in saves)] if are_sums else ():
        facts |= {head: _weaken(head, fact) for head, fact in facts.items()}
    writes = view.basic & view.events.is_kind("write")
    for loop in loops if isinstance(view.trace, LogTrace) else ():
        if loop.data is not None and (writes & _are_on(view, loop.data.paths)).any():
            fact = loop.facts["open"]
            loop.facts["open"] = replace(fact, why=f"{fact.why}; those to write count, too", is_sure=False)


def _weaken(head: str, fact: Fact) -> Fact:
    """Return a fact that is out of sums."""
    if head in _UNSEEN:
        return _UNSEEN[head]
    if head == "epochs":
        return Fact(fact.value, "bytes read of each file, by the last of its bytes that was read", False)
    if head == "shard":
        return replace(fact, is_sure=False) if fact.value == "off" else Fact("by sample", "", False)
    return fact


def _explain_nothing(view: View) -> str:
    """Return the message for a trace without work that a pattern can do."""
    reads, writes = (int(view.bytes[view.basic & view.events.is_kind(kind)].sum()) for kind in ("read", "write"))
    text = f"{view.trace.path} has no reads of data and no saves"
    if reads + writes:
        text += f": it reads {bytes_of(reads, 3)} of programs and settings"
        text += f", and writes {bytes_of(writes, 3)} that are no checkpoint"
    known = "checkpoints are known by names such as ckpt or .pt, or by a loop with compute that writes them"
    return f"{text}{HELP}`dliosim analyze {view.trace.path}` shows what it did; {known}"


def _have_workers(view: View, datasets: Sequence[DataFiles]) -> bool:
    """Return whether some processes do not read while all others do, so that not all are ranks."""
    process, begin, end = (
        np.concatenate([getattr(data.reads, name) for data in datasets]) if datasets else np.zeros(0, np.int64)
        for name in ("lane", "begin", "end")
    )
    spans = [(int(begin[rows].min()), int(end[rows].max())) for _, rows in group_rows(process >> 32)]
    return 0 < len(spans) < len(view.events.processes) or (len(spans) > 1 and count_at_once(spans) < len(spans))


def _list_lines(
    view: View,
    datasets: Sequence[DataFiles],
    loops: Sequence[LoopFacts],
    saves: Sequence[SaveFacts],
    keep_names: bool,
    are_sums: bool,
) -> Iterator[Line]:
    """Yield the lines of a pattern."""
    names = {id(data): f"data{number}" if number > 1 else "data" for number, data in enumerate(datasets, 1)}
    names |= {id(one): f"model{number}" if number > 1 else "model" for number, one in enumerate(saves, 1)}
    yield f"# From a trace ({view.trace.source}): each comment says what its line follows from; `?` marks guesses"
    others = "" if view.trace.source == "dliosim" else ", nor reads of mapped files"
    yield f"# No trace shows how far a loop reads ahead (`prefetch`){others}."
    yield "dlio 1"
    yield 'workload NAME "as in a trace"'
    made_of = {id(loop): made for loop in loops if (made := _find_converted(view, loop, datasets)) is not None}
    readers = [one.sources.members for one in loops if one.sources and id(one) not in made_of]
    alone = {id(members[0]) for members in readers if len(members) == 1}
    for data in datasets:
        yield ""
        if keep_names:
            yield f"# {count(len(data.paths), 'file')}, from {printable(data.paths[0])}"
            yield from (f"# to {printable(path)}" for path in data.paths[1:][-1:])
        facts = _describe_files(data, f"NAME/{names[id(data)]}", id(data) in alone)
        if are_sums and not data.is_whole:
            why = f"{facts['samples'].why}, if the epochs are right"
            facts["samples"] = replace(facts["samples"], why=why, is_sure=False)
        yield Block(f"dataset {names[id(data)]}", [Setting(*each) for each in facts.items()])
    for one in saves:
        path = "path", Fact(f'"NAME/{names[id(one)]}"', "")
        each = [*(("part", fact) for fact in one.parts), *one.facts.items(), path]
        yield from ("", Block(f"checkpoint {names[id(one)]}", [Setting(*setting) for setting in each]))
    yield ""
    converted = {id(data) for data in made_of.values()}
    yield from (f"prepare {names[id(data)]}" for data in datasets if id(data) not in converted)
    if datasets:
        yield "drop caches"
    inner = {id(other): outer for outer in loops for other in loops if _is_within(view, other, outer)}
    inner = {key: inner.get(id(outer), outer) for key, outer in inner.items()}  # evaluations have none of their own
    main = next((loop for loop in loops if loop.has_compute), None)
    for number, loop in enumerate(loops, 1):
        if id(loop) in made_of:
            yield from ("", f"convert {names[id(loop.data)]} to {names[id(made_of[id(loop)])]}")
        elif id(loop) not in inner:
            kind = "infer" if "requests" in loop.facts else "train"
            lines: list[Line] = [*_list_settings(loop, names), *_list_cadences(saves if loop is main else (), names)]
            for at, other in enumerate(loops, 1):
                if inner.get(id(other)) is loop:
                    lines += _list_evaluation(f"loop{at}", other, loop, names)
            yield from ("", Block(f"{kind} loop{number}" if number > 1 else kind, lines))
    for one in saves:
        if not one.cadence or one.restores:
            yield ""
        yield from _list_saves(one, names[id(one)])


def _list_cadences(saves: Iterable[SaveFacts], names: Mapping[int, str]) -> Iterator[Line]:
    """Yield the lines of the checkpoints that a loop saves."""
    for one in saves:
        if one.cadence:
            fact = Fact(f"{names[id(one)]} {one.cadence}", count(one.saves, "save"), one.is_regular)
            yield Setting("checkpoint", fact)


def _list_evaluation(name: str, one: LoopFacts, outer: LoopFacts, names: Mapping[int, str]) -> Iterator[Line]:
    """Yield the lines of a loop between the epochs of another."""
    every = max(round(outer.epochs / max(one.epochs, 1)), 1)
    if outer.epochs != every * one.epochs:
        yield f"# ? {count(one.epochs, 'evaluation')} in {count(outer.epochs, 'epoch')}"
    facts = {head: fact for head, fact in one.facts.items() if head != "epochs"}
    settings = [*_list_settings(replace(one, facts=facts), names)]
    yield Block(f"evaluate {name} every {count(every, 'epoch')}", settings)


def _list_saves(one: SaveFacts, name: str) -> Iterator[Line]:
    """Yield the saves that no loop has, and the restores."""
    if not one.cadence:
        yield from _repeat([f"save {name}"], one.saves)
    if one.restores:
        head, doubt = f"restore {name}", [f"# ? {one.restore_doubt}"] if one.restore_doubt else []
        restore: Line = Block(head, ["reads everything"]) if one.reads_everything else head
        yield from _repeat([*doubt, restore], one.restores)


def _find_converted(view: View, loop: LoopFacts, datasets: Sequence[DataFiles]) -> DataFiles | None:
    """Return the data set that was written while a loop without epochs and steps read another one."""
    if loop.sources is None or len(loop.sources.members) > 1 or loop.has_compute or len(loop.spans):
        return None
    source = loop.sources.data
    begin, end = int(source.reads.begin.min()), int(source.reads.end.max())
    for data in (one for one in datasets if one is not source and one.samples == source.samples):
        writes = np.flatnonzero(_are_on(view, data.paths) & view.basic & view.events.is_kind("write"))
        times = view.events.begin[writes]
        if len(writes) and float(((times > begin) & (times < end)).mean()) > _MOSTLY:
            return data
    return None


def _are_on(view: View, paths: Iterable[str]) -> Bools:
    """Return which events are on some files."""
    some = set(paths)
    found: Bools = np.array([path in some for path in view.events.files] + [False])[view.events.file]
    return found


def _repeat(lines: Sequence[Line], times: int) -> Sequence[Line]:
    return [Block(f"repeat {times}", lines)] if times > 1 else lines


def _describe_files(data: DataFiles, path: str, is_alone: bool) -> dict[str, Fact]:
    """Return the settings of a data set; `is_alone`: its loop may read some columns, as it reads no other data set."""
    files, reads = len(data.paths), data.reads
    first = np.unique(reads.sample, return_index=True)[1]
    size, error = fit_sizes(reads.size[first].astype(np.float64))
    layout = "file per sample" if data.is_whole else "shared file" if files == 1 else count(files, "file")
    if data.folders > 1 and layout != "shared file":
        layout += f" in {data.folders} folders"
    are_calls = data.samples == len(first) and data.are_placed and not data.is_divided
    is_counted = data.is_whole or data.is_counted or are_calls
    seen = f"{len(first):_} {'was' if len(first) == 1 else 'were'} read"
    if not data.are_placed:
        seen = f"{count(len(first), 'read')} in an epoch, by calls without offsets"
    if data.is_counted:
        seen = f"counted in the files; {seen}"
    elif data.are_placed and data.samples != len(first) and not data.is_whole:
        seen = f"from the bytes that were written; {seen}"
    varied = f"the nearest distribution: its shares of sizes differ by {percent(error, 2)} at most"
    spread = float(np.ptp(reads.size)) / float(reads.size.mean())
    is_near = error <= _NEAR or spread <= _NEAR
    if error > _NEAR >= spread:
        varied = f"the sizes differ by {percent(spread, 2)} of their mean at most"
    is_sure = data.is_seen and data.is_sized and not data.is_divided and is_near
    why = varied if error else "as read"
    if data.is_divided:
        why = "the greatest size that divides all calls"
    if not data.is_sized:
        why = "the mean of what was read: calls do not show the bytes of each"
    if not data.is_seen:
        why = "calls that are not in the trace have read more: it moves in the files beyond its reads"
    found = data.contents
    held = float(found.size.mean()) if found is not None and len(found.size) and found.samples == data.samples else 0.0
    if (mean := float(reads.size.mean())) < _MOSTLY * held:
        why, is_sure = f"as read, {percent(mean / held, 2)} of what the files have: a tracer may miss calls", False
    how = "whole" if data.is_whole else "in part"
    are_known = data.were_written or len(np.unique(reads.file)) == files  # others may be no data
    form = _find_format(data, size, is_alone)
    sizes = {"size": Fact(write_distribution(size, write_size), why, is_sure and not data.doubt)}
    return {
        "samples": Fact(
            f"{data.samples}", f"{seen}; {data.doubt}" if data.doubt else seen, is_counted and not data.doubt
        ),
        **({} if "columns" in form else sizes),  # columns give it
        "layout": Fact(layout, f"{count(files, 'file')}, read {how}", are_known and not (data.is_whole and data.doubt)),
        **form,
        "path": Fact(f'"{path}"', ""),
    }


def _find_format(data: DataFiles, size: Distribution, is_alone: bool) -> dict[str, Fact]:
    """Return format, chunk and columns of files that are here, if the samples read are theirs; `raw` otherwise."""
    ending, found = f"format unknown (files end with {data.suffix or 'nothing'})", data.contents
    if found is not None and found.dataset.format != "raw":
        table, made = _make_table(data, is_alone), _make_like(found.dataset, size)
        if table or (found.samples == data.samples and data.is_sized and bind(made).refuse() is None):
            why = "as in the files" if found.are_even else "the largest in the files: others have fewer samples"
            chunk = {"chunk": Fact(f"{made.chunk.number} samples", why, found.are_even)} if made.chunk else {}
            return {"format": Fact(made.format, "as the first file is"), **chunk, **_describe_columns(data, table)}
        ending = f"files are {made.format}, with {count(found.samples, 'sample')} in all"
    return {"format": Fact("raw", f"{ending}: same sizes, any contents", False)}


def _make_like(dataset: Dataset, size: Distribution) -> Dataset:
    """Return a data set to prepare that is like existing files."""
    return replace(dataset, source="", found="", counts=None, names=(), size=size)


def _make_table(data: DataFiles, is_alone: bool) -> Dataset | None:
    """Return a table like that of the files, first the columns that were read; None if none can be made.

    The others are one column, or none if the loop reads other data sets, too, as it then reads all columns.
    """
    found = data.contents
    if found is None or found.table is None or data.columns is None or found.samples != data.samples:
        return None
    exact, unread = found.table.widths[data.columns], found.table.widths[~data.columns]
    widths = np.maximum(np.rint(exact), 1).astype(np.int64).tolist()
    if len(list(groupby(widths))) > _MOST_RUNS:
        widths.sort()
    runs = [(width, len(list(same))) for width, same in groupby(widths)]
    if len(runs) > _MOST_RUNS or abs(sum(widths) - exact.sum()) > _NEAR * exact.sum():
        return None  # such as columns of bits
    columns = [_columns_of(many, width) for width, many in runs]
    if is_alone and len(unread):
        columns.append(Columns(1, "int8", max(round(float(unread.sum())), 1)))
    made = _make_like(found.dataset, constant(float(sum(one.number * one.width for one in columns))))
    made = replace(made, columns=tuple(columns), parts=sum(one.number for one in columns))
    return made if bind(made).refuse() is None else None


def _columns_of(number: int, width: int) -> Columns:
    """Return columns with `width` bytes a row."""
    element = f"int{8 * width}"
    return Columns(number, element) if element in ELEMENTS else Columns(number, "int8", width)


def _describe_columns(data: DataFiles, table: Dataset | None) -> dict[str, Fact]:
    """Return the columns of a table."""
    if table is None or data.columns is None:
        return {}
    texts = [f"{one.number} of " + f"{one.length} x " * (one.length > 1) + one.element for one in table.columns]
    others = ", the others as one" if table.parts > data.columns.sum() else ""
    why = f"{data.columns.sum()} of {count(len(data.columns), 'column')} were read{others}; types by their bytes"
    return {"columns": Fact(", ".join(texts), why)}


def _list_settings(loop: LoopFacts, names: Mapping[int, str]) -> Iterator[Setting]:
    """Yield the settings of a loop that are not those by default."""
    data, sources = loop.data, loop.sources
    if sources is not None:
        yield Setting("read", sources.name(names))
        (first, *others) = sources.members
        if not others and first.columns is not None and not first.columns.all() and _make_table(first, True):
            yield Setting("columns", Fact(f"{first.columns.sum()}", "those that were read"))
    for head in _ORDER:
        fact = loop.facts.get(head)
        if fact is not None and (fact.value != _USUAL.get(head) or (fact.why and not fact.is_sure)):
            yield Setting(head, fact)
    if "requests" in loop.facts:  # which say how many steps there are
        return
    if loop.steps and (sources is None or sources.weights):
        yield Setting("steps", Fact(str(loop.steps), "steps of the trace"))
    elif data is not None and (limit := _find_step_limit(loop, data)):
        is_sure = data.are_placed and not data.doubt
        yield Setting("steps", Fact(str(limit), "steps of the trace; the data would last for more", is_sure))


def _find_step_limit(loop: LoopFacts, data: DataFiles) -> int:
    """Return the steps of an epoch if the data would last for more; 0 otherwise."""
    batch = loop.facts["batch"].value.partition(" ")[0]
    ranks = 1 if loop.facts.get("shard", Fact("", "")).value == "off" else len(np.unique(data.reads.rank))
    lasts = data.samples // (int(batch) * ranks) if batch else 0
    return loop.steps if 0 < loop.steps < lasts else 0


def _is_within(view: View, other: LoopFacts, outer: LoopFacts) -> bool:
    """Return whether a loop is done between the epochs of another, as evaluations are."""
    if other is outer or not len(other.spans) or not len(outer.spans) or other.epochs > outer.epochs:
        return False
    begin, last = view.events.begin[other.spans].min(), view.events.begin[outer.spans].max()
    first = view.events.end[outer.spans].min()
    # After a single epoch nothing tells an evaluation from a loop of its own: they do the same.
    is_single = outer.epochs == other.epochs == 1 and outer.data is not None and other.data is not None
    return bool(begin >= first and (begin <= last or is_single))


def _measure_work(view: View, datasets: Sequence[DataFiles], saves: Sequence[SaveFacts]) -> Work:
    """Return the work of a trace: that of data sets and checkpoints, by verbs, and all of it."""
    events, moved = view.events, view.bytes
    reads, writes = (view.basic & events.is_kind(kind) & (moved > 0) for kind in ("read", "write"))
    is_saved = np.zeros(len(events), np.bool_)
    is_data = _are_on(view, [path for data in datasets for path in data.paths])
    for one in saves:
        is_saved |= one.rows
    used = {"loop": reads & is_data, "save": writes & is_saved, "restore": reads & is_saved}
    used["other"] = (reads | writes) & ~is_data & ~is_saved
    parts = {verb: (float(moved[rows].sum(dtype=float)), _count_calls(view, rows)) for verb, rows in used.items()}
    with_files = view.operations & (events.file >= 0)
    files = [len(np.unique(events.file[with_files & some])) for some in (is_data | is_saved, True)]
    return Work(parts, files[0] / max(files[1], 1))


def _count_calls(view: View, is_used: Bools) -> float:
    """Return the calls of some events: a copy from several mapped files has a row for each, and is one."""
    rows = np.flatnonzero(is_used & view.copies)
    copies = count_by(lanes_of(view, rows), view.events.begin[rows])[1]
    return float(is_used.sum() - len(rows) + len(copies))


def explain_work(work: Work, workload: Workload) -> dict[str, float]:
    """Return the shares of the bytes, the calls and the files of a trace that a workload has, by its plan."""
    planned: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for phase in forecast(workload).phases:
        is_loop = phase.verb in _LOOPS or (phase.verb == "convert" and phase.when)  # what a conversion reads
        verb = phase.verb if phase.verb in ("save", "restore") else "loop" if is_loop else ""
        moved = phase.bytes.total * (phase.amplification or 1.0)  # encoded units are read whole
        for place, figure in enumerate((moved, phase.calls.total)):
            planned[verb][place] += figure * phase.times
    shares = {}
    for place, what in enumerate(("bytes", "calls")):
        every = sum(amounts[place] for amounts in work.parts.values())
        same = sum(min(amounts[place], planned[verb][place]) for verb, amounts in work.parts.items() if verb != "other")
        shares[what] = same / every if every else 1.0
    return {**shares, "files": work.files}
