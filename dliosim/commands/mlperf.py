"""The commands `dliosim size` and `dliosim check --rules`: they need no MPI and touch no data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from dliosim import PATTERNS
from dliosim.commands.check_plan_explain import make_finder, make_job
from dliosim.commands.command_line.options import parse_values
from dliosim.commands.command_line.parser import quote_word
from dliosim.commands.command_line.pattern_files import find_pattern
from dliosim.commands.job.terminal import print_text
from dliosim.dlio import ENDINGS
from dliosim.dlio.samples import EVALUATION, TRAINING
from dliosim.errors import HELP, UsageError
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.mlperf.rules import Case, find_changes, judge_rules, multiply_dataset, read_rules, size_dataset
from dliosim.model import Job, Restore, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.forecast.forecast import forecast, loops_of
from dliosim.plan.forecast.forecast_types import Forecast
from dliosim.plan.samples.sample_index import concat_indexes
from dliosim.readable import count, size
from dliosim.report.files.results import copy_members
from dliosim.report.reader.load import SavedRun, load_results
from dliosim.report.text_table import SCREEN, wrap_text
from dliosim.units import format_bytes

#: Overrides of a pattern: names and phrases.
Values: TypeAlias = Sequence[tuple[str, str]]

# Version of what `size --json` prints.
_VERSION: Final = 1

# A node that writes this many times its memory has no checkpoint in its page cache: Rules.md of v3, 4.3.1.
_SAVED_TIMES: Final = 3

# Parameters that choose one of the published workloads, and change none.
_CHOICES: Final = ("scale", "accelerator")

_WORDS: Final = {True: "kept", False: "broken", None: "unknown"}

_NO_SUBMISSION: Final = "The rules ask for runs of DLIO itself, by mlpstorage: runs of dliosim are no submission."


def size_command(parsed: SimpleNamespace) -> int:
    """Print how many samples and files each rule asks for, and the -D to use; return 0. Raises UsageError."""
    path, values, job = find_pattern(parsed.pattern, parsed.override), parse_values(parsed), make_job(parsed)
    workload, planned = _plan_steps(parsed, path, values, job)
    sizes, left_out = list[dict[str, Any]](), list[str]()
    for name in dict.fromkeys(loop.dataset for loop in loops_of(workload.verbs) if loop.dataset):
        needed = parsed.times * parsed.memory * job.nodes
        try:
            sizes.append(size_dataset(workload, workload.dataset(name), needed, parsed.steps))
        except UsageError as error:
            left_out.append(error.message)
    if not sizes and not planned.states:
        raise UsageError((left_out or [f"{workload.name}: no loop reads a data set, and nothing is saved"])[0])
    pairs = [pair for one in sizes for pair in one["define"]]
    defined = [f"{name}={value}" for name, value in pairs]
    try:
        _plan(parsed, path, [*values, *pairs], job)
    except PatternError as error:
        text = f"the pattern does not take -D {' -D '.join(map(quote_word, defined))}: {error.diagnostics[0].message}"
        raise UsageError(f"{text}{HELP}`dliosim check {quote_word(parsed.pattern)} -D ...` shows where") from error
    limit = _SAVED_TIMES * parsed.memory
    restores = any(isinstance(verb, Restore) for verb, _ in flatten_verbs(workload.verbs))
    content = {
        "schema_version": _VERSION,
        "name": workload.name,
        "scale": workload.scale,
        "datasets": sizes,
        "define": [*parsed.define, *defined],
        "left_out": left_out,
        "checkpoints": [
            copy_members(one, "checkpoint", "bytes", "part_of")
            | {"node_bytes": one.bytes / job.nodes, "drop_caches": restores and one.bytes / job.nodes < limit}
            for one in planned.states
        ],
    }
    print_text(json.dumps(content) + "\n" if parsed.json else "\n".join([*_size_lines(parsed, job, content), ""]))
    return 0


def _size_lines(parsed: SimpleNamespace, job: Job, content: dict[str, Any]) -> Iterator[str]:
    yield f"{content['name']}  {_describe_job(job)} of {format_bytes(int(parsed.memory))}"
    if content["scale"] > 1:
        yield f"scale={content['scale']} shrinks the published workload; -D scale=1 sizes all of it"
    asked = {"by_memory": f"{parsed.times} x the memory of all nodes", "by_steps": f"{parsed.steps} steps an epoch"}
    for one in content["datasets"]:
        yield f"\n{one['dataset']}: {size(one['bytes'])}, bound by {one['bound_by']}"
        for by, text in asked.items():
            yield f"  {text}: {count(one[by][0], 'sample')} in {count(one[by][1], 'file')}"
    for one in content["checkpoints"]:
        part = f" ({one['part_of']})" * bool(one["part_of"])
        is_large = one["node_bytes"] >= _SAVED_TIMES * parsed.memory
        then = ": no cache has all of it" * is_large or ": drop caches between save and restore" * one["drop_caches"]
        yield f"\n{one['checkpoint']}: {size(one['bytes'])}{part}, {size(one['node_bytes'])} a node"
        yield f"  {_SAVED_TIMES} x the memory of a node is {size(_SAVED_TIMES * parsed.memory)}{then}"
    yield from (f"\nleft out: {text}" for text in content["left_out"])
    if content["datasets"]:
        words, define = [parsed.pattern, *parsed.override], content["define"]
        if parsed.pattern.endswith(ENDINGS):  # files of as many samples as before, by DLIO's key
            parts = {one.name: one.key for one in (TRAINING, EVALUATION)}
            files = [(parts[one["dataset"]], one[f"by_{one['bound_by']}"][1]) for one in content["datasets"]]
            words += [f"++workload.dataset.num_files_{key}={number}" for key, number in files]
            define = [one for one in define if not re.match(r"\w+_data\.(samples|layout)=", one)]
        words += ["--ranks", str(job.ranks), "--nodes", str(job.nodes), "--memory", format_bytes(int(parsed.memory))]
        words += [word for one in define for word in ("-D", one)]
        yield f"\ndliosim plan {' '.join(map(quote_word, words))}"


def _describe_job(job: Job) -> str:
    return f"{count(job.ranks, 'rank')} on {count(job.nodes, 'node')}"


def _plan(parsed: SimpleNamespace, path: Path, values: Values, job: Job) -> tuple[Workload, Forecast]:
    """Return a pattern with values of its settings, and its plan. Raises PatternError and PlanError."""
    finder = make_finder(parsed)
    workload = compile_pattern(path, values, job, finder)[0]
    return workload, forecast(workload, {name: concat_indexes(one.indexes) for name, one in finder.sources.items()})


def _plan_steps(parsed: SimpleNamespace, path: Path, values: Values, job: Job) -> tuple[Workload, Forecast]:
    """Return what `_plan` does; of fewer samples than a step takes, with as many for each rank as one rank has."""
    try:
        return _plan(parsed, path, values, job)
    except PatternError as error:
        if {one.code for one in error.diagnostics if one.is_error} != {"E201"}:
            raise
        alone = [one for one in _plan(parsed, path, values, Job(1))[0].datasets if not one.source]
        more = [pair for one in alone for pair in multiply_dataset(one, job.ranks)]
        return _plan(parsed, path, [*values, *more], job)


def check_rules(parsed: SimpleNamespace) -> int:
    """Print for each rule if it is kept; return 1 if one is broken. Raises UsageError and PatternError."""
    if any(map(_names_results, parsed.pattern)):
        cases = [_read_runs(parsed)]
    else:
        paths = [find_pattern(one, parsed.override) for one in parsed.pattern]
        cases = [_make_case(parsed, path, parse_values(parsed), make_job(parsed)) for path in paths]
    lines, status = list[str](), 0
    for case in cases:
        judged, name, job = judge_rules(case, read_rules(parsed.rules)), case.workload.name, case.workload.job
        if not judged:
            raise UsageError(f"{name}: the rules are about training and `save`, and it has neither")
        lines.append(f"{name}  {_describe_job(job)}: {parsed.rules}, CLOSED division")
        for rule, verdict, why in judged:
            head = f"{_WORDS[verdict]:<8} {rule['id']:<7} "
            lines.append(wrap_text(f"{rule['text']}; {why}", head, " " * len(head), SCREEN))
        lines.append("")
        status = max(status, *(verdict is False for _, verdict, _ in judged))
    print_text("\n".join([*lines, wrap_text(_NO_SUBMISSION, "", "", SCREEN), ""]))
    return status


def _names_results(given: str) -> bool:
    """Return whether a word is a directory, but none of patterns, or a bundle of results."""
    place = Path(given)
    return place.suffix == ".zip" or (place.is_dir() and not any(place.glob("*.dlio")))


def _make_case(parsed: SimpleNamespace, path: Path, values: Values, job: Job) -> Case:
    """Return a pattern on a job; what `values` change is seen from the pattern without them."""
    workload, planned = _plan(parsed, path, values, job)
    base, _ = _plan_steps(parsed, path, [pair for pair in values if pair[0] in _CHOICES], job)
    is_shipped = any(one.read_bytes() == path.read_bytes() for one in PATTERNS.glob("*.dlio"))
    return Case(workload, planned, parsed.memory, find_changes(base, workload), is_shipped=is_shipped)


def _read_runs(parsed: SimpleNamespace) -> Case:
    """Return the runs of directories of results, with their pattern, which is compiled again; UsageError for others."""
    if not all(map(_names_results, parsed.pattern)):
        raise UsageError("--rules judges patterns, or results: name one kind alone")
    if values := [*parsed.override, *parsed.define]:
        raise UsageError(f"{values[0]}: results have the values that they ran with, and take no others")
    saved = load_results(parsed.pattern, with_arrays=False)
    whole = [one for one in saved if isinstance(one, SavedRun) and one.run.partial is None]
    if others := [one.place for one in saved if one not in whole]:
        raise UsageError(f"{others[0]}: --rules judges whole runs, and this is a comparison or has partial results")
    runs = sorted(((one.place, one.run) for one in whole), key=lambda pair: pair[1].started)
    first = runs[0][1]
    if other := next((place for place, run in runs if run.digest != first.digest), None):
        raise UsageError(f"{other} and {runs[0][0]}: --rules judges runs of one workload, and their digests differ")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pattern.dlio"  # without the files that it includes, which results do not have
        path.write_text(first.pattern, encoding="utf-8")
        path = next((one for one in PATTERNS.glob("*.dlio") if one.read_bytes() == path.read_bytes()), path)
        case = _make_case(parsed, path, first.overrides, Job(first.ranks, first.nodes))
    return replace(case, runs=runs, memory=parsed.memory or first.environment.whole_memory_per_node or None)
