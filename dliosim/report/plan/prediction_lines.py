"""The answer of `dliosim predict`: a loop on a storage that is described, and the same loop on several jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from dliosim.measure.results.run_summary import Spread
from dliosim.model import Job, StorageModel, Workload
from dliosim.model.storage import UNRELIABLE
from dliosim.plan.predict.prediction import DRAWS, Limit, Prediction
from dliosim.plan.predict.saves import SavePrediction
from dliosim.plan.predict.virtual_epoch import requests_at_once
from dliosim.readable import ABSENT, count, percent, seconds, size
from dliosim.report.cells import percent_cell, rate_cell, size_cell, time_cell
from dliosim.report.files.results import copy_members
from dliosim.report.first_lines import Row, first_lines, fit_rows, fit_title, name_forms
from dliosim.report.text_table import SCREEN, Column, format_columns, shorten_name

#: Longer names of checkpoints are cut.
_LONGEST_SAVED: Final = 16

#: One job of a prediction.
Predicted = tuple[Job, Prediction]


def prediction_lines(
    workload: Workload,
    shown: Predicted,
    goal: float,
    storage: StorageModel,
    bound: str,
    others: Sequence[str],
    compared: str,
) -> str:
    """Return the first lines of the prediction of a loop, in 80 columns.

    `bound` says how many ranks are fed, if the most were searched. `others` are the loops not predicted, `compared`
    says what was measured.
    """
    (job, one), loop = shown, shorten_name(shown[1].loop.name)
    answer = f"{bound or _verdict(one, goal)}: {loop} busy {_busy(one, goal)}, goal {percent(goal, 2)}"
    if one.ideal_step == 0:
        answer = f"not asked: {loop} has no compute, so no accelerator waits for it"
    where = f"{count(job.ranks, 'rank')} on {count(job.nodes, 'node')}"
    title = fit_title(name_forms(workload.name), [where], ["PREDICTED"], [f"storage {storage.name}", ""])
    delivers = "be asked for" if one.limit == "compute" else "deliver"
    rows = [
        ("ANSWER", answer),
        ("NOTE" if one.lowest >= goal else "WHY", _explain_limit(one, storage)),
        ("STORAGE", f"would {delivers} {size(one.rate, 2)}/s in all (first epoch, no page cache)"),
        *_list_doubts(storage),
        *([("BEYOND", _describe_range(one, storage))] if not storage.has_measured(one.call) else []),
        *([("SCALE", f"scale={workload.scale} shrinks the workload; -D scale=1 is all of it")] * (workload.scale > 1)),
        *([("ALSO", f"not predicted: {', '.join(others)}; --loop NAME chooses")] if others else []),
        ("STEP", f"{_steps(one)}; first step {seconds(one.first_step, 2)}"),
        ("LIMIT", f"{_draws(one, storage)}; {compared}; {_list_unpredicted(workload, 'page cache')} left out"),
    ]
    return first_lines(*fit_rows(title, rows, large=("LIMIT",)))


def prediction_table(predicted: Sequence[Predicted], goal: float, measured: Mapping[Job, Spread]) -> str:
    """Return a row for each number of ranks, and the greatest that reaches the goal; `measured` has those of runs."""
    named = [(f"{job.ranks} on {job.nodes}", (job, one)) for job, one in predicted]
    feeding = [job.ranks for job, one in predicted if one.lowest >= goal]
    title = f"ranks on nodes, predicted; goal {percent(goal, 2)}, reached " + (
        f"by {count(max(feeding), 'rank')}" if feeding else "by none of them"
    )
    columns = _COLUMNS
    if measured:
        run: Column[Predicted] = Column("measured", lambda row: measured.get(row[0]), _spread_cell)
        columns = [*columns[:2], run, *columns[2:]]
    return format_columns(title, "ranks on nodes", named, [[one] for one in columns], SCREEN)


@dataclass(frozen=True, slots=True)
class SaveRow:
    """A save or a restore on one job."""

    job: Job  #: ranks and nodes
    save: SavePrediction  #: a save or a restore
    between: float | None  #: time of the loop between two saves, without them; seconds; None for other saves

    @property
    def share(self) -> float | None:
        """Return the share of the time in which a save holds the ranks: one in the background only after the next."""
        if self.between is None:
            return None
        held = max(self.save.seconds - self.between, 0.0) if self.save.in_background else self.save.seconds
        return held / (held + self.between) if held else 0.0


def list_saves(job: Job, saves: Sequence[SavePrediction], whole: Prediction | None = None) -> list[SaveRow]:
    """Return the rows of saves and restores on a job, whose loop is `whole`."""
    return [SaveRow(job, one, None if whole is None else _time_between(whole, one)) for one in saves]


def saves_table(rows: Sequence[SaveRow]) -> str:
    """Return a row for each save and restore on each number of ranks."""
    named = [
        (f"{one.save.kind} {shorten_name(one.save.checkpoint, _LONGEST_SAVED)} by {one.job.ranks}", one) for one in rows
    ]
    title = "saves and restores, predicted; held: share of the time in which they hold the ranks"
    return format_columns(title, "ranks", named, [[one] for one in _SAVE_COLUMNS], SCREEN)


def save_lines(workload: Workload, rows: Sequence[SaveRow], storage: StorageModel) -> str:
    """Return the first lines for a workload that only saves and restores: about the last number of ranks."""
    job, limit = rows[-1].job, f"no file system was compared; {_list_unpredicted(workload)} left out"
    where = f"{count(job.ranks, 'rank')} on {count(job.nodes, 'node')}"
    title = fit_title(name_forms(workload.name), [where], ["PREDICTED"], [f"storage {storage.name}", ""])
    shown = [(_SAVED[row.save.kind], _describe_save(row.save)) for row in rows if row.job == job]
    return first_lines(*fit_rows(title, [*shown, *_list_doubts(storage), ("LIMIT", limit)]))


_SAVED: Final = {"save": "SAVES", "restore": "RESTORE"}


def _describe_save(one: SavePrediction) -> str:
    bytes_ = size(one.bytes, 3) + (f" ({one.part_of})" if one.part_of else "")
    return f"{shorten_name(one.checkpoint)}: {bytes_} in {seconds(one.seconds, 2)}, limited by {one.limit}"


def _time_between(whole: Prediction, save: SavePrediction) -> float | None:
    """Return the seconds of a loop between two of its saves; None if it does not save this checkpoint."""
    if save.kind != "save" or save.checkpoint not in [one.checkpoint for one in whole.loop.checkpoints]:
        return None
    return whole.epoch_seconds * whole.loop.epochs / save.times


def _range_of_times(one: SavePrediction) -> str | None:
    """Return the shortest and the longest time by what is uncertain; None if nothing is."""
    return f"{seconds(min(one.at_ends), 3)} to {seconds(max(one.at_ends), 3)}" if one.at_ends else None


_SAVE_COLUMNS: Final[list[Column[SaveRow]]] = [
    Column("bytes", lambda one: one.save.bytes, size_cell),
    Column("time", lambda one: one.save.seconds, time_cell),
    Column("range", lambda one: _range_of_times(one.save), lambda text: text or ABSENT, optional=True),
    Column("rate", lambda one: one.save.bytes / one.save.seconds if one.save.seconds else None, rate_cell),
    Column("limit", lambda one: one.save.limit, str),
    Column("every", lambda one: one.between, time_cell, optional=True),
    Column("held", lambda one: one.share, percent_cell, optional=True, usual=-1.0),
]


def range_of_draws(one: Prediction) -> Spread:
    """Return the storage-limited utilization with its range over the draws and by what is uncertain."""
    return Spread(one.utilization, one.lowest, one.highest)


def variants_table(rows: Sequence[tuple[str, Predicted]], goal: float) -> str:
    """Return a row for each variant, by its name."""
    title = f"variants, predicted; goal {percent(goal, 2)}"
    named = [(shorten_name(name), one) for name, one in rows]
    return format_columns(title, "variant", named, [[one] for one in _COLUMNS], SCREEN)


def _spread_cell(busy: Spread | None) -> str:
    if busy is None:
        return ABSENT
    low, high = percent(busy.low, 2), percent(busy.high, 2)
    return low if low == high else f"{low} to {high}"


def search_verdict(predicted: Sequence[Predicted], goal: float, has_ended: bool) -> str:
    """Return the verdict of a search for the most ranks by its predictions.

    `has_ended`: more ranks could not be tried, as the data would not last for them.
    """
    fed = max((job.ranks for job, one in predicted if one.lowest >= goal), default=0)
    missed = min((job.ranks for job, one in predicted if one.highest < goal), default=0)
    if not fed:
        return "would not even feed 1 rank" if missed == 1 else "too close to say even for 1 rank"
    if missed:
        return f"would feed {count(fed, 'rank')} but not {missed}"
    return f"would feed {'at least ' * has_ended}{count(fed, 'rank')}"


def _verdict(one: Prediction, goal: float) -> str:
    if one.is_read_ahead:
        return f"cannot say: {count(one.steps, 'step')}, {one.loop.access.prefetch} of them read ahead"
    if one.lowest < goal <= one.highest:
        return "too close to say"
    return "would feed" if one.lowest >= goal else "would not feed"


def _busy(one: Prediction, goal: float) -> str:
    """Return the utilization with its spread, with more digits near the goal."""
    digits = 3 if one.lowest < goal <= one.highest else 2
    low, mean, high = (percent(value, digits) for value in (one.lowest, one.utilization, one.highest))
    return mean if low == high else f"{mean} ({low} to {high})"


def _describe_range(one: Prediction, storage: StorageModel) -> str:
    assert storage.measured is not None
    least, greatest = size(storage.measured.least, 2), size(storage.measured.greatest, 2)
    return f"calls of {size(one.call, 2)}: {storage.name} was measured by calls of {least} to {greatest}"


def _list_doubts(storage: StorageModel) -> list[Row]:
    """Return a row with the values that may be far from the truth; none without such."""
    wide = [f"`{name}` {percent(share, 2)}" for name, share in storage.uncertain if share > UNRELIABLE]
    return [("UNSURE", f"may be far off: {', '.join(wide)}; measure them again")] if wide else []


def _draws(one: Prediction, storage: StorageModel) -> str:
    values = ", and both ends of all that is `uncertain`" if storage.uncertain else ""
    return f"{DRAWS} draws of {count(one.steps, 'step')}{values}"


def _list_unpredicted(workload: Workload, *more: str) -> str:
    """Return what else could slow the workload and is not predicted."""
    saved = workload.checkpoints
    drains = ["drains"] if any(one.drain for one in saved) else []
    copies = ["copies of partners"] if any(one.partner for one in saved) else []
    return ", ".join(["other jobs", *more, *drains, *copies])


def _steps(one: Prediction) -> str:
    return f"{seconds(one.step, 2)}, {seconds(one.ideal_step, 2)} if reads took no time"


def _explain_limit(one: Prediction, storage: StorageModel) -> str:
    """Return what limits a loop, with its rate."""
    each = size(storage.servers.rate, 3)
    servers = count(one.servers, "server") + (" with files" if one.servers < storage.servers.number else "")
    servers += f", {each}/s each" if one.servers > 1 else f": {each}/s"
    at_once = requests_at_once(one.loop)
    chains = f"{at_once} at a time" if at_once > 1 else "one after the other"
    if at_once < one.loop.access.readers:
        chains += " (`prefetch`)"
    text: dict[Limit, str] = {
        "compute": "reads end before the steps need them",
        "step": f"limited by `step time`: the slowest rank takes {seconds(one.alone['step'], 2)} besides compute",
        "servers": f"limited by {servers}",
        "clients": f"limited by the client: {size(storage.client, 3)}/s for the ranks of a node",
        "opens": f"limited by opens: {storage.metadata or 0:_.0f} per second",
        "saves": f"reads of a step queue behind background saves for {seconds(one.alone['saves'], 2)} in all",
        "latency": f"the requests of a rank, {chains}, take {seconds(one.alone['latency'], 2)} of a step",
    }
    return text[one.limit]


_COLUMNS: Final[list[Column[Predicted]]] = [
    Column("busy", lambda row: row[1].utilization, percent_cell),
    Column("draws", lambda row: range_of_draws(row[1]), _spread_cell),
    Column("step", lambda row: row[1].step, time_cell),
    Column("rate", lambda row: row[1].rate, lambda rate: f"{size(rate, 3)}/s"),
    Column("limit", lambda row: row[1].limit, str),
]


def prediction_content(
    predicted: Sequence[Predicted], goal: float, measured: Mapping[Job, Spread]
) -> Iterator[dict[str, object]]:
    """Yield an object for JSON for each job; `measured` is null without results on as many ranks."""
    for job, one in predicted:
        busy = measured.get(job)
        yield {
            "measured": busy and asdict(busy),
            **copy_members(job, "ranks", "nodes"),
            "loop": one.loop.name,
            "goal": goal,
            "storage_utilization": asdict(range_of_draws(one)),
            "step_seconds": one.step,
            "ideal_step_seconds": one.ideal_step,
            "first_step_seconds": one.first_step,
            "steps": one.steps,
            "bytes_per_second": one.rate,
            "limited_by": one.limit,
            "epoch_seconds": one.epoch_seconds,
            "saves": [save_content(row) for row in list_saves(job, one.saves, one)],
        }


def save_content(row: SaveRow) -> dict[str, object]:
    """Return the object for JSON of a save or a restore."""
    save = row.save
    return {
        **copy_members(row.job, "ranks", "nodes"),
        **copy_members(save, "checkpoint", "kind", "times", "bytes", "seconds"),
        "seconds_low": min(save.at_ends, default=save.seconds),
        "seconds_high": max(save.at_ends, default=save.seconds),
        "limited_by": save.limit,
        "in_background": save.in_background,
        "between_seconds": row.between,
    }
