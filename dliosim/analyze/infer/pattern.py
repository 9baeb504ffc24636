"""The text of a pattern that does what a trace shows, each line with how sure it is and from what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.facts import Fact, Line, Setting, write_lines
from dliosim.analyze.infer.loops import LoopFacts, list_loops
from dliosim.analyze.infer.reads import DataFiles, list_data_files
from dliosim.analyze.infer.saves import SaveFacts, list_saves
from dliosim.analyze.infer.sums import spread_sums
from dliosim.analyze.read.darshan.counters import LogTrace
from dliosim.errors import TraceError
from dliosim.language.settings.phrases import write_distribution, write_size
from dliosim.model import Workload
from dliosim.model.fitted_sizes import fit_sizes
from dliosim.plan.forecast.forecast import forecast
from dliosim.readable import count, percent, printable

#: Settings of a loop in the order in which they are written.
_ORDER: Final = (*("batch", "last batch", "shard", "shuffle", "api", "transfer", "open", "readers", "compute", "sync"),)
#: What a loop of a pattern has by default, so that no line says it.
_USUAL: Final = {"shard": "by sample", "transfer": "", "last batch": "drop", "api": "posix"}
#: What sums of calls do not say.
_SUMS: Final = "the log has sums: calls in order, as by DXT or DFTracer, would show it"
_UNSEEN: Final = {
    **{head: Fact("", _SUMS, False) for head in ("batch", "shuffle", "readers", "fsync")},
    "compute": Fact("0 s", _SUMS, False),
    "shard": Fact("by sample", "", False),
}
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

    @property
    def text(self) -> str:
        """Its text."""
        return write_lines(self.lines)


def infer_pattern(view: View, keep_names: bool = False) -> InferredPattern:
    """Return the pattern of a job by its trace; TraceError if that is incomplete, or nothing was read or saved.

    With `keep_names` comments have the first and the last file of each data set.
    """
    if view.trace.incomplete:
        raise TraceError(f"{view.trace.path} is incomplete, so its job is unknown: {view.trace.incomplete[0]}")
    are_sums = isinstance(view.trace, LogTrace) and not len(view.events)
    if isinstance(view.trace, LogTrace) and are_sums:
        view = View(replace(view.trace, events=spread_sums(view.trace)))
    datasets = list_data_files(view)
    loops = list_loops(view, datasets)
    saves = list(list_saves(view, datasets, next((loop for loop in loops if loop.has_compute), None)))
    if not loops and not saves:
        raise TraceError(f"{view.trace.path} has no reads of data and no saves")
    for facts in [*(loop.facts for loop in loops), *(one.facts for one in saves)] if are_sums else ():
        facts |= {head: fact for head, fact in _UNSEEN.items() if head in facts}
    names = {id(data): f"data{number}" if number > 1 else "data" for number, data in enumerate(datasets, 1)}
    lines = tuple(_list_lines(view, datasets, loops, saves, names, keep_names))
    ranks = len({one.rank for one in view.events.processes if one.rank >= 0}) or len(view.groups)
    return InferredPattern(lines, _measure_work(view, datasets, saves), ranks)


def _list_lines(
    view: View,
    datasets: Sequence[DataFiles],
    loops: Sequence[LoopFacts],
    saves: Sequence[SaveFacts],
    names: dict[int, str],
    keep_names: bool,
) -> Iterator[Line]:
    yield f"# What a job did by its trace ({view.trace.source}): each line says from what, and `?` marks guesses"
    yield "dlio 1"
    yield 'workload NAME "as in a trace"'
    for data in datasets:
        yield ""
        if keep_names:
            yield from (f"# {printable(path)}" for path in dict.fromkeys([data.paths[0], data.paths[-1]]))
        yield f"dataset {names[id(data)]} {{"
        yield from _lines_of(_describe_files(data, f"NAME/{names[id(data)]}"))
        yield "}"
    kept = {id(one): f"model{number}" if number > 1 else "model" for number, one in enumerate(saves, 1)}
    for one in saves:
        yield ""
        yield f"checkpoint {kept[id(one)]} {{"
        yield from _lines_of(one.facts)
        yield Setting("path", Fact(f'"NAME/{kept[id(one)]}"', ""))
        yield "}"
    yield ""
    for data in datasets:
        yield f"prepare {names[id(data)]}"
    if datasets:
        yield "drop caches"
    main = next((loop for loop in loops if loop.has_compute), None)
    inner = {id(other): outer for outer in loops for other in loops if _is_within(view, other, outer)}
    for number, loop in enumerate(loops):
        if id(loop) in inner:
            continue
        yield ""
        yield f"train{f' loop{number + 1}' if number else ''} {{"
        yield from _loop_lines(loop, names)
        for one in saves if loop is main else ():
            if one.cadence:
                yield Setting("checkpoint", Fact(f"{kept[id(one)]} {one.cadence}", count(one.saves, "save")))
        for other in loops:
            if inner.get(id(other)) is loop:
                every = max(round(loop.epochs / max(other.epochs, 1)), 1)
                yield f"    evaluate loop{list(loops).index(other) + 1} every {count(every, 'epoch')} {{"
                inside = _loop_lines(replace(other, facts=_drop_epochs(other)), names)
                yield from (replace(line, indent=8) for line in inside)
                yield "    }"
        yield "}"
    for one in saves:
        if not one.cadence:
            yield from _repeat([f"save {kept[id(one)]}"], one.saves)
        if one.restores:
            everything = ["    reads everything", "}"] if one.reads_everything else []
            block = [f"restore {kept[id(one)]}{' {' * bool(everything)}", *everything]
            yield from _repeat(block, one.restores)


def _drop_epochs(loop: LoopFacts) -> dict[str, Fact]:
    return {head: fact for head, fact in loop.facts.items() if head != "epochs"}


def _repeat(lines: Sequence[str], times: int) -> Iterator[str]:
    yield from [f"repeat {times} {{", *(f"    {line}" for line in lines), "}"] if times > 1 else lines


def _describe_files(data: DataFiles, path: str) -> dict[str, Fact]:
    files, reads = len(data.paths), data.reads
    first = np.unique(reads.sample, return_index=True)[1]
    size, error = fit_sizes(reads.size[first].astype(np.float64))
    layout = "file per sample" if data.is_whole else "shared file" if files == 1 else count(files, "file")
    if data.folders > 1 and layout != "shared file":
        layout += f" in {data.folders} folders"
    seen = f"{len(first):_} were read"
    varied = f"differ from this by {percent(error, 2)} of samples at most"
    why = "as read" if size.is_constant else varied
    if data.is_divided:
        why = "the greatest size that divides all calls"
    if not data.is_seen:
        why = "calls that are not in the trace have read more: it moves in the files beyond its reads"
    return {
        "samples": Fact(f"{data.samples}", seen),
        "size": Fact(write_distribution(size, write_size), why, data.is_seen and not data.is_divided),
        "layout": Fact(layout, f"{count(files, 'file')}, read {'whole' if data.is_whole else 'in part'}"),
        "format": Fact("raw", f"files end with {data.suffix or 'nothing'}: as many bytes, whatever is in them", False),
        "path": Fact(f'"{path}"', ""),
    }


def _loop_lines(loop: LoopFacts, names: dict[int, str]) -> Iterator[Setting]:
    data = loop.data
    if data is not None:
        yield Setting("read", Fact(names[id(data)], ""))
    if "epochs" in loop.facts:
        yield Setting("epochs", loop.facts["epochs"])
    for head in _ORDER:
        fact = loop.facts.get(head)
        if fact is not None and fact.value != _USUAL.get(head, None):
            yield Setting(head, fact)
    if data is None and loop.steps:
        yield Setting("steps", Fact(str(loop.steps), "steps of the trace"))
    elif data is not None and (limit := _find_step_limit(loop, data)):
        yield Setting("steps", Fact(str(limit), "steps of the trace; the data would last for more"))


def _find_step_limit(loop: LoopFacts, data: DataFiles) -> int:
    """Return the steps of an epoch if the data would last for more; 0 otherwise."""
    batch = loop.facts["batch"].value.partition(" ")[0]
    ranks = 1 if loop.facts.get("shard", Fact("", "")).value == "off" else len(np.unique(data.reads.rank))
    lasts = data.samples // (int(batch) * ranks) if batch else 0
    return loop.steps if 0 < loop.steps < lasts else 0


def _lines_of(facts: dict[str, Fact]) -> Iterator[Setting]:
    return (Setting(head, fact) for head, fact in facts.items())


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
    is_data, is_saved = np.zeros(len(events), np.bool_), np.zeros(len(events), np.bool_)
    paths = {path for data in datasets for path in data.paths}
    is_data = np.array([path in paths for path in events.files] + [False])[events.file]
    for one in saves:
        is_saved |= one.rows
    used = {"loop": reads & is_data, "save": writes & is_saved, "restore": reads & is_saved}
    other = (reads | writes) & ~is_data & ~is_saved
    parts = {verb: (float(moved[rows].sum(dtype=float)), float(rows.sum())) for verb, rows in used.items()}
    parts["other"] = float(moved[other].sum(dtype=float)), float(other.sum())
    with_files = view.operations & (events.file >= 0)
    files = [len(np.unique(events.file[with_files & some])) for some in (is_data | is_saved, True)]
    return Work(parts, files[0] / max(files[1], 1))


def explain_work(work: Work, workload: Workload) -> dict[str, float]:
    """Return the shares of the bytes, the calls and the files of a trace that a workload has, by its plan."""
    planned: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for phase in forecast(workload).phases:
        verb = phase.verb if phase.verb in ("save", "restore") else "loop" if phase.verb in _LOOPS else ""
        for place, figure in enumerate((phase.bytes, phase.calls)):
            planned[verb][place] += figure.total * phase.times
    shares = {}
    for place, what in enumerate(("bytes", "calls")):
        every = sum(amounts[place] for amounts in work.parts.values())
        same = sum(min(amounts[place], planned[verb][place]) for verb, amounts in work.parts.items() if verb != "other")
        shares[what] = same / every if every else 1.0
    return {**shares, "files": work.files}
