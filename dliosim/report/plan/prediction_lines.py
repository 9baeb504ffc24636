"""The answer of `dliosim predict`: a loop on a storage that is described, and the same loop on several jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dliosim.model import Job, StorageModel
from dliosim.plan.predict.prediction import DRAWS, Limit, Prediction, requests_at_once
from dliosim.readable import count, percent, seconds, size
from dliosim.report.cells import percent_cell, time_cell
from dliosim.report.first_lines import first_lines, fit_rows, fit_title, name_forms
from dliosim.report.text_table import SCREEN, Column, format_columns, shorten_name

#: One job of a prediction.
Predicted = tuple[Job, Prediction]


def prediction_lines(
    name: str, shown: Predicted, goal: float, storage: StorageModel, bound: str = "", others: Sequence[str] = ()
) -> str:
    """Return the first lines of the prediction of a loop, in 80 columns.

    `bound`: `at most` or `at least`, if these are the most ranks that are fed. `others` are the loops not predicted.
    """
    (job, one), loop = shown, shorten_name(shown[1].loop.name)
    verdict = _verdict(one, goal)
    if bound:
        fed = count(job.ranks, "rank")
        verdict = f"would feed {fed} {bound}" if one.lowest >= goal else f"would not even feed {fed}"
    answer = f"{verdict}: {loop} busy {_busy(one)}, goal {percent(goal, 2)}"
    if one.ideal_step == 0:
        answer = f"not asked: {loop} has no compute, so no accelerator waits for it"
    where = f"{count(job.ranks, 'rank')} on {count(job.nodes, 'node')}"
    title = fit_title(name_forms(name), [where], ["PREDICTED"], [f"storage {storage.name}", ""])
    delivers = "be asked for" if one.limit == "compute" else "deliver"
    rows = [
        ("ANSWER", answer),
        ("NOTE" if one.lowest >= goal else "WHY", _explain_limit(one, job, storage)),
        ("STORAGE", f"would {delivers} {size(one.rate, 2)}/s in all (first epoch, no page cache)"),
        *([("ALSO", f"not predicted: {', '.join(others)}; --loop NAME chooses")] if others else []),
        ("STEP", f"{_steps(one)}; first step {seconds(one.first_step, 2)}"),
        ("DRAWS", f"{DRAWS} of sizes, servers, latencies and compute, {count(one.steps, 'step')} each"),
        ("LIMIT", "no file system was compared; other jobs, page cache, saves are left out"),
    ]
    return first_lines(*fit_rows(title, rows))


def prediction_table(predicted: Sequence[Predicted], goal: float) -> str:
    """Return a row for each number of ranks, and the greatest that reaches the goal."""
    named = [(f"{job.ranks} on {job.nodes}", (job, one)) for job, one in predicted]
    feeding = [job.ranks for job, one in predicted if one.lowest >= goal]
    title = f"ranks on nodes, predicted; goal {percent(goal, 2)}, reached " + (
        f"by {count(max(feeding), 'rank')}" if feeding else "by none of them"
    )
    return format_columns(title, "ranks on nodes", named, [[one] for one in _COLUMNS], SCREEN)


def _verdict(one: Prediction, goal: float) -> str:
    if one.lowest < goal <= one.highest:
        return "too close to say"
    return "would feed" if one.lowest >= goal else "would not feed"


def _busy(one: Prediction) -> str:
    spread = f"{percent(one.lowest, 2)} to {percent(one.highest, 2)}"
    same = percent(one.lowest, 2) == percent(one.highest, 2)
    return percent(one.utilization, 2) if same else f"{percent(one.utilization, 2)} ({spread})"


def _steps(one: Prediction) -> str:
    return f"{seconds(one.step, 2)}, {seconds(one.ideal_step, 2)} if reads took no time"


def _explain_limit(one: Prediction, job: Job, storage: StorageModel) -> str:
    """Return what limits a loop, with its rate."""
    each = size(storage.servers.rate, 3)
    servers = count(one.servers, "server") + (" with files" if one.servers < storage.servers.number else "")
    at_once = requests_at_once(one.loop)
    chains = f"{at_once} at a time" if at_once > 1 else "one after the other"
    if at_once < one.loop.access.readers:
        chains += " (`prefetch`)"
    text: dict[Limit, str] = {
        "compute": "reads end before the steps need them",
        "step": f"`step time` is the limit: the slowest rank takes {seconds(one.alone['step'], 2)} besides compute",
        "servers": f"the limit: {servers}, {each}/s each",
        "clients": f"the client is the limit: {size(storage.client, 3)}/s for the {job.ranks_per_node} ranks of a node",
        "opens": f"opens are the limit: {storage.metadata or 0:_.0f} per second",
        "latency": f"the requests of a rank, {chains}, take {seconds(one.alone['latency'], 2)} of a step",
    }
    return text[one.limit]


_COLUMNS: Final[list[Column[Predicted]]] = [
    Column("busy", lambda row: row[1].utilization, percent_cell),
    Column("lowest", lambda row: row[1].lowest, percent_cell),
    Column("highest", lambda row: row[1].highest, percent_cell),
    Column("step", lambda row: row[1].step, time_cell),
    Column("rate", lambda row: row[1].rate, lambda rate: f"{size(rate, 3)}/s"),
    Column("limit", lambda row: row[1].limit, str),
]


def prediction_content(predicted: Sequence[Predicted], goal: float) -> Iterator[dict[str, object]]:
    """Yield an object for JSON for each job."""
    for job, one in predicted:
        yield {
            "ranks": job.ranks,
            "nodes": job.nodes,
            "loop": one.loop.name,
            "goal": goal,
            "storage_utilization": {"mean": one.utilization, "low": one.lowest, "high": one.highest},
            "step_seconds": one.step,
            "ideal_step_seconds": one.ideal_step,
            "first_step_seconds": one.first_step,
            "steps": one.steps,
            "bytes_per_second": one.rate,
            "limited_by": one.limit,
        }
