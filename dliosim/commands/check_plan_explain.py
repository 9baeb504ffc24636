"""The commands `dliosim patterns`, `check`, `plan` and `explain`: they need no MPI and touch no data."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from dliosim import PATTERNS
from dliosim.commands.command_line.options import parse_roots, parse_values, read_storage
from dliosim.commands.command_line.pattern_files import find_pattern, list_names, locate_pattern
from dliosim.commands.command_line.program import insert_program, load_named
from dliosim.commands.job.terminal import has_colours, print_text, user_terminal
from dliosim.errors import ExecutionError, PlanError, UsageError
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.node.memory import whole_memory
from dliosim.language.compile import compile_document, compile_pattern, compile_storage, describes_storage
from dliosim.language.diagnostics import Diagnostic, Label, PatternError, render
from dliosim.model import Job
from dliosim.readable import count, printable
from dliosim.report.progress.progress_line import ProgressLine, show_elapsed

#: What checks rules: named, as it plans, for which it imports numpy.
_RULES_CHECKER: Final = "commands.mlperf:check_rules"


def make_job(parsed: SimpleNamespace) -> Job:
    """Return the job of --ranks and --nodes; UsageError for a node without a rank."""
    nodes = parsed.nodes or 1
    if nodes > parsed.ranks:
        text = f"--nodes {nodes}: every node has a rank, and there are {parsed.ranks} (--ranks)"
        raise UsageError(f"{text}\n  = help: write `--nodes {parsed.ranks}`, or `--ranks {nodes}`")
    return Job(parsed.ranks, nodes)


def make_finder(parsed: SimpleNamespace) -> FileFinder:
    """Return the finder of existing files below --dir and --root, which shows its progress."""
    return FileFinder(parse_roots(parsed), ProgressLine(user_terminal()))


def check_command(parsed: SimpleNamespace) -> int:
    """Print for each pattern whether it is right; return the exit status.

    The status is 2 if a pattern is wrong, 1 if only existing files are damaged, or with --rules a rule is broken.
    """
    if parsed.rules is not None:
        return int(load_named(_RULES_CHECKER)(parsed))
    status, job = 0, make_job(parsed)
    for pattern in parsed.pattern:
        try:
            path = find_pattern(pattern, parsed.override)
            if describes_storage(path):
                storage = compile_storage(path, parse_values(parsed)).storage
                sys.stdout.write(f"{printable(pattern)}: ok (storage {storage.name})\n")
                continue
            workload, warnings = compile_pattern(path, parse_values(parsed), job, make_finder(parsed))
        except PatternError as error:
            sys.stderr.write(render(error.diagnostics, has_colours(sys.stderr, 2)) + "\n")
            status = max(status, error.exit_code)
            continue
        except UsageError as error:  # a workload file of DLIO that becomes no pattern; the others may
            sys.stderr.write(f"{error}\n")
            status = error.exit_code
            continue
        if warnings:
            sys.stderr.write(render(warnings, has_colours(sys.stderr, 2)) + "\n")
        place = count(parsed.ranks, "rank")
        sys.stdout.write(f"{printable(pattern)}: ok ({workload.name}, digest {workload.digest()} on {place})\n")
        for loop, dataset in workload.missing_prepares().items():
            sys.stdout.write(f"  note: `{loop}` reads `{dataset}`, which this pattern does not prepare before\n")
        for root in sorted(workload.run_roots - parse_roots(parsed).keys()):
            sys.stdout.write(f"  note: a run needs a place for `root {root}`: add --root {root}=DIR\n")
    return status


def plan_command(parsed: SimpleNamespace) -> int:
    """Print the plan of a pattern, or with --csv the reads of one rank."""
    from dliosim.plan.forecast.checkpoint_interval import LOSS
    from dliosim.plan.forecast.forecast import forecast, list_reads
    from dliosim.plan.forecast.interval_forecast import FailureModel, StateRisks, forecast_risks
    from dliosim.plan.forecast.needs import StorageRates, storage_rates
    from dliosim.plan.samples.sample_index import concat_indexes
    from dliosim.report.plan.answer_lines import plan_json, plan_lines
    from dliosim.report.plan.tables import plan_tables, risk_tables, write_csv

    rank, epoch = parsed.rank or 0, (parsed.epoch or 1) - 1
    if rank >= parsed.ranks:
        raise UsageError(f"--rank {rank}: ranks count from 0, and there are {parsed.ranks}")
    path, finder = find_pattern(parsed.pattern, parsed.override), make_finder(parsed)
    described, values = read_storage(parsed)
    workload, warnings = compile_pattern(path, values, make_job(parsed), finder)
    if warnings:
        sys.stderr.write(render(warnings, has_colours(sys.stderr, 2)) + "\n")
    sources = dict(finder.sources)
    for dataset in workload.datasets:
        try:
            prepared = finder.find_prepared(dataset)
        except ExecutionError as error:
            if parsed.csv:
                raise
            text = f"note: {error}; `{dataset.name}` is estimated as if it had not been prepared"
            sys.stderr.write(f"{printable(text, lines=True)}\n")
            continue
        if prepared is not None:
            sources[dataset.digest()] = prepared
    indexes = {name: concat_indexes(source.indexes) for name, source in sources.items()}
    if parsed.csv:
        named = {name: (indexes[name], source.names) for name, source in sources.items()}
        write_csv(sys.stdout, list_reads(workload, rank, epoch, parsed.loop, named))
    else:
        memory = parsed.memory or whole_memory() or 0
        with show_elapsed(user_terminal(), f"plan {printable(parsed.pattern)} on {count(parsed.ranks, 'rank')}"):
            try:
                found = forecast(workload, indexes)
            except PlanError as error:
                if not error.noun:
                    raise
                raise _locate_error(error, path, parsed) from error
        risks: list[StateRisks] = []
        storage, loss = StorageRates(parsed.bandwidth, parsed.opens), parsed.loss or LOSS
        if described is not None:
            storage = storage_rates(described, workload.job.nodes)
        storage = replace(storage, local=parsed.local, local_space=parsed.local_space)
        if parsed.mtbf is not None:
            failures = FailureModel(parsed.mtbf, parsed.save_time, storage.bandwidth, parsed.restart_time, loss)
            risks = list(forecast_risks(workload, found, failures))
        if parsed.json:
            text = plan_json(workload, found, memory, parsed.memory is not None, parsed.mtbf, risks, storage, loss)
        else:
            first = plan_lines(workload, found, memory, risks, _title_notes(parsed), storage, loss)
            text = f"{first}\n\n{plan_tables(workload, found)}"
            if parsed.mtbf is not None:
                text += f"\n{risk_tables(parsed.mtbf, risks)}\n"
        print_text(text)
    return 0


def _locate_error(error: PlanError, path: Path, parsed: SimpleNamespace) -> PatternError:
    """Return the error of a data set that cannot be planned, with its place in the pattern, compiled once more."""
    compiled = compile_document(path, parse_values(parsed), make_job(parsed), make_finder(parsed))
    place = Label(compiled.context.document.nouns[error.noun].place, "too many")
    return PatternError([Diagnostic(error.code or "E113", error.message, (place,))])


def _title_notes(parsed: SimpleNamespace) -> list[str]:
    """Return what a plan took for granted about nodes, with the options that say otherwise; a shorter form follows."""
    guessed = ["--nodes"] * (parsed.nodes is None and parsed.ranks > 1) + ["--memory"] * (parsed.memory is None)
    if parsed.memory is None:
        return [f" (as this machine; {', '.join(guessed)})", f" ({', '.join(guessed)})"]
    return [" (if there are more: --nodes N)" if guessed else ""]


def explain_command(parsed: SimpleNamespace) -> int:
    """Print the entry of an error code, or a pattern resolved."""
    from dliosim.language.diagnostics import explain_code, is_code
    from dliosim.language.unparse import explain_pattern, explain_storage

    subject: str = parsed.subject
    if not is_code(subject) and (subject.endswith(".dlio") or locate_pattern(subject)):
        path = find_pattern(subject, parsed.override)
        if describes_storage(path):
            text = explain_storage(path, parse_values(parsed))
        else:
            text = explain_pattern(path, parse_values(parsed), make_job(parsed), make_finder(parsed))
        sys.stdout.write(printable(text, lines=True) + "\n")
    else:
        sys.stdout.write((explain_code(subject) if is_code(subject) else _explain_word(subject)) + "\n")
    return 0


def _explain_word(word: str) -> str:
    """Return what a statement, a setting or a figure is, or another word for one; UsageError for other words."""
    from dliosim.language.diagnostics import catalogue, suggest_word
    from dliosim.language.setting_words import describe_setting, describe_statement
    from dliosim.language.suggest.slips import mend
    from dliosim.measure.figures.words import describe_answer_word, describe_figure, describe_heading

    shown = describe_figure(word), describe_answer_word(word)
    exact = (describe_statement(word), describe_setting(word, exact=True), *shown)
    text = "\n".join(dict.fromkeys(filter(None, exact))) or describe_heading(word)
    if not text:
        figure = next(iter(mend(word, lambda name: bool(describe_figure(name)))), "")
        text = describe_figure(figure) if figure else describe_setting(word)
    if text:
        return text
    code = suggest_word(f"E{word}" if word.isdecimal() else word, catalogue()).replace("`", "`dliosim explain ", 1)
    if re.fullmatch(r"[EWR]\d+", word.upper()):
        raise UsageError(f"`{word}` is not a code\n  = help: codes are {', '.join(catalogue())}")
    near = suggest_word(word, list_names()).replace("`", "`dliosim explain ", 1)
    hint = code or near or "write `dliosim explain E204`, `dliosim explain readers` or `dliosim explain cosmoflow`"
    raise UsageError(f"`{word}` is not a code, statement, setting, figure or pattern\n  = help: {hint}")


_USE = """
  dliosim explain NAME               every setting, with its value and where it is from
  dliosim plan NAME --ranks 512      what would 512 ranks do?
  mpiexec -n 4 dliosim run NAME      do it, with real I/O

They are files in {folder}
"""


def patterns_command(parsed: SimpleNamespace) -> int:
    """Print a line for each pattern that comes with dliosim, and how to use one; return 0."""
    listed = list_names()
    width = max(map(len, listed))
    for name in listed:
        # A pattern's first line is a comment that says what it stresses.
        with (PATTERNS / f"{name}.dlio").open(encoding="utf-8") as file:
            sys.stdout.write(f"{name:<{width}}  {file.readline().lstrip('# ')}")
    sys.stdout.write(insert_program(_USE).format(folder=PATTERNS))
    return 0
