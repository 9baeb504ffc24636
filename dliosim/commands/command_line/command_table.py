"""The commands of `dliosim`: each declares its options, which of them contradict, and the function that it calls.

Functions are named, not imported: `--help` and `--version` load neither numpy nor mpi4py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from dliosim.commands.command_line import option_types as types
from dliosim.dlio import ENDINGS
from dliosim.dlio.known_keys import VERSIONS

#: Seconds after which a stall is reported. On Lustre and on NFS, a failover of a server or an eviction of a client ends
#: within five minutes: anything longer is worth a look.
_STALL = 300.0

#: Where data are stored without --dir.
DATA_DIRECTORY: Final = "dliosim-data"

#: What stands behind options, and in the place of arguments, in a line to type: for --help and for suggestions.
EXAMPLES: Final = {
    "PATTERN": "cosmoflow",
    "RESULTS": "dliosim-results-*",
    "CODE|PATTERN": "E204",
    "SHELL": "bash",
    "DIR": "dliosim-data",
    "-D": "train.epochs=1",
    "--dir": "/scratch/me",
    "--root": "fast=/mnt/nvme",
    "--output": "my-results",
    "--ranks": "8",
    "--nodes": "2",
    "--mtbf": "4 h",
    "--restart-time": "10 min",
    "--save-time": "30 s",
    "--bandwidth": "100 GB/s",
    "--opens": "1_000_000/s",
    "--local": "3 GB/s",
    "--local-space": "1.6 TB",
    "--per-node": "8",
    "--until": "utilization 90 %",
    "--most": "12",
    "--pass-time": "10 s",
    "--storage": "scratch.dlio",
    "--loss": "2 %",
    "--memory": "512 GB",
    "--stall-report": "600 s",
    "--stall-timeout": "600 s",
    "--vary": "api=posix,mpi-independent",
    "--loop": "train",
    "--what": "save",
    "--repeat": "8",
    "--warm-up": "1",
    "--caches": "cold",
    "--seed": "1",
    "--rank": "0",
    "--epoch": "1",
    "--trace": "steps 1 to 100, ranks 0 to 7, at most 1 GB",
    "--html": "page.html",
    "--png": "pictures",
    "--bundle": "artifact.zip",
    "--picture": "ladder.png",
    "--measured": "dliosim-results-*",
    "--dlio": "mlperf-v2",
    "--dlio-summary": "dlio-files",
    "--rules": "mlperf-v3",
    "--times": "5",
    "--steps": "500",
    "-o": "mine.dlio",
    "TRACE": "my-results",
    "--explain": "unoverlapped-io",
    "export": "export",
    "--format": "csv",
    "--part": "steps 1 to 100, ranks 0 to 7",
    "FILE.yaml": "unet3d_h100.yaml",
    "NAME": "mine",
    "--from": "cosmoflow",
}

#: Versions of MLPerf Storage whose rules are known: files of dliosim/mlperf.
_RULES: Final = ("mlperf-v2", "mlperf-v3")

#: Names and arguments of `add_argument`.
Option: TypeAlias = "tuple[tuple[str, ...], dict[str, Any]]"


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the command line."""

    function: str  #: `module:function` in `dliosim`, called with the parsed options; on ranks a class
    help: str  #: line of `dliosim --help`
    example: str  #: line to type
    options: tuple[Option, ...]  #: options and arguments, in the order of `--help`
    find_contradiction: Callable[[SimpleNamespace], str] = lambda parsed: ""  #: returns which options contradict, or ""


#: Types of values, by what --help shows for them; others are texts.
_TYPES: Final = {
    **dict.fromkeys(("N", "M", "E"), types.parse_positive),
    **dict.fromkeys(("R", "S"), types.parse_natural),
    "D": types.parse_time,
    "SIZE": types.parse_size,
    "B": types.parse_bandwidth,
    "N/s": types.parse_opens,
    "SHARE": types.parse_share,
    "GOAL": types.parse_goal,
}


def _option(declared: str, text: str, **more: Any) -> Option:
    """Return an option or argument that is declared by its names and what --help shows for its value."""
    *names, metavar = declared.split(" ")
    return tuple(names), {"metavar": metavar, "help": text, "type": _TYPES.get(metavar)} | more


def _flag(name: str, text: str) -> Option:
    return (name,), {"action": "store_true", "help": text}


def _job(default: int | None) -> tuple[Option, ...]:
    """Return the options for the size of a job; without a default the ranks must be given."""
    text = f"ranks of the job, {default} if not given" if default else "ranks of the job"
    return (
        _option("--ranks N", text, type=types.parse_ranks, default=default, required=default is None),
        _option("--nodes M", "nodes of the job, 1 if not given"),
    )


def _failures(restart: str) -> tuple[Option, ...]:
    mtbf = (
        "mean time between failures of the whole job (of N nodes: that of a node / N): says how often it is "
        "best to save (Young, Daly), and what failures and saves cost then"
    )
    until = f"with --mtbf: from a failure until the job continues (default: {restart})"
    return (_option("--mtbf D", mtbf), _option("--restart-time D", until))


def _output(kind: str) -> Option:
    return _option("--output DIR", f"where results go, a directory without any (default: a new dliosim-{kind}-*)")


_PATTERN_HELP: Final = (
    "a pattern file (.dlio), the name of a pattern that `dliosim patterns` lists, or a workload file of DLIO (.yaml), "
    "with overrides of its keys where needed: ++workload.train.epochs=2"
)
_PATTERN: Final = _option("pattern PATTERN", _PATTERN_HELP)


def _define(text: str) -> Option:
    return _option("-D NAME=VALUE", f"{text}; may be given several times", dest="define", action="append", default=[])


#: Values of the pattern's parameters, and its roots.
_VALUES: Final = (
    _define(
        "a parameter (-D batch=4) or a setting of a named block or verb (-D train.readers=0, "
        '-D universe.layout="shared file")'
    ),
    _option("--dir DIR", "where data are stored (default: ./dliosim-data)", default=DATA_DIRECTORY),
    _option("--root NAME=DIR", "another tier, for `root NAME` in a pattern", action="append", default=[]),
)

_PAGE: Final = _option("--html FILE", "write one page with all tables and pictures, complete in itself")
_JSON: Final = _flag("--json", "print the answer alone, as a line of JSON, for scripts (docs/answer.md)")

_DLIO: Final = _option(
    "--dlio VERSION",
    f"of DLIO: {', '.join(VERSIONS)} (default: guessed from the keys of its file, mlperf-v2 for a pattern)",
    choices=tuple(VERSIONS),
)

_STALLS: Final = (
    _option(
        "--stall-report D",
        "when no step, chunk or call has ended for this time, say which rank the others wait for "
        f'(default {_STALL / 60:.0f} min; "off": never)',
        type=types.parse_time_or_off,
        default=_STALL,
    ),
    _option(
        "--stall-timeout D",
        "when nothing has ended for this time, say so and end the job with 1 (default: off)",
        type=types.parse_time_or_off,
    ),
)


def _list_given(parsed: SimpleNamespace, *names: str) -> list[str]:
    """Return those of some options that are on the line."""
    values = {name: getattr(parsed, name) for name in names}
    return [f"--{name.replace('_', '-')}" for name, value in values.items() if value is not None and value is not False]


def _find_run_contradiction(parsed: SimpleNamespace) -> str:
    if parsed.storage is not None and (others := _list_given(parsed, "null", "verify", "mtbf")):
        return f"--storage and {others[0]}: a run on a described storage reads no file"
    if parsed.null and (others := _list_given(parsed, "verify", "with_null")):
        done = "check" if parsed.verify else "compare with"
        return f"--null and {others[0]}: a run without I/O has nothing to {done}"
    return _find_missing(parsed, {"restart_time": "mtbf", "warm_up": "repeat", "dlio": "dlio_summary"})


def _find_check_contradiction(parsed: SimpleNamespace) -> str:
    """Return the words that are settings in the place of patterns, as argparse would say it."""
    words = [word for word in parsed.pattern if re.fullmatch(r"[A-Za-z][\w.]*=\S+", word)]
    pairs = [word for word in words if not Path(word).exists()]
    imported = any(word.endswith(ENDINGS) for word in parsed.pattern)
    is_alone = len(pairs) == len(parsed.pattern)
    if pairs and not imported and not is_alone:
        return f"unrecognized arguments: {' '.join(pairs)}"
    return _find_missing(parsed, {"memory": "rules"})


def _find_report_contradiction(parsed: SimpleNamespace) -> str:
    printed = _list_given(parsed, "json", "full")
    if len(printed) > 1:
        return "--json and --full: one prints an answer for scripts, the other tables"
    if printed and _list_given(parsed, "html", "png"):
        return f"{printed[0]} prints, and --html and --png write files"
    return ""


def _find_audit_contradiction(parsed: SimpleNamespace) -> str:
    given = _list_given(parsed, "text", "bundle", "json", "strict")
    is_alone = len(given) < 2 or given == ["--json", "--strict"]
    return "" if is_alone else f"{given[0]} and {given[1]}: each is a job of its own"


def _find_analyze_contradiction(parsed: SimpleNamespace) -> str:
    given = _list_given(parsed, "json", "full", "html")
    if parsed.explain is not None:
        return f"--explain and {given[0]}: an explanation is of no trace" if given else ""
    if not parsed.traces:
        return "the following arguments are required: TRACE"
    if parsed.json and parsed.full:
        return "--json and --full: one prints figures for scripts, the other tables"
    return f"{given[0]} and --html: one prints, the other writes a page" if len(given) > 1 else ""


def _find_plan_contradiction(parsed: SimpleNamespace) -> str:
    chosen = _list_given(parsed, "rank", "epoch", "loop")
    if chosen and not parsed.csv:
        return f"{chosen[0]} chooses what --csv lists, and there is no --csv"
    if parsed.json and parsed.csv:
        return "--json and --csv: one prints an answer for scripts, the other a list of reads"
    if parsed.csv and parsed.mtbf is not None:
        return "--mtbf has a table of its own, and --csv prints none"
    limits = _list_given(parsed, "bandwidth", "opens", "storage", "local", "local_space", "loss")
    if parsed.storage is not None and {"--bandwidth", "--opens"} & {*limits}:
        return "--storage: the file has the rates that --bandwidth and --opens give"
    if parsed.csv and limits:
        return f"{limits[0]} is for the answer of a plan, and --csv prints a list of reads"
    return _find_missing(parsed, {"restart_time": "mtbf", "save_time": "mtbf"})


def _find_missing(parsed: SimpleNamespace, needed: dict[str, str]) -> str:
    """Return which option is given without another that it needs; empty if there is none."""
    lone = [pair for pair in needed.items() if _list_given(parsed, pair[0]) and not _list_given(parsed, pair[1])]
    return " goes with ".join(f"--{name.replace('_', '-')}" for name in lone[0]) + ", which is missing" if lone else ""


#: The function that makes a pattern of a trace, which `new` calls: nothing of the core imports the analysis.
TRACE_READER: Final = "analyze.commands.infer:make_pattern"

COMMANDS: Final = {
    "patterns": Command(
        "commands.check_plan_explain:patterns_command",
        "list the patterns that come with dliosim, and what each stresses",
        "dliosim patterns",
        (),
    ),
    "run": Command(
        "commands.run:RunCommand",
        "run a pattern with real I/O, and print what was measured",
        "mpiexec -n 4 dliosim run cosmoflow",
        (
            _PATTERN,
            *_VALUES,
            _output("results"),
            _flag("--null", "no I/O at all: measures the tool itself"),
            _option("--repeat N", "run it N times, and print the spread of their figures"),
            _option("--warm-up N", "with --repeat: runs before these, which do not count", type=types.parse_natural),
            _option("--storage FILE", "no I/O: calls wait as on the storage that FILE describes (docs/answer.md)"),
            _flag("--with-null", "run every loop again without I/O: gives the slowdown"),
            _flag("--verify", "check every byte read, not only the ends of each sample"),
            _flag(
                "--strict",
                "end with status 3 where an `expect` line is missed, for CI (default: 0, as it was measured)",
            ),
            _option(
                "--trace PART",
                "record every operation, all or a part, in trace.h5 in the results, for dliosim analyze",
                type=types.parse_trace,
                nargs="?",
                const="",
            ),
            _option("--dlio-summary DIR", "also write DLIO's files; keeps 56 bytes a step and rank (docs/dlio.md)"),
            _DLIO,
            _flag("--live", "write a line of progress every ten seconds where there is no terminal (docs/report.md)"),
            _JSON,
            *_failures("as long as the restores of this run, else as its saves"),
            *_STALLS,
        ),
        find_contradiction=_find_run_contradiction,
    ),
    "compare": Command(
        "commands.compare:CompareCommand",
        "say which of several ways is faster, and if the difference is real",
        "dliosim compare cosmoflow --vary api=posix,mpi-independent",
        (
            _PATTERN,
            _option(
                "--vary NAME=A,B,...",
                "what differs between variants: anything that -D takes, or a setting of the loop, its data set or its "
                "checkpoint without their name (api, hints, order, transfer, layout, writers, ...); may be given "
                "several times, for all combinations",
                action="append",
                required=True,
            ),
            *_VALUES,
            _option("--storage FILE", "no I/O: calls wait as on the storage that FILE describes (docs/answer.md)"),
            _option("--loop NAME", "which loop to compare, if the pattern has several"),
            _flag("--checkpoints", "let the loop save its checkpoints, which it does not while it is compared"),
            _option(
                "--what VERB",
                "compare how long the job stalls for a checkpoint: save, restore, or with its name "
                '"save NAME" (default for patterns without a loop)',
            ),
            _option("--repeat N", "passes of each variant that count (default 8)", default=8),
            _option(
                "--caches {cold,warm}",
                "drop the page cache before each pass, or read all data through it (default: cold if the pattern has "
                "`drop caches` or restores are compared, else warm)",
                choices=("cold", "warm"),
            ),
            _option("--seed S", "of the order of passes (default 0)", default=0),
            _output("compare"),
            _JSON,
            *_STALLS,
        ),
    ),
    "verify": Command(
        "commands.verify:VerifyCommand",
        "say whether the data on storage are still what was written",
        "dliosim verify dliosim-data",
        (_option("place DIR", "a directory of --dir or --root, or of one data set or checkpoint"), *_STALLS),
    ),
    "check": Command(
        "commands.check_plan_explain:check_command",
        "say whether patterns are right, without running them",
        "dliosim check cosmoflow",
        (
            _option("pattern PATTERN", f"{_PATTERN_HELP}; with --rules also directories of results", nargs="+"),
            *_VALUES,
            *_job(4),
            _option("--rules VERSION", "say which rules of MLPerf Storage are kept (docs/dlio.md)", choices=_RULES),
            _option("--memory SIZE", "with --rules: of a node"),
        ),
        find_contradiction=_find_check_contradiction,
    ),
    "plan": Command(
        "commands.check_plan_explain:plan_command",
        "say what a pattern would do on any number of ranks",
        "dliosim plan cosmoflow --ranks 512",
        (
            _PATTERN,
            *_VALUES,
            *_job(None),
            _flag("--csv", "reads of one rank and epoch: step, sample, file, offset, length"),
            _option("--rank R", "with --csv: which rank, from 0 (default 0)"),
            _option("--epoch E", "with --csv: which epoch, from 1 (default 1)"),
            _option("--loop NAME", "with --csv: which loop (default: the first)"),
            _JSON,
            _option("--memory SIZE", "of a node (default: that of this machine, or what its control groups allow)"),
            *_failures("as long as reading what all ranks restore, as fast as a save is written"),
            _option("--save-time D", "with --mtbf: how long a save holds the ranks"),
            _option(
                "--bandwidth B",
                "of storage, for all ranks together: says the utilization that loops reach at most, and how long saves "
                "take (with --mtbf, default: a table of 1, 10, 100 GB/s and 1 TB/s)",
            ),
            _option("--opens N/s", "opens a second of storage, for all ranks together: another limit of loops"),
            _option(
                "--local B",
                "of a node's own root, with --bandwidth or --storage: says from which epoch on `stage` pays",
            ),
            _option("--local-space SIZE", "of a node's own root: says whether copies fit"),
            _option(
                "--storage FILE",
                "a .dlio file with a `storage` block, in place of --bandwidth and --opens (docs/reference.md#storage)",
            ),
            _option("--loss SHARE", "time that saves may cost, with --mtbf saves and failures (default: 5 %%)"),
        ),
        find_contradiction=_find_plan_contradiction,
    ),
    "size": Command(
        "commands.mlperf:size_command",
        "say how large data must be, so that no cache serves a run",
        'dliosim size unet3d --ranks 8 --nodes 2 --memory "256 GiB"',
        (
            _PATTERN,
            *_VALUES,
            *_job(None),
            _option("--memory SIZE", "of a node", required=True),
            _option("--times N", "times the memory of all nodes (default 5)", default=5),
            _option("--steps N", "least steps of an epoch (default 500)", default=500),
            _JSON,
        ),
    ),
    "saturate": Command(
        "commands.saturate:SaturateCommand",
        "measure how many accelerators a storage feeds",
        "mpiexec -n 16 dliosim saturate cosmoflow --dir /scratch/me",
        (
            _PATTERN,
            *_VALUES,
            _option("--until GOAL", "utilization to reach (default: that of the pattern)"),
            _option(
                "--most N", "accelerators to try at most (default: all ranks; one is a rank)", type=types.parse_ranks
            ),
            _option("--loop NAME", "which loop (default: the first that reads)"),
            _option(
                "--pass-time D",
                "how long a pass lasts (default: 5 s, or the compute of 20 steps; at most 6 passes of each number)",
            ),
            _option("--storage FILE", "no I/O: wait as on a described storage (docs/reference.md#storage)"),
            _JSON,
            _output("saturate"),
            *_STALLS,
        ),
    ),
    "calibrate": Command(
        "commands.calibrate:CalibrateCommand",
        "measure a storage on one node, and describe it for predict",
        "mpiexec -n 4 dliosim calibrate --dir /scratch/me -o here.dlio",
        (
            _option("-o FILE", "the file with the description; as -o here.dlio", required=True),
            _define(
                "MiB that each rank reads in large reads (-D large=1_024), or a setting of the storage of --storage "
                '(-D scratch.latency="1 ms")'
            ),
            _VALUES[1],
            _option("--storage FILE", "no I/O: calibrate on a described storage, to see what is found of it"),
            *_STALLS,
        ),
    ),
    "predict": Command(
        "commands.predict:predict_command",
        "say how many accelerators a described storage feeds",
        "dliosim predict cosmoflow --ranks 64,512 --storage scratch.dlio",
        (
            _PATTERN,
            *_VALUES,
            _option("--storage FILE", "a .dlio file with a `storage` block (docs/reference.md#storage)", required=True),
            _option(
                "--ranks N,...",
                "ranks of the job; several for a table (default: searches the most ranks that it feeds)",
                type=types.parse_rank_list,
            ),
            _option("--until GOAL", "utilization to reach (default: that of the pattern)"),
            _option("--per-node M", "ranks of a node (default 8)", type=types.parse_ranks, default=8),
            _option("--loop NAME", "which loop (default: the first that reads)"),
            _option(
                "--vary NAME=A,B,...",
                "predict each of these values, all combinations if it is given more than once",
                action="append",
            ),
            _option(
                "--measured RESULTS",
                "directories of runs of the pattern: predicts their ranks, and shows both",
                nargs="+",
            ),
            _option("--picture FILE", "draw utilization over ranks, as .png or .svg"),
            _JSON,
        ),
    ),
    "report": Command(
        "commands.report:report_command",
        "show results again: tables, a page, pictures; several side by side",
        "dliosim report dliosim-results-*",
        (
            _option("results RESULTS", "directories that `run` or `compare` wrote, or bundles of them", nargs="+"),
            _JSON,
            _flag("--full", "print all tables of each result, one result after the other"),
            _PAGE,
            _option("--png DIR", "write each picture into DIR, as PNG and as SVG"),
        ),
        find_contradiction=_find_report_contradiction,
    ),
    "audit": Command(
        "commands.report:audit_command",
        "say what a reviewer would object to in results, before you publish",
        "dliosim audit dliosim-results-*",
        (
            _option("results RESULTS", "results of `run` and `compare`, repetitions of a job together", nargs="+"),
            _flag("--json", "print a line of JSON for each result, for scripts"),
            _flag("--text", "print a paragraph on the set-up, for a paper: of one run, or of repetitions of it"),
            _option("--bundle FILE.zip", "write what an artifact evaluation needs; `report` and `audit` read it, too"),
            _flag("--strict", "end with status 3 where there is an objection (default: 0)"),
        ),
        find_contradiction=_find_audit_contradiction,
    ),
    "analyze": Command(
        "analyze.commands.analyze:analyze_command",
        "say why a job is slow, by its trace (also Darshan, DFTracer)",
        "dliosim analyze my-results",
        (
            _option("traces TRACE", "a results folder, a .darshan log, a folder or files of DFTracer", nargs="*"),
            _flag("--json", "print all figures, as a line of JSON, for scripts (docs/analysis.schema.json)"),
            _flag("--full", "print all tables"),
            _PAGE,
            _option("--explain NAME", "say what an insight means, where its threshold is from, and what to try"),
        ),
        find_contradiction=_find_analyze_contradiction,
    ),
    "trace": Command(
        "analyze.commands.trace:trace_command",
        "give a trace to Perfetto, or as CSV, Parquet or Darshan's text",
        "dliosim trace export my-results",
        (
            _option("action export", "what to do: export", choices=("export",)),
            _option("trace TRACE", "a results folder of `dliosim run --trace`, or what `dliosim analyze` reads"),
            _option(
                "--format FORMAT",
                "perfetto, csv, parquet or dxt (default: perfetto)",
                choices=("perfetto", "csv", "parquet", "dxt"),
                default="perfetto",
            ),
            _option(
                "--part PART",
                "steps, epochs, ranks and times, each where it is given; what belongs to no step is kept with any",
                type=types.parse_trace_part,
            ),
            _option(
                "-o --output FILE",
                "where it goes, - for standard output (default: the name of TRACE, with .pfw.gz, .csv, .parquet or "
                ".dxt.txt); as -o events.csv",
            ),
        ),
    ),
    "new": Command(
        "commands.new_pattern:new_command",
        "write a pattern: a template, a copy, or for your files",
        "dliosim new mine",
        (
            _option("name NAME", "of the pattern; the file is NAME.dlio"),
            _option(
                "--from PATTERN|FILE",
                "copy a pattern that comes with dliosim, read this file of yours or the files of this folder, or do "
                "what a trace shows (.pfw, .darshan, results of `run --trace`); several of one job on "
                "different numbers of ranks",
                dest="source",
                action="append",
            ),
            _flag("--keep-names", "write names of the files of a trace in comments; without it no name leaves a site"),
            _flag("--generated", "make data like the files of --from, so that layout, chunks and format can vary"),
        ),
    ),
    "import": Command(
        "commands.new_pattern:import_command",
        "make a pattern of a workload file of DLIO or MLPerf Storage",
        "dliosim import unet3d_h100.yaml -o unet3d.dlio",
        (
            _option("file FILE.yaml", "a workload file, or the config.yaml that DLIO leaves with its results"),
            _option("override ++KEY=VALUE", "as DLIO takes it: ++workload.train.epochs=2", nargs="*"),
            _DLIO,
            _flag("--as-run", "what that version really does, instead of what the file asks for"),
            _flag("--from-files", "read the files that DLIO has written, instead of writing some like them"),
            _option("-o --output FILE.dlio", "where the pattern goes (default: it is printed)"),
        ),
    ),
    "explain": Command(
        "commands.check_plan_explain:explain_command",
        "explain an error code, or where each value of a pattern is from",
        "dliosim explain E204",
        (_option("subject CODE|PATTERN", "a code such as E204, or a pattern (file or name)"), *_VALUES, *_job(4)),
    ),
    "completion": Command(
        "commands.completion:completion_command",
        "print a script by which bash or zsh completes commands",
        'eval "$(dliosim completion bash)"',
        (_option("shell SHELL", "bash or zsh", choices=("bash", "zsh")),),
    ),
}
