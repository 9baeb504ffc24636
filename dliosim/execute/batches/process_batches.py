"""Batches that reader processes of a rank read ahead (`readers K processes`), and the rank's side of each process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Final, NoReturn, cast

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
from dliosim.execute.batches.prefetch import PATIENCE, PrefetchedBatches, Task, TaskQueue
from dliosim.execute.node.memory_file import allocate_shared
from dliosim.formats.protocols import Ints
from dliosim.measure.rank.meter import Meter
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.calls import CALLS
from dliosim.trace.recorder import recorder

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
    """The rank's side of a reader process, which has the reader: threads ask it, and wait for their answers in turn.

    The meter counts what that reader's meter counted until its last answer.
    """

    def __init__(self, setup: ReaderSetup, slots: Sequence[memoryview], descriptors: Sequence[int]) -> None:
        """Execute the process; `start` waits for it. `descriptors` are those of the buffers and of the set-up.

        Raises ExecutionError if it cannot be executed.
        """
        self.meter = Meter()
        self._setup = setup
        #: held by the thread whose question is next
        self.order = threading.Lock()
        # Held until the answer to the last question has come.
        self._answered = threading.Lock()
        self._idle_since = 0
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
        self._ask("begin_epoch")

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read calls into one of the shared buffers; return their bytes. Raises ExecutionError."""
        return int(self._ask_read(calls, into, 0, [], [])()["got"])

    def ask_share(
        self, epoch: EpochCalls, step: int, share: tuple[int, int], shares: int, slot: memoryview
    ) -> Callable[[], tuple[int, int, int, int]]:
        """Let calls [first, last) of a step be read, decoded and preprocessed: one of `shares`, 0 for the whole step.

        Returns the function that waits for their bytes, the ns inside calls and of the other two, and the time of the
        begin (perf_counter_ns). Both raise ExecutionError.
        """
        calls, processing, rows, times = epoch.calls.part(*share), epoch.processing, list[Ints](), list[int]()
        if processing is not None:
            first, last = share if shares else epoch.calls.row_start[step : step + 2].tolist()
            rows = processing.pack_rows(first, last)
            times = [time // max(shares, 1) for time in processing.times[step : step + 1]]
        receive = self._ask_read(calls, slot, step, rows, times)

        def wait() -> tuple[int, int, int, int]:
            answer = receive()
            if processing is not None:
                processing.decode_ns.extend(answer["decode"])
                processing.preprocess_ns.extend(answer["preprocess"])
            return answer["got"], answer["inside"], answer["processed"], answer["begun"]

        return wait

    def end_epoch(self) -> None:
        """Close what is open for an epoch. Raises ExecutionError."""
        self._ask("end_epoch")

    def close(self) -> None:
        """Close the files, and let the process end."""
        try:
            if self._connection.fileno() >= 0:
                self._ask("close")
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

    def _ask_read(
        self, calls: Calls, slot: memoryview, step: int, rows: Sequence[Ints], times: list[int]
    ) -> Callable[[], Header]:
        continues = _NONE if calls.continues is None else calls.continues.astype(np.int64)
        asked = {"run": "read", "slot": self._place[id(slot)], "times": times}
        return self._send(asked, [calls.file, calls.offset, calls.length, calls.start, continues, *rows], calls, step)

    def _ask(self, run: str) -> None:
        self._send({"run": run}, [], None, 0)()

    def _send(self, asked: Header, arrays: Sequence[Ints], calls: Calls | None, step: int) -> Callable[[], Header]:
        """Send a message; return the function that waits for its answer, which must be called.

        Both raise the process's error, or ExecutionError if it has ended.
        """
        try:
            send_message(self._connection, asked, arrays)
        except OSError:
            raise self._find_end() from None
        before, self._answered = self._answered, threading.Lock()
        after = self._answered
        after.acquire()
        asked_at = perf_counter_ns()

        def receive() -> Header:
            with before:
                begun, inside = max(asked_at, self._idle_since), self.meter.io_call_ns
                try:
                    answer, numbers = self._receive()
                    add_meter(self.meter, answer, numbers, calls, step)
                finally:
                    self._idle_since = perf_counter_ns()
                    inside = self.meter.io_call_ns - inside
                    after.release()
            _raise_error(answer)
            return answer | {"inside": inside, "begun": begun}

        return receive

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
        # With a queue for each process one thread asks for the next batch while another waits for the one before.
        threads = 2 if access.by == "batch in turn" else 1
        super().__init__(processes, slots, access.prefetch, access.by, False, threads)
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
            return [_ShareTask((epoch, step, share, len(shares), slot)) for share in shares]
        first, last = epoch.calls.step_start[step : step + 2].tolist()
        return [_ShareTask((epoch, step, (first, last), 0, slot))]

    def _run_tasks(self, reader: Reader, queue: TaskQueue) -> None:
        process, trace = cast(ReaderProcess, reader), recorder()
        if trace is not None and process.meter.log is not None:
            trace.number_thread(process.meter.log.thread)
        while True:
            with process.order:  # the process has the batches in the order of the queue
                task = cast("_ShareTask | None", queue.get())
                if task is not None:
                    task.ask(process)
            if task is None:
                queue.put(None)  # for the other threads of the queue
                return
            task.finish(task.receive)


class _ShareTask(Task[int]):
    """The reading of a batch, or of a share of it, by a reader process."""

    __slots__ = ("_share", "_wait")

    def __init__(self, share: tuple[EpochCalls, int, tuple[int, int], int, memoryview]) -> None:
        super().__init__(lambda _: self.receive())
        self._share = share

    def ask(self, process: ReaderProcess) -> None:
        """Hand the task over to a process."""
        try:
            self._wait: Callable[[], tuple[int, ...]] = process.ask_share(*self._share)
        except BaseException as error:  # the main thread raises it, of any class
            self._wait = partial(_raise, error)

    def receive(self) -> int:
        """Wait for the process; return the bytes that it read. Raises ExecutionError."""
        got, inside, processed, self.begun = self._wait()
        self.inside = inside, processed
        return got


def _kill_all(processes: Sequence[ReaderProcess]) -> None:
    """Kill processes: a call in them may never return."""
    for one in processes:
        one.process.kill()
    for one in processes:
        one.stop()


def _raise(error: BaseException) -> NoReturn:
    raise error


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
