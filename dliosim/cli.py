"""The command line: `dliosim run`, `compare`, `check`, `plan`, `report` and `explain`; it alone names COMM_WORLD."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import dliosim
from dliosim.commands.garbage import freeze_objects
from dliosim.commands.launcher import launcher_rank, library_environment
from dliosim.commands.signals import capture_signals
from dliosim.errors import DliosimError, ExecutionError, UsageError
from dliosim.readable import printable

if TYPE_CHECKING:
    from mpi4py import MPI

_DESCRIPTION = """\
Simulates the I/O of deep-learning jobs with real files, MPI ranks and no framework.

  dliosim check patterns/cosmoflow.dlio                        is the pattern right?
  dliosim plan patterns/cosmoflow.dlio --ranks 512             what would 512 ranks do?
  mpiexec -n 4 dliosim run patterns/cosmoflow.dlio             do it, with real I/O
  mpiexec -n 4 dliosim run patterns/cosmoflow.dlio -D api=mpi-independent -D layout="shared file"
  mpiexec -n 4 dliosim compare patterns/resnet50.dlio --vary api=posix,mpi-independent,mpi-collective
                                                               which way is fastest, and is the difference real?
  dliosim report dliosim-results-* --html report.html          what came out, as tables and pictures
  dliosim explain E204                                         what does that error mean?
  dliosim explain patterns/cosmoflow.dlio                      the pattern resolved, and where each value is from

Exit status: 0 done, 1 the run failed, 2 bad pattern or usage, 3 an `expect` line was missed, 130 Ctrl-C,
143 SIGTERM.
"""

_COMPARE_DESCRIPTION = """\
Which way is faster, by how much, and is the difference real? Prepares the data that the variants need, once each; runs
one uncounted pass of every variant; then runs blocks. In each block every variant runs once, in random order and from
the same state of the caches. Ratios are paired by block, with intervals that hold for all variants together.

  dliosim compare F --vary api=posix,mpi-independent,mpi-collective
  dliosim compare F --vary api=mpi-collective --vary "hints=library,two-phase,no-aggregation"
  dliosim compare F --vary "layout=file per sample,shared file" --vary "transfer=64 KiB,1 MiB,whole sample"
  dliosim compare F --what save --vary "writers=into file per rank,all ranks into shared file,rank 0"
"""

_REPORT_DESCRIPTION = """\
Shows what runs measured, several of them side by side. It needs no MPI: run it where the results are, or where you are.

  dliosim report my-results                                    rates, utilization, latencies, where the time went
  dliosim report on-2 on-4 on-8 --html scaling.html            one page: a scaling curve, then each run by itself
  dliosim report my-results --png pictures                     each picture as PNG and SVG, for a paper

Pictures show steps and reads by rank, bandwidth and latency over time, the distribution of latencies, the order of
offsets, where each rank's time went, utilization by epoch, and for comparisons ratios with their intervals. They need
matplotlib: pip install 'dliosim[report]'. docs/report.md says how to read each.
"""

#: Seconds after which a stall is reported. On Lustre and on NFS, a failover of a server or an eviction of a client ends
#: within five minutes: anything longer is worth a look.
_STALL = 300.0

#: Seconds, and bytes a second: larger values of options are mistakes.
_GREATEST = 1e18

_OVERRIDE_HELP = """a parameter (-D batch=4) or a setting of a named block or verb (-D train.readers=0,
-D universe.layout="shared file"); may be given several times"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and given[:1] in (["run"], ["compare"]):
        capture_signals()  # before the imports: these take a second, or a minute for many ranks on a slow file system
    with _mute_other_ranks():
        parser = _make_parser()
        parsed = parser.parse_args(given)
        reason = _find_contradiction(parsed)
        if reason:
            parser.error(reason)
    try:
        if parsed.command in ("run", "compare"):
            return _run_mpi_command(parsed, given)
        return _run_local_command(parsed)
    except DliosimError as error:
        if launcher_rank(os.environ) == 0:
            print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The program that reads the output has closed it: it needs no more.
        _discard_output()
        return 0


def _run_mpi_command(parsed: argparse.Namespace, given: Sequence[str]) -> int:
    """Run a command that needs MPI, as a rank of a job."""
    # mpi4py warns about a launcher of another MPI in each process; dliosim reports an error, from one process.
    warnings.filterwarnings("ignore", "suspicious MPI", RuntimeWarning)
    with freeze_objects(), library_environment():
        world = _load_comm_world()
        command: Callable[[MPI.Intracomm, argparse.Namespace, Sequence[str]], int]
        if parsed.command == "compare":
            from dliosim.commands.compare import compare_command as command
        else:
            from dliosim.commands.run import run_command as command
    return command(world, parsed, given)


def _run_local_command(parsed: argparse.Namespace) -> int:
    """Run a command that needs no MPI; ExecutionError where its output cannot be written."""
    try:
        # Else numpy would start a thread for each core, for linear algebra that no command uses.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        status = _dispatch_local(parsed)
        sys.stdout.flush()
    except (BrokenPipeError, DliosimError):
        raise
    except OSError as error:
        _discard_output()
        raise ExecutionError(f"{error.filename or 'standard output'} cannot be written: {error.strerror}") from error
    return status


def _dispatch_local(parsed: argparse.Namespace) -> int:
    if parsed.command == "report":
        from dliosim.commands.report import report_command

        return report_command(parsed)
    from dliosim.commands.check_plan_explain import check_command, explain_command, plan_command

    commands = {"check": check_command, "plan": plan_command, "explain": explain_command}
    return commands[parsed.command](parsed)


def _discard_output() -> None:
    """Discard what Python still buffers, so that it does not fail a second time at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _load_comm_world() -> MPI.Intracomm:
    """Return COMM_WORLD; UsageError where mpi4py finds no MPI library that it can load."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise UsageError(
            f"no MPI library found: {reason}\n"
            '  = help: pip install "dliosim[mpich]" (in a checkout: pip install ".[mpich]"), or load your '
            "site's MPI module"
        ) from error
    return MPI.COMM_WORLD


class _Parser(argparse.ArgumentParser):
    """A parser whose errors repeat the user's text without characters that control a terminal."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and end with status 2."""
        super().error(printable(message))


def _make_parser() -> argparse.ArgumentParser:
    # No abbreviations: a new option could make one ambiguous, and break scripts that use it.
    parser = _Parser(
        prog="dliosim",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dliosim {dliosim.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="run a pattern with real I/O, under mpiexec",
        description=describe_run_command(),
        allow_abbrev=False,
    )
    run.add_argument("pattern", metavar="FILE", help="a pattern file (.dlio)")
    _add_overrides(run)
    _add_places(run)
    run.add_argument(
        "--output",
        metavar="DIR",
        help="where results go, a directory without any (default: a new dliosim-results-*)",
    )
    run.add_argument("--null", action="store_true", help="no I/O at all: measures the tool itself")
    run.add_argument("--with-null", action="store_true", help="run every loop again without I/O: gives the slowdown")
    run.add_argument("--verify", action="store_true", help="check every byte read, not only the ends of each sample")
    _add_failures(run, "as long as the restores of this run, else as its saves")
    _add_stalls(run)

    _add_compare(commands)

    check = commands.add_parser(
        "check",
        help="say whether patterns are right, without running them (on 4 ranks, if --ranks does not say)",
        allow_abbrev=False,
    )
    check.add_argument("pattern", metavar="FILE", nargs="+")
    _add_overrides(check)
    _add_places(check)
    _add_job(check, default=4)

    plan = commands.add_parser(
        "plan", help="say what a pattern would do on N ranks, without doing it", allow_abbrev=False
    )
    plan.add_argument("pattern", metavar="FILE")
    _add_overrides(plan)
    _add_places(plan)
    _add_job(plan, default=None)
    plan.add_argument(
        "--csv", action="store_true", help="reads of one rank and epoch: step, sample, file, offset, length"
    )
    plan.add_argument("--rank", type=_parse_natural, metavar="R", help="with --csv: which rank (default 0)")
    plan.add_argument("--epoch", type=_parse_natural, metavar="E", help="with --csv: which epoch, from 0 (default 0)")
    plan.add_argument("--loop", metavar="NAME", help="with --csv: which loop (default: the first)")
    _add_failures(plan, "as long as reading what all ranks restore, as fast as a save is written")
    plan.add_argument(
        "--save-time", type=_parse_time, metavar="D", help='with --mtbf: how long a save holds the ranks, as "30 s"'
    )
    plan.add_argument(
        "--bandwidth",
        type=_parse_rate,
        metavar="B",
        help="""with --mtbf: what storage takes from all ranks together, as "100 GB/s", if the save time is not known
(default: a table of 1, 10, 100 GB/s and 1 TB/s)""",
    )

    report = commands.add_parser(
        "report",
        help="show results: a table, a page, or pictures; several side by side",
        description=_REPORT_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    report.add_argument(
        "results", metavar="RESULTS", nargs="+", help="directories that `dliosim run` or `dliosim compare` wrote"
    )
    report.add_argument(
        "--html", metavar="FILE", help="write one page with all tables and pictures, complete in itself"
    )
    report.add_argument("--png", metavar="DIR", help="write each picture into DIR, as PNG and as SVG")

    explain = commands.add_parser(
        "explain",
        help="explain an error code, or where a pattern's values come from (on 4 ranks, if --ranks does not say)",
        allow_abbrev=False,
    )
    explain.add_argument("subject", metavar="CODE|FILE", help="a code such as E204, or a pattern file")
    _add_overrides(explain)
    _add_places(explain)
    _add_job(explain, default=4)
    return parser


def _add_compare(commands: argparse._SubParsersAction[_Parser]) -> None:
    compare = commands.add_parser(
        "compare",
        help="run variants of a pattern's loop, save or restore in turn, and say which is faster, under mpiexec",
        description=_COMPARE_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    compare.add_argument("pattern", metavar="FILE", help="a pattern file (.dlio)")
    compare.add_argument(
        "--vary",
        action="append",
        required=True,
        metavar="NAME=A,B,...",
        help="""what differs between variants: anything that -D takes, or a setting of the loop, its data set or its
checkpoint without their name (api, hints, order, transfer, layout, writers, ...); may be given several times, for all
combinations""",
    )
    _add_overrides(compare)
    _add_places(compare)
    compare.add_argument("--loop", metavar="NAME", help="which loop to compare, if the pattern has several")
    compare.add_argument(
        "--what",
        metavar="VERB",
        help="""compare how long the job stalls for a checkpoint: save, restore, or with its name "save NAME" (default
for patterns without a loop)""",
    )
    compare.add_argument(
        "--repeat", type=_parse_positive, default=8, metavar="N", help="passes of each variant that count (default 8)"
    )
    compare.add_argument(
        "--caches",
        choices=("cold", "warm"),
        help="""drop the page cache before each pass, or read all data through it (default: cold if the pattern has
`drop caches` or restores are compared, else warm)""",
    )
    compare.add_argument(
        "--seed", type=_parse_natural, default=0, metavar="S", help="of the order of passes (default 0)"
    )
    compare.add_argument(
        "--output", metavar="DIR", help="where results go, a directory without any (default: a new dliosim-compare-*)"
    )
    _add_stalls(compare)


def _find_contradiction(parsed: argparse.Namespace) -> str:
    """Return why options contradict each other, or an empty text."""
    if parsed.command == "run" and parsed.null and (parsed.verify or parsed.with_null):
        other = "--verify" if parsed.verify else "--with-null"
        return f"--null and {other}: a run without I/O has nothing to {'check' if parsed.verify else 'compare with'}"
    if parsed.command == "plan" and not parsed.csv:
        given = [name for name in ("rank", "epoch", "loop") if getattr(parsed, name) is not None]
        if given:
            return f"--{given[0]} chooses what --csv lists, and there is no --csv"
    if parsed.command in ("run", "plan") and parsed.mtbf is None:
        for name in ("restart_time", "save_time", "bandwidth"):
            if getattr(parsed, name, None) is not None:
                return f"--{name.replace('_', '-')} goes with --mtbf, the mean time between failures, and there is none"
    if parsed.command == "plan" and parsed.csv and parsed.mtbf is not None:
        return "--mtbf has a table of its own, and --csv prints none"
    return ""


def describe_run_command() -> str:
    """Return the description of `dliosim run`."""
    return (
        "Prepares the data, trains, evaluates, infers, saves and restores as the pattern says, and prints what it "
        "measured. Start it with mpiexec -n RANKS; without, it is a job of one rank."
    )


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-D", dest="define", action="append", default=[], metavar="NAME=VALUE", help=_OVERRIDE_HELP)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", default="dliosim-data", metavar="DIR", help="where data are stored (default: ./dliosim-data)"
    )
    parser.add_argument(
        "--root", action="append", default=[], metavar="NAME=DIR", help="another tier, for `root NAME` in a pattern"
    )


def _add_job(parser: argparse.ArgumentParser, default: int | None) -> None:
    default_text = f", {default} if not given" if default else ""
    parser.add_argument(
        "--ranks",
        type=_parse_ranks,
        default=default,
        required=default is None,
        metavar="N",
        help=f"ranks of the job{default_text}",
    )
    parser.add_argument("--nodes", type=_parse_positive, metavar="M", help="nodes of the job, 1 if not given")


def _add_failures(parser: argparse.ArgumentParser, restart: str) -> None:
    parser.add_argument(
        "--mtbf",
        type=_parse_time,
        metavar="D",
        help="""mean time between failures of the whole job, as "4 h" (of N nodes: that of a node / N): says how often
it is best to save (Young, Daly), and what failures and saves cost then""",
    )
    parser.add_argument(
        "--restart-time",
        type=_parse_time,
        metavar="D",
        help=f"with --mtbf: from a failure until the job continues (default: {restart})",
    )


def _add_stalls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stall-report",
        type=_parse_time_or_off,
        default=_STALL,
        metavar="D",
        help=f"""when no step, chunk or call has ended for this time, say which rank the others wait for (default
{_STALL / 60:.0f} min; "off": never)""",
    )
    parser.add_argument(
        "--stall-timeout",
        type=_parse_time_or_off,
        default=None,
        metavar="D",
        help="when nothing has ended for this time, say so and end the job with 1 (default: off)",
    )


def _parse_time_or_off(text: str) -> float | None:
    return None if text == "off" else _parse_time(text)


def _parse_time(text: str) -> float:
    from dliosim.units import parse_seconds

    return _parse_quantity(parse_seconds, text)


def _parse_rate(text: str) -> float:
    from dliosim.units import parse_rate

    return _parse_quantity(parse_rate, text)


def _parse_quantity(parse: Callable[[str], float], text: str) -> float:
    try:
        value = parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < value < _GREATEST:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range: above 0, below {_GREATEST:g}")
    return value


def _parse_natural(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _parse_positive(text: str) -> int:
    value = _parse_natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _parse_ranks(text: str) -> int:
    from dliosim.model.job import MAX_RANKS

    value = _parse_positive(text)
    if value > MAX_RANKS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_RANKS:_}")
    return value


@contextmanager
def _mute_other_ranks() -> Iterator[None]:
    """Print a wrong option once, not from 512 ranks; before MPI is imported only the launcher knows the rank."""
    if launcher_rank(os.environ) == 0:
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


if __name__ == "__main__":
    sys.exit(main())
