"""The command `dliosim predict`: it needs no MPI and touches no data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

from dliosim.commands.command_line.options import read_storage
from dliosim.commands.command_line.pattern_files import find_pattern
from dliosim.commands.job.terminal import print_text, user_terminal
from dliosim.errors import HELP, ExecutionError, UsageError
from dliosim.language.compile import compile_document, compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.measure.results.run_summary import Spread
from dliosim.measure.saturation import find_most
from dliosim.model import Job, Loop, StorageModel, Workload
from dliosim.model.expectation import GOAL, goals_of
from dliosim.plan.forecast.forecast import forecast, loops_of
from dliosim.plan.predict.prediction import Prediction, predict_loop
from dliosim.plan.predict.saves import predict_saves
from dliosim.readable import count, printable
from dliosim.report.plan import prediction_lines as answers
from dliosim.report.plan.prediction_lines import Predicted
from dliosim.report.progress.progress_line import show_elapsed

#: Overrides of a pattern: names and phrases.
Values: TypeAlias = Sequence[tuple[str, str]]

#: Version of what `--json` prints.
_VERSION = 1

#: The most ranks that a search tries.
MOST_RANKS = 65_536


@dataclass(frozen=True, slots=True)
class _Question:
    """A question about a described storage."""

    parsed: SimpleNamespace  #: the command line
    path: Path  #: the pattern
    storage: StorageModel  #: the described storage
    values: list[tuple[str, str]]  #: what the command line says about the pattern

    def place(self, ranks: int) -> Job:
        """Return the job of some ranks, which fill nodes one after the other."""
        return Job(ranks, -(-ranks // self.parsed.per_node))

    def compile(self, job: Job, more: Values = ()) -> Workload:
        """Return the workload of a job, with `more` overrides."""
        return compile_pattern(self.path, [*self.values, *more], job)[0]

    def predict(self, job: Job, more: Values = ()) -> Prediction:
        """Return the prediction of the loop on a job, with `more` overrides."""
        workload = self.compile(job, more)
        loop = _choose_loop(workload, self.parsed.loop)
        with show_elapsed(user_terminal(), f"predict {printable(self.parsed.pattern)} on {count(job.ranks, 'rank')}"):
            # A run, next to which it is shown, may have had its ranks on other nodes.
            is_filled = job.nodes == self.place(job.ranks).nodes
            per_node = self.parsed.per_node if is_filled else job.ranks_per_node
            return predict_loop(workload, loop, forecast(workload), self.storage, per_node)

    @property
    def jobs(self) -> list[Job]:
        """Return the jobs of --ranks."""
        return [self.place(ranks) for ranks in self.parsed.ranks or ()]

    def show(self, name: str, predicted: list[dict[str, object]], text: str) -> None:
        """Print the answer: `predicted` as JSON, or a text without its last end of line."""
        content = {"schema_version": _VERSION, "name": name, "storage": self.storage.name, "predicted": predicted}
        print_text(json.dumps(content) + "\n" if self.parsed.json else f"{text}\n")


def predict_command(parsed: SimpleNamespace) -> int:
    """Print what a loop would do on a described storage, for each number of ranks, or the most ranks that it feeds."""
    if parsed.picture is not None:
        _check_picture(parsed.picture)
    path = find_pattern(parsed.pattern, parsed.override)
    storage, values = read_storage(parsed)
    assert storage is not None  # the option is required
    asked = _Question(parsed, path, storage, values)
    workload = asked.compile(asked.jobs[0] if asked.jobs else asked.place(1))
    has_only_saves = not _loops_that_read(workload) and not parsed.loop
    if (has_only_saves or parsed.vary) and (parsed.measured or parsed.picture):
        what = "saves have" if has_only_saves else "variants have"
        raise UsageError(f"--measured and --picture: {what} none{HELP}leave them out; they are about numbers of ranks")
    if has_only_saves and parsed.vary:
        raise UsageError(f"--vary: no loop reads{HELP}give one value by -D; saves are predicted for each of --ranks")
    if has_only_saves:
        _predict_saves(asked)
    elif parsed.vary:
        _predict_variants(asked, workload)
    else:
        _predict_ladder(asked, workload)
    return 0


def _predict_ladder(asked: _Question, workload: Workload) -> None:
    """Predict a loop on each number of ranks, or search the most."""
    parsed, loop = asked.parsed, _choose_loop(workload, asked.parsed.loop)
    results = read_measured(parsed.measured or (), workload.name, loop.name, asked.values)
    measured = {one.job: one.busy for one in results}
    jobs = {job.ranks: job for job in (*asked.jobs, *measured)}
    goal, has_ended = _choose_goal(asked, workload, loop), False
    if jobs:
        predicted = [(job, asked.predict(job)) for _, job in sorted(jobs.items())]
        shown = predicted[-1]
    elif loop.compute.time.nonnegative_mean() == 0 and loop.preprocess is None:
        text = f"{loop.name} has no compute, so there is no utilization to reach"
        raise UsageError(f"{text}{HELP}give --ranks, for its rate")
    else:
        found = find_most_ranks(lambda ranks: (asked.place(ranks), asked.predict(asked.place(ranks))), goal)
        predicted, has_ended = found
        shown = next((one for one in reversed(predicted) if one[1].lowest >= goal), predicted[0])

    if parsed.picture is not None:
        _draw_ladder(asked, f"{workload.name}: {loop.name}", predicted, results, goal)
    bound = "" if jobs else answers.search_verdict(predicted, goal, has_ended)
    others = [one.name for one in _loops_that_read(workload) if one.name != loop.name and not parsed.loop]
    compared = f"{count(len(results), 'run')} next to it" if results else "no file system was compared"
    doubts = {"with other -D": sum(one.differs for one in results)}
    doubts |= {"not from storage": sum(not one.is_from_storage for one in results)}
    compared += "".join(f", {number} {text}" for text, number in doubts.items() if number)
    parts = [answers.prediction_lines(workload, shown, goal, asked.storage, bound, others, compared)]
    if len(predicted) > 1 or measured:
        parts.append(answers.prediction_table(predicted, goal, measured))
    if saves := [row for job, one in predicted for row in answers.list_saves(job, one.saves, one)]:
        parts.append(answers.saves_table(saves))
    asked.show(workload.name, list(answers.prediction_content(predicted, goal, measured)), "\n\n".join(parts))


def _predict_variants(asked: _Question, workload: Workload) -> None:
    """Predict a loop with each combination of varied settings on one number of ranks."""
    from dliosim.compare.experiment import parse_varied
    from dliosim.compare.variants import combine_values, full_setting_name

    if len(asked.jobs) != 1:
        raise UsageError(f"--vary: variants are predicted on one number of ranks{HELP}write `--ranks N`")
    (job,), loop = asked.jobs, _choose_loop(workload, asked.parsed.loop)
    base = compile_document(asked.path, asked.values, job)
    goal, rows = _choose_goal(asked, workload, loop), list[tuple[str, Predicted]]()
    for values in combine_values(parse_varied(asked.parsed.vary)):
        named = [(full_setting_name(name, base, loop), value) for name, value in values]
        label = ", ".join("=".join(pair) for pair in values)
        rows.append((label, (job, asked.predict(job, named))))
    best, shown = max(rows, key=lambda row: (row[1][1].utilization, row[1][1].rate))
    close = sum(one.highest >= shown[1].lowest for _, (_, one) in rows) - 1

    bound = f"{best} is best" + (f", {close} more within its draws" if close else "")
    lines = answers.prediction_lines(workload, shown, goal, asked.storage, bound, [], "no file system was compared")
    content = answers.prediction_content([one for _, one in rows], goal, {})
    named_content = [{"variant": name} | one for (name, _), one in zip(rows, content, strict=True)]
    asked.show(workload.name, named_content, f"{lines}\n\n{answers.variants_table(rows, goal)}")


def _choose_goal(asked: _Question, workload: Workload, loop: Loop) -> float:
    return asked.parsed.until or goals_of(workload.expectations).get(loop.name, GOAL)


def _predict_saves(asked: _Question) -> None:
    """Predict the saves and restores of a workload that reads in no loop, on each number of ranks."""
    workloads = [asked.compile(job) for job in asked.jobs]
    saves = [list(predict_saves(one, forecast(one), asked.storage, asked.parsed.per_node)) for one in workloads]
    rows = [row for one, some in zip(workloads, saves, strict=True) for row in answers.list_saves(one.job, some)]
    if not rows:
        raise UsageError(f"{asked.parsed.pattern}: no loop reads{HELP}saves and restores are predicted for --ranks N")
    first, content = workloads[0], [answers.save_content(row) for row in rows]
    lines = answers.save_lines(first, rows, asked.storage)
    asked.show(first.name, content, f"{lines}\n\n{answers.saves_table(rows)}")


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a run, next to which a prediction is shown."""

    job: Job  #: ranks and nodes
    busy: Spread  #: storage-limited utilization
    differs: bool  #: it had other overrides than the prediction
    is_from_storage: bool  #: False if memory delivered bytes, or may have


def read_measured(places: Sequence[str], name: str, loop: str, values: Values) -> list[Measured]:
    """Return the results of a loop in directories of runs with other numbers of ranks.

    Raises UsageError for results of another pattern, and for those without a storage-limited utilization.
    """
    from dliosim.report.reader.load import SavedRun, load_results

    found: list[Measured] = []
    for one in load_results(places, with_arrays=False):
        if not isinstance(one, SavedRun) or one.run.name != name:
            raise UsageError(f"--measured {one.place}: these are no results of `dliosim run {name}`")
        answer = next((answer for answer in one.run.answers if answer.loop == loop), None)
        if answer is None or answer.storage_utilization is None:
            raise UsageError(f"--measured {one.place}: it has no storage-limited utilization of {loop}")
        job, run = Job(one.run.ranks, one.run.nodes), one.run
        if any(job.ranks == other.job.ranks for other in found):
            raise UsageError(f"--measured {one.place}: another result has {count(job.ranks, 'rank')}, too")
        about_pattern = {pair for pair in run.overrides if not pair[0].startswith(f"{run.modelled}.")}
        is_from_storage = answer.from_storage or bool(run.modelled)
        found.append(Measured(job, answer.storage_utilization, about_pattern != {*values}, is_from_storage))
    return found


def _check_picture(file: str) -> None:
    """Raise UsageError for a picture that cannot be drawn."""
    from dliosim.commands.report import check_matplotlib

    check_matplotlib()
    if Path(file).suffix not in (".png", ".svg"):
        raise UsageError(f"--picture {file}: name a file that ends in .png or .svg")


def _draw_ladder(
    asked: _Question, title: str, predicted: Sequence[Predicted], results: Sequence[Measured], goal: float
) -> None:
    """Draw the utilization over ranks, as predicted and as measured."""
    from dliosim.pictures.scaling import BusyPoint, utilization_curve
    from dliosim.pictures.style import apply_style, render_figure
    from dliosim.report.files.results import write_atomic

    file, name = Path(asked.parsed.picture), f"{title}, predicted on {asked.storage.name}"
    points = [BusyPoint(name, job.ranks, answers.range_of_draws(one), goal) for job, one in predicted]
    name = f"{title}, measured"
    points += [BusyPoint(name, one.job.ranks, one.busy, goal, not one.is_from_storage) for one in results]
    try:
        with apply_style():
            write_atomic(file, render_figure(utilization_curve(points), "svg" if file.suffix == ".svg" else "png"))
    except OSError as error:
        raise ExecutionError(f"--picture {file} cannot be written: {error.strerror}") from error


def find_most_ranks(predict: Callable[[int], Predicted], goal: float) -> tuple[list[Predicted], bool]:
    """Return the predictions that find the most ranks with this utilization, by ranks, and whether more were not tried.

    They are not if the data would last for too few steps, and beyond `MOST_RANKS`.
    """
    made: dict[int, Predicted] = {}
    has_ended = False

    def reaches(ranks: int) -> bool:
        nonlocal has_ended
        try:
            job, one = predict(ranks)
        except PatternError:
            if ranks == 1:
                raise
        else:
            if ranks == 1 or not one.is_read_ahead:
                made[ranks] = job, one
                return one.lowest >= goal
        has_ended = True
        return False

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
