"""The command `dliosim predict`: it needs no MPI and touches no data."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace

from dliosim.commands.command_line.options import read_storage
from dliosim.commands.command_line.pattern_files import find_pattern
from dliosim.commands.job.terminal import print_text, user_terminal
from dliosim.errors import HELP, UsageError
from dliosim.language.compile import compile_pattern
from dliosim.measure.saturation import find_most
from dliosim.model import Job, Loop, Workload
from dliosim.model.expectation import GOAL, goals_of
from dliosim.plan.forecast.forecast import forecast, loops_of
from dliosim.plan.predict.prediction import Prediction, predict_loop
from dliosim.readable import count, printable
from dliosim.report.progress.progress_line import show_elapsed

#: Version of what `--json` prints.
_VERSION = 1

#: The most ranks that a search tries.
MOST_RANKS = 65_536


def predict_command(parsed: SimpleNamespace) -> int:
    """Print what a loop would do on a described storage, for each number of ranks, or the most ranks that it feeds."""
    from dliosim.report.plan.prediction_lines import prediction_content, prediction_lines, prediction_table

    path = find_pattern(parsed.pattern, parsed.override)
    storage, values = read_storage(parsed)
    assert storage is not None  # the option is required

    def compile_for(ranks: int) -> tuple[Workload, Loop]:
        workload = compile_pattern(path, values, Job(ranks, -(-ranks // parsed.per_node)))[0]
        return workload, _choose_loop(workload, parsed.loop)

    def predict(ranks: int) -> tuple[Job, Prediction]:
        workload, loop = compile_for(ranks)
        with show_elapsed(user_terminal(), f"predict {printable(parsed.pattern)} on {count(ranks, 'rank')}"):
            phases = forecast(workload).phases
            phase = next(one for one in phases if (one.verb, one.name) == (loop.kind, loop.name))
            return workload.job, predict_loop(workload, loop, phase, storage)

    workload, loop = compile_for(parsed.ranks[0] if parsed.ranks else 1)
    if not parsed.ranks and loop.compute.time.nonnegative_mean() == 0 and loop.preprocess is None:
        raise UsageError(f"{loop.name} has no compute, so no ranks are enough for it{HELP}give --ranks, for its rate")
    goal = parsed.until or goals_of(workload.expectations).get(loop.name, GOAL)
    if parsed.ranks:
        predicted = [predict(ranks) for ranks in parsed.ranks]
        shown = predicted[-1]
    else:
        predicted = find_most_ranks(predict, goal)
        shown = next((one for one in reversed(predicted) if one[1].lowest >= goal), predicted[0])
    if parsed.json:
        content = {"schema_version": _VERSION, "name": workload.name, "storage": storage.name}
        text = json.dumps(content | {"predicted": list(prediction_content(predicted, goal))}) + "\n"
    else:
        bound = "" if parsed.ranks else "at least" if shown[0].ranks == MOST_RANKS else "at most"
        others = [one.name for one in _loops_that_read(workload) if one.name != loop.name and not parsed.loop]
        text = f"{prediction_lines(workload.name, shown, goal, storage, bound, others)}\n"
        if len(predicted) > 1:
            text += f"\n{prediction_table(predicted, goal)}\n"
    print_text(text)
    return 0


def find_most_ranks(predict: Callable[[int], tuple[Job, Prediction]], goal: float) -> list[tuple[Job, Prediction]]:
    """Return the predictions that find the most ranks with this utilization, by ranks."""
    made: dict[int, tuple[Job, Prediction]] = {}

    def reaches(ranks: int) -> bool:
        made[ranks] = predict(ranks)
        return made[ranks][1].lowest >= goal

    find_most(reaches, MOST_RANKS)
    return [made[ranks] for ranks in sorted(made)]


def _choose_loop(workload: Workload, name: str | None) -> Loop:
    """Return the loop of a name, or the first that reads; UsageError if there is none."""
    loops = _loops_that_read(workload)
    found = next((loop for loop in loops if name in (None, loop.name)), None)
    if found is None:
        if not loops:
            raise UsageError(f"{workload.name}: no loop reads")
        names = ", ".join(loop.name for loop in loops)
        raise UsageError(f"--loop {name}: the pattern has no such loop that reads{HELP}loops that read: {names}")
    return found


def _loops_that_read(workload: Workload) -> list[Loop]:
    return [loop for loop in loops_of(workload.verbs) if loop.dataset]
