"""The command `dliosim predict`: it needs no MPI and touches no data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from dliosim.commands.command_line.options import read_storage
from dliosim.commands.command_line.pattern_files import find_pattern
from dliosim.commands.job.terminal import print_text, user_terminal
from dliosim.errors import HELP, ExecutionError, UsageError
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.measure.results.run_summary import Spread
from dliosim.measure.saturation import find_most
from dliosim.model import Job, Loop, StorageModel, Workload
from dliosim.model.expectation import GOAL, goals_of
from dliosim.plan.forecast.forecast import forecast, loops_of
from dliosim.plan.predict.prediction import Prediction, predict_loop
from dliosim.plan.predict.saves import predict_saves
from dliosim.readable import count, printable
from dliosim.report.progress.progress_line import show_elapsed

#: Version of what `--json` prints.
_VERSION = 1

#: The most ranks that a search tries.
MOST_RANKS = 65_536


def predict_command(parsed: SimpleNamespace) -> int:
    """Print what a loop would do on a described storage, for each number of ranks, or the most ranks that it feeds."""
    from dliosim.report.plan.prediction_lines import (
        list_saves,
        prediction_content,
        prediction_lines,
        prediction_table,
        saves_table,
        search_verdict,
    )

    if parsed.picture is not None:
        _check_picture(parsed.picture)
    path = find_pattern(parsed.pattern, parsed.override)
    storage, values = read_storage(parsed)
    assert storage is not None  # the option is required

    def compile_for(job: Job) -> tuple[Workload, Loop]:
        workload = compile_pattern(path, values, job)[0]
        return workload, _choose_loop(workload, parsed.loop)

    def place(ranks: int) -> Job:
        return Job(ranks, -(-ranks // parsed.per_node))

    def predict(job: Job) -> Prediction:
        workload, loop = compile_for(job)
        with show_elapsed(user_terminal(), f"predict {printable(parsed.pattern)} on {count(job.ranks, 'rank')}"):
            return predict_loop(workload, loop, forecast(workload), storage, _count_node_ranks(job, parsed.per_node))

    first = place(parsed.ranks[0] if parsed.ranks else 1)
    if not _loops_that_read(compile_pattern(path, values, first)[0]) and not parsed.loop:
        return _predict_saves(
            parsed, storage, [compile_pattern(path, values, job)[0] for job in map(place, parsed.ranks or ())]
        )
    workload, loop = compile_for(first)
    measured, differing = read_measured(parsed.measured or (), workload.name, loop.name, values)
    jobs = {job.ranks: job for job in (*map(place, parsed.ranks or ()), *measured)}
    if not jobs and loop.compute.time.nonnegative_mean() == 0 and loop.preprocess is None:
        raise UsageError(
            f"{loop.name} has no compute, so there is no utilization to reach{HELP}give --ranks, for its rate"
        )
    goal = parsed.until or goals_of(workload.expectations).get(loop.name, GOAL)
    has_ended = False
    if jobs:
        predicted = [(job, predict(job)) for _, job in sorted(jobs.items())]
        shown = predicted[-1]
    else:
        predicted, has_ended = find_most_ranks(lambda ranks: (place(ranks), predict(place(ranks))), goal)
        shown = next((one for one in reversed(predicted) if one[1].lowest >= goal), predicted[0])
    if parsed.json:
        content = {"schema_version": _VERSION, "name": workload.name, "storage": storage.name}
        text = json.dumps(content | {"predicted": list(prediction_content(predicted, goal, measured))}) + "\n"
    else:
        bound = "" if jobs else search_verdict(predicted, goal, has_ended)
        others = [one.name for one in _loops_that_read(workload) if one.name != loop.name and not parsed.loop]
        compared = f"{count(len(measured), 'run')} next to it" if measured else "no file system was compared"
        compared += f", {differing} with other -D" if differing else ""
        text = f"{prediction_lines(workload, shown, goal, storage, bound, others, compared)}\n"
        if len(predicted) > 1 or measured:
            text += f"\n{prediction_table(predicted, goal, measured)}\n"
        if shown[1].saves:
            text += f"\n{saves_table([row for job, one in predicted for row in list_saves(job, one.saves, one)])}\n"
    if parsed.picture is not None:
        _draw_ladder(Path(parsed.picture), f"{workload.name}: {loop.name}", storage.name, predicted, measured, goal)
    print_text(text)
    return 0


def _predict_saves(parsed: SimpleNamespace, storage: StorageModel, workloads: Sequence[Workload]) -> int:
    """Print what the saves and restores of a workload would take that reads in no loop, on each number of ranks."""
    from dliosim.report.plan.prediction_lines import list_saves, save_content, save_lines, saves_table

    rows = [
        row
        for each in workloads
        for row in list_saves(each.job, list(predict_saves(each, forecast(each), storage, parsed.per_node)))
    ]
    if not rows:
        raise UsageError(f"{parsed.pattern}: no loop reads{HELP}saves and restores are predicted for --ranks N")
    name = workloads[0].name
    if parsed.json:
        content = {"schema_version": _VERSION, "name": name, "storage": storage.name}
        print_text(json.dumps(content | {"predicted": [save_content(row) for row in rows]}) + "\n")
    else:
        print_text(f"{save_lines(name, rows, storage)}\n\n{saves_table(rows)}\n")
    return 0


def read_measured(
    places: Sequence[str], name: str, loop: str, values: Sequence[tuple[str, str]]
) -> tuple[dict[Job, Spread], int]:
    """Return the storage-limited utilization of a loop in results, by their jobs, and how many had other -D.

    Raises UsageError for results of another pattern, and for those that do not have it.
    """
    from dliosim.report.reader.load import SavedRun, load_results

    found: dict[Job, Spread] = {}
    differing = 0
    for one in load_results(places, with_arrays=False):
        if not isinstance(one, SavedRun) or one.run.name != name:
            raise UsageError(f"--measured {one.place}: these are no results of `dliosim run {name}`")
        busy = next((answer.storage_utilization for answer in one.run.answers if answer.loop == loop), None)
        if busy is None:
            raise UsageError(f"--measured {one.place}: it has no storage-limited utilization of {loop}")
        job = Job(one.run.ranks, one.run.nodes)
        if any(job.ranks == other.ranks for other in found):
            raise UsageError(f"--measured {one.place}: another result has {count(job.ranks, 'rank')}, too")
        found[job] = busy
        about_pattern = {pair for pair in one.run.overrides if not pair[0].startswith(f"{one.run.modelled}.")}
        differing += about_pattern != {*values}
    return found, differing


def _check_picture(file: str) -> None:
    """Raise UsageError for a picture that cannot be drawn."""
    from dliosim.commands.report import check_matplotlib

    check_matplotlib()
    if Path(file).suffix not in (".png", ".svg"):
        raise UsageError(f"--picture {file}: name a file that ends in .png or .svg")


def _draw_ladder(
    file: Path,
    title: str,
    storage: str,
    predicted: Sequence[tuple[Job, Prediction]],
    measured: Mapping[Job, Spread],
    goal: float,
) -> None:
    """Draw the utilization over ranks, as predicted and as measured."""
    from dliosim.pictures.scaling import BusyPoint, utilization_curve
    from dliosim.pictures.style import apply_style, render_figure
    from dliosim.report.files.results import write_atomic
    from dliosim.report.plan.prediction_lines import range_of_draws

    points = [
        BusyPoint(f"{title}, predicted on {storage}", job.ranks, range_of_draws(one), goal) for job, one in predicted
    ]
    points += [BusyPoint(f"{title}, measured", job.ranks, busy, goal) for job, busy in measured.items()]
    try:
        with apply_style():
            write_atomic(file, render_figure(utilization_curve(points), "svg" if file.suffix == ".svg" else "png"))
    except OSError as error:
        raise ExecutionError(f"--picture {file} cannot be written: {error.strerror}") from error


def _count_node_ranks(job: Job, per_node: int) -> int:
    """Return the ranks of each node but the last: `per_node`, unless a run had its ranks on other nodes."""
    return per_node if job.nodes == -(-job.ranks // per_node) else job.ranks_per_node


def find_most_ranks(
    predict: Callable[[int], tuple[Job, Prediction]], goal: float
) -> tuple[list[tuple[Job, Prediction]], bool]:
    """Return the predictions that find the most ranks with this utilization, by ranks, and whether more were not tried.

    They are not if the data would last for too few steps, and beyond `MOST_RANKS`.
    """
    made: dict[int, tuple[Job, Prediction]] = {}
    has_ended = False

    def reaches(ranks: int) -> bool:
        nonlocal has_ended
        try:
            job, one = predict(ranks)
        except PatternError:
            if ranks == 1:
                raise
            has_ended = True
            return False
        if ranks > 1 and one.is_read_ahead:
            has_ended = True
            return False
        made[ranks] = job, one
        return one.lowest >= goal

    most = find_most(reaches, MOST_RANKS)
    return [made[ranks] for ranks in sorted(made)], has_ended or most == MOST_RANKS


def _choose_loop(workload: Workload, name: str | None) -> Loop:
    """Return the loop of a name, or the first that reads; UsageError if there is none."""
    loops = _loops_that_read(workload)
    found = next((loop for loop in loops if name in (None, loop.name)), None)
    if found is None:
        names = ", ".join(loop.name for loop in loops)
        raise UsageError(f"--loop {name}: no such loop reads data{HELP}loops that do: {names}")
    return found


def _loops_that_read(workload: Workload) -> list[Loop]:
    return [loop for loop in loops_of(workload.verbs) if loop.dataset]
