"""Batches that reader processes of a rank read ahead (`readers K processes`), and the rank's side of each process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

import numpy as np

from dliosim.errors import DliosimError, ExecutionError, PlanError, UsageError
from dliosim.execute.backends.contract import Reader
from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.execute.batches.messages import (
    Header,
    ReaderSetup,
    add_meter,
    receive_message,
    send_message,
    share_setup,
)
from dliosim.execute.batches.prefetch import PATIENCE, PrefetchedBatches, Task
from dliosim.execute.node.memory_file import allocate_shared
from dliosim.formats.protocols import Ints
from dliosim.measure.rank.meter import Meter
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.calls import CALLS

#: The program of a reader process. `-m`, and `-c` until its first line is done, search the working directory first.
_PROGRAM: Final = (
    "import sys; sys.path[:] = filter(None, sys.path); from dliosim.execute.batches.reader_process import main; main()"
)

#: Variables of launchers and MPI libraries: a reader process is no rank.
_LAUNCHERS: Final = ("PMI", "OMPI_", "MPI", "PRTE_", "HYDRA_", "HYDI_", "PALS_", "FLUX_TASK_")

#: Signals to a job or a terminal are for the ranks, which then end their reader processes.
_FOR_RANKS: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}

_ERRORS: Final[dict[str, type[DliosimError]]] = {one.__name__: one for one in (ExecutionError, PlanError, UsageError)}

_NONE: Final = np.empty(0, np.int64)


class ReaderProcess(Reader):
    """The rank's side of a reader process, which has the reader: one thread at a time asks it, and waits.

    The meter counts what that reader's meter counted until its last answer.
    """

    def __init__(self, setup: ReaderSetup, slots: Sequence[memoryview], descriptors: Sequence[int]) -> None:
        """Execute the process; `start` waits for it. `descriptors` are those of the buffers and of the set-up.

        Raises ExecutionError if it cannot be executed.
        """
        self.meter = Meter()
        self._setup = setup
        self._place = {id(slot): number for number, slot in enumerate(slots)}
        self._connection, other = socket.socketpair()
        passed = other.fileno(), *descriptors
        command = [sys.executable, "-c", _PROGRAM, *map(str, (os.getpid(), *passed))]
        # A process inherits what is blocked, from its first instruction on.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_RANKS)
        try:
            # Executed, not forked: MPI has started.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=passed, env=_list_variables()
            )
        except OSError as error:
            self._connection.close()
            raise ExecutionError(f"cannot execute a reader process: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            other.close()

    def start(self, number: int) -> None:
        """Wait until the process is ready to read; in a trace it is thread `number`.

        Raises the error that ended it, or ExecutionError.
        """
        answer, _ = self._receive()
        _raise_error(answer)
        if answer["call"] is not None and self._setup.files is not None:
            self.meter = Meter(self._setup.files.path, CALLS[answer["call"]])
            if self.meter.log is not None:
                self.meter.log.thread = number

    def begin_epoch(self) -> None:
        """Prepare for an epoch. Raises ExecutionError."""
        self._ask({"run": "begin_epoch"})

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read calls into one of the shared buffers; return their bytes. Raises ExecutionError."""
        return int(self._read(calls, into, 0, [], [])["got"])

    def read_share(
        self, epoch: EpochCalls, step: int, share: tuple[int, int], shares: int, slot: memoryview
    ) -> tuple[int, int]:
        """Read, decode and preprocess calls [first, last) of a step; return their bytes, and the ns of the last two.

        They are one of `shares` shares of the step; 0 stands for all of it. Raises ExecutionError.
        """
        calls, processing = epoch.calls.part(*share), epoch.processing
        if processing is None:
            return self._read(calls, slot, step, [], [])["got"], 0
        first, last = share if shares else epoch.calls.row_start[step : step + 2].tolist()
        times = [time // max(shares, 1) for time in processing.times[step : step + 1]]
        answer = self._read(calls, slot, step, processing.pack_rows(first, last), times)
        processing.decode_ns.extend(answer["decode"])
        processing.preprocess_ns.extend(answer["preprocess"])
        return answer["got"], answer["processed"]

    def end_epoch(self) -> None:
        """Close what is open for an epoch. Raises ExecutionError."""
        self._ask({"run": "end_epoch"})

    def close(self) -> None:
        """Close the files, and let the process end."""
        try:
            if self._connection.fileno() >= 0:
                self._ask({"run": "close"})
        finally:
            self.stop()

    def stop(self) -> None:
        """End the process, unless it is in a call that cannot be interrupted. Safe to call twice."""
        self._connection.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):  # it is in a call that cannot be interrupted
                self.process.wait(PATIENCE)

    def _read(self, calls: Calls, slot: memoryview, step: int, rows: Sequence[Ints], times: list[int]) -> Header:
        continues = _NONE if calls.continues is None else calls.continues.astype(np.int64)
        asked = {"run": "read", "slot": self._place[id(slot)], "times": times}
        return self._ask(asked, [calls.file, calls.offset, calls.length, calls.start, continues, *rows], calls, step)

    def _ask(self, asked: Header, arrays: Sequence[Ints] = (), calls: Calls | None = None, step: int = 0) -> Header:
        """Return the answer to a message. Raises the process's error, or ExecutionError if it has ended."""
        try:
            send_message(self._connection, asked, arrays)
        except OSError:
            raise self._find_end() from None
        answer, found = self._receive()
        add_meter(self.meter, answer, found, calls, step)
        _raise_error(answer)
        return answer

    def _receive(self) -> tuple[Header, list[Ints]]:
        try:
            return receive_message(self._connection)
        except (EOFError, OSError):
            raise self._find_end() from None

    def _find_end(self) -> ExecutionError:
        """Return the error of a process that has ended."""
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return ExecutionError(f"reader process {self.process.pid} does not answer")
        how = f"ended with status {status}"
        if status < 0:
            how = f"was killed by signal {-status} ({signal.strsignal(-status)})"
        return ExecutionError(f"reader process {self.process.pid} {how}")


class ProcessBatches(PrefetchedBatches):
    """Batches that K reader processes read ahead: for each a thread hands its tasks over, and waits for the answers.

    The buffers, and the set-up of the processes, are in memory without a name.
    """

    def __init__(self, setup: ReaderSetup) -> None:
        """Execute the processes, and wait until they are ready. Raises ExecutionError, [R402] without memory."""
        access, size = setup.access, setup.slot
        processes: list[ReaderProcess] = []
        shared, buffer = allocate_shared(access.batches * size)
        descriptors = [shared]
        try:
            descriptors.append(share_setup(setup))
            slots = [buffer[at * size : (at + 1) * size] for at in range(access.batches)]
            processes += (ReaderProcess(setup, slots, descriptors) for _ in range(access.readers))
            for number, one in enumerate(processes):
                one.start(number + 1)
        except BaseException:
            _kill_all(processes)
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._processes = processes
        super().__init__(processes, slots, access.prefetch, access.by, False)
        self.threads = self.processes = [one.process.pid for one in processes]

    def close(self, failed: bool = False) -> None:
        """End the processes and the threads; with `failed`, kill the processes. Safe to call twice."""
        if failed:
            _kill_all(self._processes)
        try:
            super().close(failed)
        except DliosimError:  # a process cannot close its files, or has ended
            self.close(failed=True)
            raise

    def _make_tasks(self, step: int, slot: memoryview) -> Sequence[Task[int]]:
        epoch = self._epoch
        if self._groups > 1:
            shares = epoch.shares(step, self._groups)
            return [_ShareTask(epoch, step, share, len(shares), slot) for share in shares]
        first, last = epoch.calls.step_start[step : step + 2].tolist()
        return [_ShareTask(epoch, step, (first, last), 0, slot)]


class _ShareTask(Task[int]):
    """The reading of a batch, or of a share of it, by a reader process."""

    __slots__ = ("_share",)

    def __init__(self, epoch: EpochCalls, step: int, share: tuple[int, int], shares: int, slot: memoryview) -> None:
        super().__init__(self._read_share)
        self._share = epoch, step, share, shares, slot

    def _read_share(self, reader: Reader) -> int:
        inside = reader.meter.io_call_ns
        got, processed = cast(ReaderProcess, reader).read_share(*self._share)
        self.inside = reader.meter.io_call_ns - inside, processed
        return got


def _kill_all(processes: Sequence[ReaderProcess]) -> None:
    """Kill processes: a call in them may never return."""
    for one in processes:
        one.process.kill()
    for one in processes:
        one.stop()


def _raise_error(answer: Header) -> None:
    """Raise the error that an answer has, if it has one."""
    if "error" in answer:
        kind, message, code = answer["error"]
        raise _ERRORS.get(kind, ExecutionError)(message, code)


def _list_variables() -> dict[str, str]:
    """Return the environment of a reader process: it finds the modules that this one finds, and starts no MPI."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
    places = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return kept | places | {"MPI4PY_RC_INITIALIZE": "0", "OPENBLAS_NUM_THREADS": "1"}
