"""The tables of `dliosim plan`: amounts, what storage must deliver, memory, disk, checkpoints; reads as CSV."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TextIO

from dliosim.model import Background, Checkpoint, Loop, Pace, Transformer, Workload
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast.forecast import loops_of
from dliosim.plan.forecast.forecast_types import Demand, Forecast, Listing, PhaseForecast, StateForecast
from dliosim.plan.forecast.interval_forecast import StateRisks
from dliosim.readable import ABSENT, count, long_time, number, percent, seconds, size
from dliosim.report.interval_table import IntervalRow, explain_intervals, interval_table
from dliosim.report.text_table import WIDTH, align_rows, grid

#: Of more parts than this, only the sum of their bytes is shown.
_MOST_PARTS = 6

#: Bytes of a checkpoint from which on they are given in GiB, too.
_LARGE = 1e9

_COPIES = {
    "once": "one copy of what data-parallel ranks share",
    "dealt": "what data-parallel ranks share is written by each of them in turn",
    "all": "what data-parallel ranks share is written by each of them",
}


_UNKNOWN = (
    "{names}: nothing says how long the copy to buffers holds the ranks (-), so what is lost is without it, and "
    "more in fact: `staging` in the pattern or --save-time says it."
)


def risk_tables(mtbf: float, found: list[StateRisks]) -> str:
    """Return the tables of save intervals of each checkpoint, or a line that the pattern saves none."""
    if not found:
        return "how often to save: the pattern saves no checkpoint"
    rows = [_interval_rows(one) for one in found]
    tables = [interval_table(_title(mtbf, one), "bandwidth", each) for one, each in zip(found, rows, strict=True)]
    explained = explain_intervals([row for each in rows for row in each])
    unknown = [one.state.checkpoint for one in found if not one.knows_stall]
    smaller = [
        f"{one.state.checkpoint}: the interval is that of all of it on {count(one.ranks, 'rank')}. The rest of this "
        f"plan is of only {one.part_of}, whose saves do not tell the time of a whole one."
        for one in found
        if one.part_of
    ]
    notes = [*smaller, explained, *([_UNKNOWN.format(names=", ".join(unknown))] if unknown else [])]
    return "\n\n".join([*tables, "\n".join(textwrap.fill(note, WIDTH) for note in notes)])


def _interval_rows(one: StateRisks) -> list[IntervalRow]:
    """Return a row for each bandwidth and each interval of the checkpoint's own."""
    return [
        IntervalRow(f"{size(risk.bandwidth)}/s" if risk.bandwidth else "as given", risk.costs, own, one.knows_stall)
        for risk in one.risks
        for _, own in one.own or [("", None)]
    ]


def _title(mtbf: float, one: StateRisks) -> str:
    own = " or ".join(f"{text} of compute, {seconds(time)}" if text else seconds(time) for text, time in one.own)
    saved = f"{one.state.checkpoint} ({size(one.state.bytes)})"
    text = f"how often to save {saved} if the job fails every {long_time(mtbf)}"
    return f"{text} on average" + (f"; its own interval: {own}" if own else "")


def _rows(workload: Workload, forecast: Forecast, state: StateForecast) -> Iterator[tuple[str, str]]:
    checkpoint = workload.checkpoint(state.checkpoint)
    if checkpoint.model is not None:
        yield "model", _model(checkpoint.model)
    split = checkpoint.split(forecast.ranks)
    if checkpoint.parallel is not None:
        there = f"; {split.present_ranks} of these {split.ranks} ranks take part" if split.played else ""
        order = "" if split.order == "tp-dp-pp" else f", order {split.order}"
        yield "split", f"tensor {split.tensor} x pipeline {split.pipeline} x data {split.data}{order}{there}"
    shown = _format_bytes if state.bytes >= _LARGE else size
    parts, whole = [f"{name} {shown(value)}" for name, value in state.contents], shown(state.bytes)
    yield "contents", f"{', '.join(parts)}: {whole}" if 1 < len(parts) <= _MOST_PARTS else whole
    yield "files", " + ".join(f"{number} {kind}".rstrip() for kind, number in state.files)
    yield "written by", _writers(checkpoint, forecast.ranks, state.writers)
    if waves := state_files(checkpoint, split).waves():
        yield "turns", f"at most {checkpoint.at_most} of these at a time: {waves} one after the other"
    if checkpoint.background is not None:
        yield "in background", _background(checkpoint.background, state)
    if checkpoint.serialize is not None:
        yield "serialized", _pace(checkpoint.serialize, state.most)
    if checkpoint.drain is not None:
        yield "drained to", f"root {checkpoint.drain}"
    if checkpoint.partner is not None:
        yield "partner", f"rank r + {checkpoint.partner} keeps what rank r saved: the same bytes again"


def _model(model: Transformer) -> str:
    digits = f"{model.parameters:,}".replace(",", " ")
    text = f"{model.name}, {digits} parameters: weights {model.weights}, "
    text += "no optimizer" if model.optimizer == "none" else f"{model.optimizer} in {model.state}"
    text += f", ZeRO {model.zero}" if model.zero else ""
    return text + (f"; 1/{model.scale} of its bytes" if model.scale > 1 else "")


def _writers(checkpoint: Checkpoint, ranks: int, writing: int) -> str:
    writers = checkpoint.writers
    how = {
        "file per rank": "each rank its own files",
        "shared file": "one file together",
        "one per": f"one rank of each {writers.number} for all of these",
        "rank": f"rank {writers.number} for all",
    }[writers.kind]
    split = checkpoint.split(ranks)
    # Flat state is divided among all ranks. So only tensors have copies.
    tensors = any(part.scope not in ("total", "per rank") for part in checkpoint.parts_for(split))
    copies = f"; {_COPIES[checkpoint.replicas]}" if tensors and split.data > 1 else ""
    return f"{writing} of {count(ranks, 'rank')}, {how}{copies}"


def _background(background: Background, state: StateForecast) -> str:
    buffers = f"buffers of {size(state.most * background.in_flight)} on the rank that saves most"
    held = "no buffers (simulated)" if background.simulated else buffers
    pace = f", copied {_pace(background.staging, state.most)}" if background.staging else ""
    return f"{count(background.in_flight, 'save')} in flight at most, {held}{pace}"


def _pace(pace: Pace, most: int) -> str:
    if pace.bytes_per_second is None:
        return f"in {seconds(pace.seconds)}"
    return f"at {size(pace.bytes_per_second)}/s, {seconds(pace.duration(most))} on the rank that saves most"


def _format_bytes(value: int) -> str:
    """Return bytes in powers of 1000 and in GiB, as checkpoints of models are published."""
    return f"{size(value)} ({number(value / 2**30)} GiB)"


_KINDS = {"dataset": "data set", "sidecar": "index", "copy": "copy of", "checkpoint": "checkpoint"}

_SIDECARS = (
    "{}: each file of the data set has a small index file next to it, for readers of this format; files, opens and "
    "calls above include it."
)


def plan_tables(workload: Workload, forecast: Forecast) -> str:
    """Return the whole forecast as text, at most 120 columns wide."""
    sections = [
        f"{workload.title or workload.name}; digest {forecast.digest}",
        _amount_table(forecast),
        _rank_table(forecast),
        _demand_table(workload, forecast),
        *(
            f"checkpoint {state.checkpoint}\n{align_rows(list(_rows(workload, forecast, state)))}"
            for state in forecast.states
        ),
        _storage_table(forecast),
        _memory_text(forecast),
    ]
    figures = attrgetter("samples", "bytes", "files", "opens", "calls")
    if any(spread.estimated for phase in forecast.phases for spread in figures(phase)):
        sections.append("~ estimated: not all ranks or epochs were planned, sizes are means, or epochs differ")
    return "\n\n".join(section for section in sections if section) + "\n"


def write_csv(stream: TextIO, listings: Iterable[Listing]) -> None:
    """Write one row a sample in the order of reading: step, sample, file, offset and length in bytes."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["step", "sample", "file", "offset", "length"])
    for listing in listings:
        step, sample, offset, length = (
            column.tolist() for column in (listing.step, listing.sample, listing.offset, listing.length)
        )
        writer.writerows(zip(step, sample, listing.file, offset, length, strict=True))


def _name(phase: PhaseForecast) -> str:
    name = phase.verb if phase.name == phase.verb else f"{phase.verb} {phase.name}"
    if phase.first_epoch is None:
        between = " " if phase.verb == "restore" else ", "
        return f"{name}{between}{phase.when}" if phase.when else name
    if phase.last_epoch == phase.first_epoch:
        return f"{name}, epoch {phase.first_epoch}"
    return f"{name}, epochs {phase.first_epoch} to {phase.last_epoch}"


def show_figure(value: float, shown: Callable[..., str], estimated: bool) -> str:
    """Return a figure as text, an estimate with two digits and a mark; `shown` formats it, with the digits if given."""
    return f"~{shown(float(f'{value:.1e}'), 2)}" if estimated else shown(value)


def _count(value: float, digits: int = 3) -> str:
    """Return a count, in full if it is whole."""
    return number(value, digits) if value != int(value) else f"{int(value):,}".replace(",", " ")


def _amount_table(forecast: Forecast) -> str:
    rows = []
    for phase in forecast.phases:
        times = ("up to " if phase.at_most else "at least " if phase.at_least else "") + str(phase.times)
        cells = [times, _count(phase.steps) if phase.steps else ABSENT]
        samples = phase.samples
        cells.append(show_figure(samples.total, _count, samples.estimated) if samples.total else ABSENT)
        for spread, shown in ((phase.bytes, size), (phase.opens, _count), (phase.calls, _count)):
            cells.append(show_figure(spread.total, shown, spread.estimated))
        cells.append(show_figure(phase.bytes.total * phase.times, size, phase.bytes.estimated))
        rows.append([_name(phase), *cells])
    headings = ["", "times", "steps", "samples", "bytes", "opens", "calls", "bytes of\nall times"]
    return grid("all ranks together, each time (of a loop each epoch)", headings, rows)


def _rank_table(forecast: Forecast) -> str:
    rows, stages = [], any(phase.memory.staging for phase in forecast.phases)
    for phase in forecast.phases:
        row = [_name(phase)]
        for spread, shown in ((phase.bytes, size), (phase.calls, _count), (phase.opens, _count)):
            row += [
                show_figure(value, shown, spread.estimated) for value in (spread.minimum, spread.mean, spread.maximum)
            ]
        staging = [size(phase.memory.staging) if phase.memory.staging else ABSENT] if stages else []
        memory = [*staging, size(phase.memory.total)]
        rows.append([*row, show_figure(phase.files.maximum, _count, phase.files.estimated), *memory])
    kinds = [f"{kind}\n{figure}" for kind in ("bytes", "calls", "opens") for figure in ("least", "mean", "most")]
    headings = ["", *kinds, "files\nmost", *(["of it\nstaging"] if stages else []), "memory"]
    return grid("one rank, each time (of a loop each epoch)", headings, rows, [3, 3, 3, len(headings) - 10])


def _demand_table(workload: Workload, forecast: Forecast) -> str:
    phases = [phase for phase in forecast.phases if phase.demand or phase.span_ratio or phase.amplification]
    if not phases:
        return ""
    processed = any(phase.demand and phase.demand.processing for phase in phases)
    rows = []
    for phase in phases:
        demand = phase.demand
        cells = [ABSENT] * (7 + processed)
        if demand is not None:
            times = [seconds(demand.processing, 2)] * processed
            times.append(seconds(demand.budget, 2) if demand.budget else "nothing")
            rates = [
                show_figure(rate * ranks, size, True) + "/s" if rate else ABSENT
                for rate in (demand.needs, demand.rate)
                for ranks in (1, forecast.ranks)
            ]
            asked = show_figure(demand.step_bytes, size, phase.bytes.estimated)
            cells = [percent(demand.goal, 2), asked, *times, *rates]
        rows.append([_name(phase), *cells, number(phase.span_ratio, 2), number(phase.amplification, 2)])
    headings = ["", "goal", "bytes\na step", *["pre-\nprocess"] * processed, "time to\nread"]
    headings += [f"{rate}:\n{whose}" for rate in ("needs", "reading") for whose in ("a rank", "all ranks")]
    headings += ["file span /\nbatch", "moved /\nasked"]
    title = (
        "what storage must deliver for the goal, a storage-limited utilization: `needs` is the mean rate, `reading` "
        "the rate while a step's bytes are read (requests: to keep up)"
    )
    table = grid(title, headings, rows)
    loops = {loop.name: loop for loop in loops_of(workload.verbs)}
    without_waits: dict[str, str] = {}
    for phase in phases:
        if phase.demand and phase.demand.goal is not None:
            rate = f"{show_figure(phase.demand.rate_without_waits, size, True)}/s"
            opens, calls = (
                show_figure(phase.per_second(one) or 0.0, _count, True) for one in (phase.opens, phase.calls)
            )
            text = f"{phase.name}: an accelerator that never waits takes {rate}. The goal needs {opens} opens/s and "
            without_waits.setdefault(phase.name, f"{text}{calls} calls/s of all ranks together in the first epoch.")
    notes = dict.fromkeys(
        note for phase in phases if phase.demand for note in _storage_limits(loops[phase.name], phase.demand)
    )
    return "\n\n".join([table, *(textwrap.fill(note, WIDTH) for note in (*without_waits.values(), *notes))])


def _storage_limits(loop: Loop, demand: Demand) -> Iterator[str]:
    """Yield which loops no storage can feed, why, and what would help; and what only a run shows."""
    readers = loop.access.readers
    if demand.rate is None and loop.arrivals is not None:
        text = "`compute` and `preprocess` take" if demand.processing else "`compute` takes"
        yield f"{loop.name}: no storage keeps up with its requests: {text} all the time between two of them."
    elif demand.rate is None:
        yield f"{loop.name}: no storage reaches {percent(demand.goal, 2)} without readers: steps wait while they read."
    elif demand.readers:
        whom = f"even on {count(readers, 'reader')} " if readers else ""
        text = f"`preprocess` takes {seconds(demand.processing)} a step, {whom}too long for a utilization of "
        more = f"`readers {demand.readers}` in the access method would do. Storage-limited utilization leaves it out"
        yield f"{loop.name}: {text}{percent(demand.goal, 2)} with any storage; {more}."
    if loop.decode and loop.access.through == "direct":
        less = "readers have that much less for reading" if readers else "a step takes that much longer"
        yield f"{loop.name}: `decode on` takes time, too, and only a run tells how much: {less}."


def _storage_table(forecast: Forecast) -> str:
    rows = []
    for item in forecast.storage:
        whole, files = show_figure(item.bytes * item.copies, size, item.estimated), _count(item.files * item.copies)
        rows.append([f"{_KINDS[item.kind]} {item.name}", item.root, whole, files, str(item.copies)])
    title = "most that is on storage at once (a new checkpoint is complete before an old one is deleted)"
    table = grid(title, ["", "root", "bytes", "files", "copies"], rows) if rows else ""
    notes = [_SIDECARS.format(item.name) for item in forecast.storage if item.kind == "sidecar"]
    return "\n".join([table, *(textwrap.fill(note, WIDTH) for note in notes)])


def _memory_text(forecast: Forecast) -> str:
    rank, node = size(forecast.rank_bytes), size(forecast.node_bytes)
    text = f"memory: {rank} on the rank that needs most, {node} on the fullest node"
    if forecast.index_bytes:
        text += f",\n{size(forecast.index_bytes)} of it for the index of samples of varying size"
    return text
