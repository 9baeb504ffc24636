"""The command `dliosim predict`: it needs no MPI and touches no data."""

from __future__ import annotations

import json
from types import SimpleNamespace

from dliosim.commands.command_line.options import read_storage
from dliosim.commands.command_line.pattern_files import find_pattern
from dliosim.commands.job.terminal import print_text, user_terminal
from dliosim.errors import UsageError
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Loop, Workload
from dliosim.model.expectation import GOAL, goals_of
from dliosim.plan.forecast.forecast import forecast, loops_of
from dliosim.plan.predict.prediction import Prediction, predict_loop
from dliosim.readable import count, printable
from dliosim.report.progress.progress_line import show_elapsed

#: Version of what `--json` prints.
_VERSION = 1


def predict_command(parsed: SimpleNamespace) -> int:
    """Print what a loop of a pattern would do on a storage that a file describes, for each number of ranks."""
    from dliosim.report.plan.prediction_lines import prediction_content, prediction_lines, prediction_table

    path = find_pattern(parsed.pattern, parsed.override)
    storage, values = read_storage(parsed)
    assert storage is not None  # the option is required
    predicted: list[tuple[Job, Prediction]] = []
    for ranks in parsed.ranks:
        job = Job(ranks, -(-ranks // parsed.per_node))
        workload = compile_pattern(path, values, job)[0]
        loop = _choose_loop(workload, parsed.loop)
        goal = goals_of(workload.expectations).get(loop.name, GOAL)
        with show_elapsed(user_terminal(), f"predict {printable(parsed.pattern)} on {count(ranks, 'rank')}"):
            phases = forecast(workload).phases
            phase = next(one for one in phases if (one.verb, one.name) == (loop.kind, loop.name))
            predicted.append((job, predict_loop(workload, loop, phase, storage)))
    if parsed.json:
        content = {"schema_version": _VERSION, "name": workload.name, "storage": storage.name}
        text = json.dumps(content | {"predicted": list(prediction_content(predicted, goal))}) + "\n"
    else:
        text = f"{prediction_lines(workload, predicted[-1][1], goal, storage)}\n"
        if len(predicted) > 1:
            text += f"\n{prediction_table(predicted, goal)}\n"
    print_text(text)
    return 0


def _choose_loop(workload: Workload, name: str | None) -> Loop:
    """Return the loop of a name, or the first that reads; UsageError if there is none."""
    loops = [loop for loop in loops_of(workload.verbs) if loop.dataset]
    found = next((loop for loop in loops if name in (None, loop.name)), None)
    if found is None:
        names = ", ".join(loop.name for loop in loops) or "none"
        what = f"--loop {name}: the pattern has no such loop that reads" if name else f"{workload.name}: no loop reads"
        raise UsageError(f"{what}\n  = help: loops that read: {names}")
    return found
