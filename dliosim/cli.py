"""The command line: the commands, their options and exit status; it alone names COMM_WORLD."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dliosim.commands.command_line.command_table import Command
from dliosim.commands.command_line.parser import Misuse, parse_words
from dliosim.commands.command_line.program import insert_program
from dliosim.commands.job.garbage import freeze_objects
from dliosim.commands.job.launcher import launcher_rank, library_environment
from dliosim.commands.job.signals import capture_signals
from dliosim.commands.job.terminal import discard_output, open_streams
from dliosim.errors import HELP, DliosimError, ExecutionError, UsageError, install_hint
from dliosim.readable import printable

if TYPE_CHECKING:
    from mpi4py import MPI


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    if arguments is None and given[:1] in (["run"], ["compare"], ["verify"]):
        capture_signals()  # before the imports: these take a second, or a minute for many ranks on a slow file system
    with _mute_other_ranks():
        try:
            parsed = parse_words(given)
            command: Command = parsed.command
            if reason := command.find_contradiction(parsed):
                raise Misuse(reason)
        except Misuse as error:
            from dliosim.commands.command_line.misuse import describe_misuse

            sys.stderr.write(printable(insert_program(describe_misuse(given, str(error))), lines=True) + "\n")
            sys.exit(2)
    try:
        return (_run_on_ranks if command.on_ranks else _run_alone)(command, parsed, given)
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


def _run_on_ranks(command: Command, parsed: argparse.Namespace, given: Sequence[str]) -> int:
    """Run a command that needs MPI, as a rank of a job."""
    # mpi4py warns about a launcher of another MPI in each process; dliosim reports an error, from one process.
    warnings.filterwarnings("ignore", "suspicious MPI", RuntimeWarning)
    with freeze_objects(), library_environment():
        world = _load_comm_world()
        run = _load_function(command)
    return run(world, parsed, given)


def _run_alone(command: Command, parsed: argparse.Namespace, given: Sequence[str]) -> int:
    """Run a command that needs no MPI; ExecutionError where its output cannot be written."""
    try:
        # Else numpy would start a thread for each core, for linear algebra that no command uses.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        status = _load_function(command)(parsed)
        sys.stdout.flush()
    except (BrokenPipeError, DliosimError):
        raise
    except OSError as error:
        discard_output()
        raise ExecutionError(f"{error.filename or 'standard output'} cannot be written: {error.strerror}") from error
    return status


def _load_function(command: Command) -> Callable[..., int]:
    module, name = command.function.split(":")
    function: Callable[..., int] = getattr(import_module(f"dliosim.commands.{module}"), name)
    return function


def _load_comm_world() -> MPI.Intracomm:
    """Return COMM_WORLD; UsageError where mpi4py finds no MPI library that it can load."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise UsageError(
            f"no MPI library found: {reason}{HELP}{install_hint('mpich')}, or load your site's MPI module"
        ) from error
    return MPI.COMM_WORLD


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
