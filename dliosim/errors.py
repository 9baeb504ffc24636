"""The errors that dliosim raises, in one small tree; each is also the built-in error that it refines."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TypeVar

from dliosim.readable import printable

Self = TypeVar("Self", bound="DliosimError")


#: What stands between a message and the line to type.
HELP = "\n  = help: "


def install_hint(extra: str) -> str:
    """Return the command that installs an extra: from a checkout, as no package index has dliosim.

    The pip is that of the environment from which dliosim was typed as a path.
    """
    started = Path(sys.argv[0])
    pip = started.with_name("pip")
    import shutil  # loads every compression library, for this text alone

    is_typed = started.name == "dliosim" and pip.exists() and str(pip.absolute()) != shutil.which("pip")
    return f"{shlex.quote(str(pip)) if is_typed else 'pip'} install '.[{extra}]' (in a checkout of dliosim)"


class DliosimError(Exception):
    """Any fault that dliosim itself finds; `code` is what `dliosim explain` explains, None without an entry.

    `shared` is true if every rank of the job raises the same error, so that no rank waits for another.
    """

    exit_code = 1
    shared = False

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    def mark_shared(self: Self) -> Self:
        """Mark the error as one that every rank raises here, and return it."""
        self.shared = True
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel between ranks, and the default would call the class with one argument only.
        return (type(self), (self.message, self.code))

    def __str__(self) -> str:
        text = HELP.join(printable(part) for part in self.message.split(HELP))
        return f"error[{self.code}]: {text}" if self.code else f"error: {text}"


class UsageError(DliosimError, ValueError):
    """A command line or an environment that asks for something impossible."""

    exit_code = 2


class DiagnosticsError(UsageError):
    """Diagnostics as text, so that the other ranks can raise them without loading the language."""

    def __str__(self) -> str:
        return self.message


class DamageDiagnosticsError(DiagnosticsError):
    """Diagnostics of damaged files, and of nothing else."""

    exit_code = 1


class PlanError(DliosimError, ValueError):
    """A workload that cannot be planned for this job, because of the data set `noun` if it is given."""

    exit_code = 2

    def __init__(self, message: str, code: str | None = None, noun: str = "") -> None:
        super().__init__(message, code)
        self.noun = noun


class ExecutionError(DliosimError, OSError):
    """An I/O call that failed, returned less than was planned, or returned other bytes than were written."""


class TraceError(DliosimError, ValueError):
    """A trace that is damaged, cut, or of a kind that cannot be read."""


class ExpectationMissed(DliosimError, AssertionError):
    """An `expect` line of the pattern that does not hold."""

    exit_code = 3
