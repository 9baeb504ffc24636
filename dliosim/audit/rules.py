"""Rules about results: a run, its loops, saves and restores, its machine; a comparison; repetitions of a job.

Sources: `MLPerf 6.6` is a section of MLPerf Storage's Submission_guidelines.md (v2.0), `MLPerf 4.3.1` a rule of its
Rules.md, both in github.com/mlcommons/storage; `IO500 6` a submission rule (io500.org), `#109` an issue; `Hoefler 5` a
rule in Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems", SC 2015. Others are pages of docs/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dliosim.compare.answer import EITHER, USE
from dliosim.compare.result import ComparisonAnswer
from dliosim.measure.answers import validity
from dliosim.measure.answers.sources import share_of_device, share_source
from dliosim.measure.figures import aggregate
from dliosim.measure.results.machine import LINK_SPEED, MEMORY_KINDS, OTHER_MOUNT, RESULTS_ON
from dliosim.measure.results.run_summary import Answer, RunSummary
from dliosim.measure.results.verdicts import CANNOT_SAY, NO_STORAGE
from dliosim.readable import count, number, percent, size
from dliosim.report.answer_sentences import sentence
from dliosim.report.phase_titles import title_of
from dliosim.report.reader.load import LoopResult
from dliosim.report.reader.results import ComparisonResult
from dliosim.report.run.repeats import CLOSE, main_figures, relative_spread
from dliosim.report.run.warnings import describe_partial

#: Severities: a figure with an objection is not fit to publish; a note is what a reviewer may ask.
OBJECTION, NOTE = "objection", "note"

#: Yields a sentence with values for each fault of a result, or of a part of one.
Check = Callable[..., Iterator[str]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule on what a reviewer would object to."""

    name: str  #: its name: `cold-share`
    #: arguments of `check`: a `run`; a `comparison` or a `loop` with its answer; `machine`, a run or a comparison; a
    #: `limit`, a loop with `null_share`; an `order`, a loop with `sequential_rate`; a `job`, all runs of it
    subject: str
    severity: str  #: OBJECTION or NOTE
    source: str  #: the document that asks for it
    #: what to type: {command} runs it again, {advice} is that of the answer
    mend: str
    check: Check  #: finds the faults


#: All rules, in the order of this module: objections first.
RULES: Final[list[Rule]] = []


def rule(subject: str, severity: str, source: str, mend: str) -> Callable[[Check], None]:
    """Add a function to the rules, whose name is that of the rule."""
    return lambda check: RULES.append(Rule(check.__name__.replace("_", "-"), subject, severity, source, mend, check))


#: How many times the memory of all nodes data must be, and a checkpoint (MLPerf's guidelines 6.6, rules 4.3.1).
_DATA_TIMES, _CHECKPOINT_TIMES = 5, 3
#: Epochs that count, and runs of a job, at least. MLPerf Storage asks for five runs.
_FEWEST: Final = 3
#: From this share of the rate without I/O on, the tool is what was measured; from this utilization on, it is compute.
_CEILING: Final = 0.9
#: Random reads may be faster than sequential ones by this, as runs differ.
_FASTER: Final = 1.1


def _reasons(answer: Answer | ComparisonAnswer) -> str:
    return "; ".join(map(sentence, answer.reasons))


def _memory_of(run: RunSummary) -> tuple[int, str]:
    """Return the bytes of memory of all nodes, 0 if unknown, and a text for them."""
    memory = run.environment.whole_memory_per_node * run.nodes
    return memory, size(memory, 3) if memory else "an unknown amount"


@rule("run", OBJECTION, "MLPerf 6.5", "on the storage itself: {command}")
def no_storage(run: RunSummary) -> Iterator[str]:
    """Find a run without I/O, or on a described storage."""
    if run.null or run.modelled:
        yield f"no file was read: calls waited as storage {run.modelled} says" if run.modelled else "nothing was read"


@rule("run", OBJECTION, "MLPerf v3.0 review", "{command}")
def partial_run(run: RunSummary) -> Iterator[str]:
    """Find a run that did not end."""
    if run.partial is not None:
        yield describe_partial(run.partial)


@rule("loop", OBJECTION, "MLPerf 6.6", "{advice}")
def cold_share(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find bytes from memory in epochs that count."""
    if answer.source in ("memory", "mixed"):
        epochs = loop.answer_epochs
        asked, given = sum(one.unique_bytes for one in epochs), sum(one.device_bytes or 0 for one in epochs)
        share = share_of_device(given, asked, sum(one.samples for one in epochs))
        yield f"{percent(share, 2)} of {size(asked, 3)} came from the device: {_reasons(answer)}"


@rule("loop", OBJECTION, "MLPerf 6.6", "{advice}")
def working_set(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find less data than 5 times memory, with reads uncounted."""
    memory, known = _memory_of(loop.run)
    asked = max(one.unique_bytes for one in loop.answer_epochs)
    if answer.source == "unknown" and not answer.from_storage and not 0 < _DATA_TIMES * memory <= asked:
        yield f"an epoch reads {size(asked, 3)} on nodes with {known} of memory, and reads are not counted"


@rule("run", OBJECTION, "MLPerf 4.3.1", "write `drop caches` before each `restore`")
def restore_from_cache(run: RunSummary) -> Iterator[str]:
    """Find restores of bytes that memory had."""
    memory, of_nodes = _memory_of(run)
    for phase in run.restores:
        asked, given, share = phase.verb.bytes_once, phase.verb.device_bytes, phase.verb.resident_share
        part = float(0 < _CHECKPOINT_TIMES * memory <= asked) if share is None else 1 - share
        if given is not None:
            part = share_of_device(given, asked, 0)
        if share_source(part) != "device" or run.is_stored_on(phase, MEMORY_KINDS):
            known = "is not known to have come" if given is None else f"came by {percent(part, 2)}"
            yield f"{title_of(phase)}: what it read, {size(asked, 3)} for {of_nodes} of memory, {known} from the device"


@rule("run", OBJECTION, "IO500 6, MLPerf 4.3.2", "write `fsync on` in the checkpoint")
def fsync_off(run: RunSummary) -> Iterator[str]:
    """Find saves that memory took."""
    yield from dict.fromkeys(f"{title_of(one)} has `fsync off`: memory took it" for one in run.saves if not one.fsync)


@rule("loop", OBJECTION, "answer.md", "{advice}")
def no_verdict(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find loops without a verdict."""
    if answer.verdict == CANNOT_SAY or (answer.verdict == NO_STORAGE and answer.from_storage):
        yield f"{answer.verdict}: {_reasons(answer)}"


@rule("loop", OBJECTION, "answer.md", "on a quiet machine, or with a core for each rank and reader: {command}")
def core_waits(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find waits for a core."""
    doubt = validity.doubt_of_core_waits(loop.run.environment, loop.phases, answer)
    if doubt and (answer.verdict != CANNOT_SAY or doubt.kind not in [reason.kind for reason in answer.reasons]):
        yield sentence(doubt)


@rule("loop", OBJECTION, "MLPerf 7", "use more samples, or more epochs")
def few_steps(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find too few steps."""
    steps, _ = validity.count_steps(loop.answer_epochs)
    if steps < validity.LEAST_STEPS and answer.verdict != CANNOT_SAY:
        yield f"{count(steps, 'step')} after the first of each epoch; at least {validity.LEAST_STEPS} are needed"


@rule("loop", OBJECTION, "IO500 #109", "name the memory or path that gave the bytes, or read more data")
def link_speed(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find more bytes than the network carries."""
    speed = re.match(r"\d{1,9}", dict(loop.run.environment.details).get(LINK_SPEED, ""))
    links, rate = int(speed[0]) * 125_000 if speed else 0, aggregate.bytes_per_second(loop.answer_epochs) or 0.0
    if 0 < links * loop.run.nodes < rate:
        yield f"{size(rate, 3)}/s on {count(loop.run.nodes, 'node')}, whose links carry {size(links, 3)}/s each"


@rule("run", OBJECTION, "answer.md", "{command}")
def verify_run(run: RunSummary) -> Iterator[str]:
    """Find steps that compared what they read."""
    if doubt := validity.doubt_of_checks(run):
        yield f"{sentence(doubt)}: rates and utilization include it"


@rule("run", OBJECTION, "MLPerf 4", "publish the figure as one that misses its bound")
def expectation_missed(run: RunSummary) -> Iterator[str]:
    """Find missed `expect` lines."""
    yield from (f"missed: {result.text}" for result in run.expectations if result.is_missed)


@rule("run", OBJECTION, "MLPerf 4.3.5", "name the part with each figure, or save all: -D scale=1, no `subset`")
def part_of_model(run: RunSummary) -> Iterator[str]:
    """Find saves of parts of a model."""
    yield from dict.fromkeys(f"{title_of(one)} is a part: {one.part_of}" for one in run.saves if one.part_of)


@rule("run", OBJECTION, "Hoefler 9", "name what was granted: dliosim report --full RESULTS")
def hints_refused(run: RunSummary) -> Iterator[str]:
    """Find striping and hints that were not granted."""
    notes = [note for phase in run.phases for note in phase.notes if "striping" in note]
    hints = [f"{key}={asked} was not granted" for phase in run.phases for key, asked, _ in phase.hints_refused]
    yield from dict.fromkeys([*notes, *hints])


@rule("comparison", OBJECTION, "compare.md", "{advice}")
def no_winner(result: ComparisonResult, answer: ComparisonAnswer) -> Iterator[str]:
    """Find comparisons without an answer, on a described storage, or that waited for cores."""
    if answer.verdict not in (USE, EITHER) or result.modelled:
        yield f"{result.modelled or answer.verdict}: {_reasons(answer)}"
    else:
        yield from (sentence(one) for one in answer.limits if one.kind == "core_wait_included")


@rule("job", OBJECTION, "Hoefler 5", "audit the folders run_* that this writes: {command} --repeat 5 --output DIR")
def few_runs(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Find fewer than 3 runs."""
    if len(runs) < _FEWEST:
        yield f"{count(len(runs), 'run')} of this job: MLPerf Storage asks for five"


@rule("job", OBJECTION, "MLPerf 6.7", "repeat all of them on a quiet machine, for longer")
def wide_spread(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Find repetitions that differ by over 5 %."""
    for title, values in main_figures(runs).items():
        if (spread := relative_spread(values)) > CLOSE:
            yield f"{title}: {count(len(runs), 'run')} differ by {percent(spread, 2)} of their mean"


@rule("limit", OBJECTION, "Hoefler 11", "use larger samples or fewer ranks a node, or quote utilization alone")
def tool_ceiling(loop: LoopResult, share: float | None) -> Iterator[str]:
    """Find rates within 10 % of those without I/O."""
    if share is not None and share >= _CEILING > (aggregate.utilization(loop.answer_epochs) or 0.0):
        yield f"with I/O it took {number(1 / share, 3)} times as long as without: the tool was measured, not storage"


@rule("loop", NOTE, "MLPerf 6.6", "name the memory of servers, and how caches were kept out")
def server_cache(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find reads uncounted, or by a server."""
    if answer.source == "unknown" or any(reason.kind == "server" for reason in answer.reasons):
        yield _reasons(answer)


@rule("loop", NOTE, "Hoefler 5", "use more `epochs`; without `cache off` add `caches cold each epoch`")
def few_epochs(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find fewer than 3 epochs that count."""
    if len(answer.epochs) < _FEWEST:
        yield f"{len(answer.epochs)} of {count(len(loop.epochs), 'epoch')} counted"


@rule("loop", NOTE, "metrics.md", "use fewer ranks a core, or quote storage-limited utilization alone")
def oversleep(loop: LoopResult, answer: Answer) -> Iterator[str]:
    """Find late compute."""
    if doubt := validity.doubt_of_oversleep(loop.phases):
        yield f"{sentence(doubt)}: rates include that"


@rule("machine", NOTE, "Hoefler 9", "run it again on a quiet machine, with a core for each rank")
def load_of_cores(result: RunSummary | ComparisonResult) -> Iterator[str]:
    """Find more ranks than cores, or other work on them."""
    node = result.environment
    if node.is_oversubscribed or node.was_busy:
        ranks, cores = count(node.ranks_per_node, "rank"), count(node.cores_per_node, "core")
        yield f"{ranks} on {cores} of a node, load average {number(node.load_average, 3)} in the minute before"


@rule("machine", NOTE, "MLPerf 3.4.2, 4.4.2", "add --output DIR, with a directory on another file system")
def results_place(result: RunSummary | ComparisonResult) -> Iterator[str]:
    """Find results on the file system of the data."""
    place = dict(result.environment.details).get(RESULTS_ON, "a file system that is not recorded")
    if place != OTHER_MOUNT:
        yield f"results were written to {place}"


@rule("run", NOTE, "MLPerf 3.1.2", "name it with each figure, or run all of it: -D scale=1")
def scale(run: RunSummary) -> Iterator[str]:
    """Find workloads smaller than published."""
    declared = re.search(r"^\s*param\s+scale\s*=\s*(\d+).*1 is the (?:published|real) size", run.pattern, re.MULTILINE)
    times = dict(run.overrides).get("scale", declared[1]) if declared else "1"
    if times != "1":
        yield f"scale={times} shrinks the published workload"


@rule("limit", NOTE, "Hoefler 11", "audit these together with the results of: {command} --null")
def no_null_run(loop: LoopResult, share: float | None) -> Iterator[str]:
    """Find loops without a run by --null."""
    if share is None:
        yield "no run without I/O that has these settings, ranks and nodes shows the limit of the tool"


@rule("order", NOTE, "IO500 #88", "drop caches before both, or write `cache off`")
def random_faster(loop: LoopResult, ordered: float | None) -> Iterator[str]:
    """Find random reads faster than sequential."""
    rate = aggregate.samples_per_second(loop.answer_epochs) or 0.0
    if ordered and rate > _FASTER * ordered:
        yield f"{number(rate / ordered, 3)} times as fast as the same job that reads in order"
