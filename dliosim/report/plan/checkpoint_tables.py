"""Tables of `dliosim plan` about checkpoints: model, split, bytes, files, writers, and the best interval of saves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from dliosim.model import Background, Checkpoint, Pace, Transformer, Workload
from dliosim.plan.forecast.forecast_types import Forecast, StateForecast
from dliosim.plan.forecast.interval_forecast import StateRisks
from dliosim.readable import count, long_time, number, seconds, size
from dliosim.report.interval_table import IntervalRow, explain_intervals, interval_table
from dliosim.report.text_table import WIDTH, align_rows

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


def state_tables(workload: Workload, forecast: Forecast) -> str:
    """Return a block of lines for each checkpoint that is saved."""
    blocks = [
        f"checkpoint {state.checkpoint}\n{align_rows(list(_rows(workload, forecast, state)))}"
        for state in forecast.states
    ]
    return "\n\n".join(blocks)


def risk_tables(mtbf: float, found: list[StateRisks]) -> str:
    """Return how often to save each checkpoint, or a line that the pattern saves none."""
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
        for own in _intervals(one)
    ]


def _intervals(one: StateRisks) -> list[float | None]:
    """Return the checkpoint's own intervals, s; [None] where it has none."""
    return [time for _, time in one.own] or [None]


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
