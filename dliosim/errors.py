"""The errors that dliosim raises, one small tree; each is also the built-in that it refines."""

from __future__ import annotations

from dliosim.readable import printable


class DliosimError(Exception):
    """Anything that dliosim itself finds wrong; `code` is what `dliosim explain` expands, if it has one.

    `shared` is whether every rank of the job raises this same error, so that nobody waits for anybody.
    """

    exit_code = 1
    shared = False

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel between ranks, and the default would call the class with one argument only.
        return (type(self), (self.message, self.code))

    def __str__(self) -> str:
        text = printable(self.message)
        return f"error[{self.code}]: {text}" if self.code else f"error: {text}"


class UsageError(DliosimError, ValueError):
    """The command line or the environment asks for what cannot be."""

    exit_code = 2


class PlanError(DliosimError, ValueError):
    """A workload that cannot be planned for this job."""

    exit_code = 2


class ExecutionError(DliosimError, OSError):
    """An I/O call that failed, returned less than was planned, or returned other bytes than were written."""


class ExpectationMissed(DliosimError, AssertionError):
    """An `expect` line of the pattern does not hold."""

    exit_code = 3
