"""results.json read back into the figures that it was written from."""

from __future__ import annotations

from dliosim.measure.answers.sources import SOURCES
from dliosim.measure.figures.aggregate import Latencies
from dliosim.measure.figures.declaration import latency_kinds
from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary
from dliosim.measure.results.file_phases import FILE_PHASES
from dliosim.measure.results.machine import Environment, FileSystem
from dliosim.measure.results.phase import LoopPhase, LoopProgress, PartialProgress, PhaseSummary
from dliosim.measure.results.run_summary import Answer, ExpectationResult, RunSummary
from dliosim.model.job import MAX_RANKS
from dliosim.report.files.results import SCHEMA_VERSION
from dliosim.report.phase_titles import group_phases, title_of
from dliosim.report.reader.by_type import read_object, read_quantiles
from dliosim.report.reader.fields import Fields

_MAX_PATTERN = 4 << 20


def parse_run(results: Fields) -> tuple[RunSummary, dict[str, Latencies]]:
    """Return the content of results.json, and for each loop title the latencies of its epochs that count together.

    Histograms are not in the file and stay empty; the latencies replace them. UsageError where the file is wrong.
    """
    results.check_version(SCHEMA_VERSION)
    ranks, null = results.whole("ranks", 1, MAX_RANKS), results.flag("null")
    run = read_object(
        RunSummary,
        results,
        ranks=ranks,
        nodes=results.whole("nodes", 1, ranks),
        pattern=results.text("pattern", _MAX_PATTERN, lines=True),
        overrides=results.pairs("overrides"),
        environment=parse_environment(results.child("environment")),
        phases=tuple(_phase(one, ranks, null) for one in results.child_list("phases")),
        expectations=tuple(read_object(ExpectationResult, one) for one in results.child_list("expectations")),
        answers=tuple(read_object(Answer, one) for one in results.child_list("answer")),
        mtbf=_positive_seconds(results, "mtbf_seconds"),
        restart_time=_positive_seconds(results, "restart_seconds"),
        partial=_partial(results.child_or_none("partial")),
    )
    latencies = {one.text("title"): _latencies(one) for one in results.child_list("loops")}
    for phase in run.loops:
        if title_of(phase) not in latencies:
            raise results.field_error("loops", f"does not have {title_of(phase)}")
    _check_answers(run, results)
    return run, latencies


def _check_answers(run: RunSummary, results: Fields) -> None:
    """Check that each loop has its answer, about epochs that it has; partial results have none."""
    groups = group_phases(run.loops) if run.answers or run.partial is None else []
    if [one.loop for one in run.answers] != [runs[0].name for runs in groups]:
        raise results.field_error("answer", "does not have one entry a loop")
    for answer, runs in zip(run.answers, groups, strict=True):
        epochs = sum(len(one.epochs) for one in runs)
        if answer.source not in SOURCES or any(not 1 <= number <= epochs for number in answer.epochs):
            raise results.field_error("answer", f"has a source or an epoch that {answer.loop} does not have")


def _partial(found: Fields | None) -> PartialProgress | None:
    if found is None:
        return None
    return read_object(
        PartialProgress, found, loops=tuple(read_object(LoopProgress, one) for one in found.child_list("loops"))
    )


def parse_environment(found: Fields) -> Environment:
    """Return the machine and the libraries, as results.json and compare.json have them."""
    places = tuple(read_object(FileSystem, one) for one in found.child_list("file_systems"))
    return read_object(Environment, found, file_systems=places)


_LOOPS = ("train", "evaluate", "infer")


def _phase(found: Fields, ranks: int, null: bool) -> PhaseSummary:
    kind = found.text("kind")
    if kind in FILE_PHASES:
        return read_object(FILE_PHASES[kind], found, verb=read_object(VerbSummary, found.child("files"), ranks=ranks))
    if kind not in _LOOPS:
        if found.values.get("epochs") or found.values.get("files"):  # what would be left out in silence
            raise found.field_error("kind", "is not known")
        return read_object(PhaseSummary, found)
    epochs = (read_object(EpochSummary, one, ranks=ranks, null=null) for one in found.child_list("epochs"))
    return read_object(LoopPhase, found, epochs=tuple(epochs))


def _latencies(loop: Fields) -> Latencies:
    return {kind: read_quantiles(loop, f"{kind}_latency_seconds") for kind in latency_kinds(EpochSummary)}


def _positive_seconds(found: Fields, key: str) -> float | None:
    """Return seconds from the command line, if they were given; UsageError for 0, as they are divided by."""
    value = found.number_or_none(key)
    if value == 0:
        raise found.field_error(key, "is not above 0")
    return value
