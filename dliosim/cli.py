"""The command line: the commands, their options and exit status; it alone names COMM_WORLD."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from dliosim.commands.command_line.program import insert_program, load_named
from dliosim.commands.job.garbage import freeze_objects
from dliosim.commands.job.launcher import launcher_rank, launcher_size, library_environment
from dliosim.commands.job.signals import capture_signals
from dliosim.commands.job.terminal import colour_choice, discard_output, open_streams
from dliosim.errors import HELP, DiagnosticsError, DliosimError, ExecutionError, UsageError, install_hint

if TYPE_CHECKING:
    from mpi4py import MPI

#: Commands that run on all ranks of a job, each by the class `NameCommand` in the module of its name.
_ON_RANKS: Final = ("run", "compare", "verify", "saturate", "calibrate")

#: Commands about any number of ranks, which a launcher may start on several: rank 0 alone answers.
_ON_RANK_0: Final = ("plan", "size", "predict")

#: Seconds after which ranks other than 0 exit where rank 0 prints: a launcher may end all when the first one fails.
_RANK_0_PRINTS = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    given = [*given[1:], "--help"] if given[:1] == ["help"] else given
    if given and given[0] in _ON_RANK_0 and launcher_rank(os.environ) != 0:
        return 0
    open_streams()
    on_ranks = given[:1] in [[name] for name in _ON_RANKS]
    if arguments is None and on_ranks:
        capture_signals()  # before the imports: these take a second, or a minute for many ranks on a slow file system
    try:
        return _run_on_ranks(given) if on_ranks else _run_alone(_read_line(given))
    except DliosimError as error:
        if launcher_rank(os.environ) == 0:
            print(insert_program(str(error)), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The program that reads the output has closed it: it needs no more.
        discard_output()
        return 0


def _run_on_ranks(given: Sequence[str]) -> int:
    """Run a command that needs MPI, as a rank of a job."""
    # In a job of several ranks only rank 0 reads the line, when MPI is there: the others would wait for it in MPI_Init.
    has_others = (launcher_size(os.environ) or 1) > 1 and not {"-h", "--help"} & {*given}
    parsed = None if has_others else _read_line(given)
    # mpi4py warns about a launcher of another MPI in each process; dliosim reports an error, from one process.
    warnings.filterwarnings("ignore", "suspicious MPI", RuntimeWarning)
    with freeze_objects(), library_environment():
        world = _load_comm_world()
        from dliosim.commands.job.setup import run_on_ranks

        command = load_named(f"commands.{given[0]}:{given[0].title()}Command")
    return run_on_ranks(world, given, parsed, command)


def _run_alone(parsed: SimpleNamespace) -> int:
    """Run a command that needs no MPI; ExecutionError if its output cannot be written."""
    try:
        # Else numpy would start a thread for each core, for linear algebra that no command uses.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        status: int = load_named(parsed.function)(parsed)
        sys.stdout.flush()
    except (BrokenPipeError, DliosimError):
        raise
    except OSError as error:
        discard_output()
        raise ExecutionError(f"{error.filename or 'standard output'} cannot be written: {error.strerror}") from error
    return status


def _load_comm_world() -> MPI.Intracomm:
    """Return COMM_WORLD; UsageError if mpi4py finds no MPI library that it can load."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise UsageError(
            f"no MPI library found: {reason}{HELP}{install_hint('mpich')}, or load your site's MPI module"
        ) from error
    return MPI.COMM_WORLD


def _read_line(given: Sequence[str]) -> SimpleNamespace:
    """Return what the command line says; exit with its mistake, or its --help, printed once and not by 512 ranks."""
    from dliosim.commands.command_line.line import parse_line

    with _mute_other_ranks():
        try:
            parsed = parse_line(given)
        except DiagnosticsError as error:
            sys.stderr.write(f"{error}\n")
            if launcher_rank(os.environ) != 0:
                sleep(_RANK_0_PRINTS)
            sys.exit(error.exit_code)
    colour_choice[0] = parsed.colour
    return parsed


@contextmanager
def _mute_other_ranks() -> Iterator[None]:
    """Print nothing in this block but by the launcher's rank 0: no other number is known before MPI is there."""
    if launcher_rank(os.environ) == 0:
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


if __name__ == "__main__":
    sys.exit(main())
