"""Directories of checkpoints that a run has to itself, so that no other job deletes or numbers what it saves there.

The lock is the kernel's (flock), on a small file in the directory that says who has it: it ends with its holder,
however that ends. Whoever lets go removes the file; what a killed holder leaves, the next one takes over.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from time import sleep
from types import TracebackType

from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import wrap_call
from dliosim.execute.safe_open import close_read, open_regular
from dliosim.execute.store.manifest import make_durable_directory

NAME = "lock"

#: What a batch system calls the job.
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}

#: Bytes of a lock file that are looked at.
_LARGEST = 4096

#: How often a file that its holder removes meanwhile is opened anew.
_ATTEMPTS = 100

#: How often a lock that is taken is asked for, and the pause before the next time (seconds): a job that lets go has it
#: alone for a moment, and one that was killed takes a moment to end.
_ASKED, _PAUSE = 10, 0.03


@dataclass(slots=True)
class DirectoryLock:
    """What this run does in one directory of checkpoints (`base`); on rank 0 alone.

    `note` says why there is no lock, where there is none. `busy` has the numbers that are being written or deleted,
    `used` how many drains and restores go on of each, and `finished` those that need not be looked at for being so.
    `last` is the highest number that this run has begun, `newest` the highest it has completed. `swept` has the names
    of what earlier jobs had left, until somebody was told. `mutex` is for whoever looks at several of them, or changes
    them.
    """

    base: Path
    note: str = ""
    saves: bool = False
    descriptor: int | None = None
    busy: set[int] = field(default_factory=set)
    used: Counter[int] = field(default_factory=Counter)
    finished: set[int] = field(default_factory=set)
    last: int = 0
    newest: int = 0
    swept: list[str] = field(default_factory=list)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def pin_checkpoint(self, number: int) -> Iterator[None]:
        """A block in which this checkpoint is drained or restored, and so not deleted."""
        self.add_pin(number)
        try:
            yield
        finally:
            self.remove_pin(number)

    def add_pin(self, number: int) -> None:
        """Have a checkpoint not deleted, until `remove_pin` is called as often."""
        with self.mutex:
            self.used[number] += 1

    def remove_pin(self, number: int) -> None:
        """Take back one `add_pin`."""
        with self.mutex:
            self.used[number] -= 1
            if self.used[number] <= 0:
                del self.used[number]


class LockTable:
    """All directories of checkpoints that this run holds, each once, however often it is asked for; for rank 0.

    A context: they are released where it ends. After an error that only this rank knows of they end with the process,
    as other ranks may still write.
    """

    def __init__(self) -> None:
        self._holds: dict[Path, DirectoryLock] = {}

    def __enter__(self) -> LockTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or getattr(error, "shared", False):
            self.release()

    def lock_to_save(self, base: Path) -> DirectoryLock:
        """The hold on a directory that this run saves to; it is made if it is not there.

        Raises ExecutionError [R405] where another job saves there or restores from there, OSError as the calls do.
        """
        return self._find_or_lock(base, saves=True)

    def lock_to_restore(self, base: Path) -> DirectoryLock:
        """The hold on a directory that this run restores from, beside others that do.

        Raises ExecutionError [R405] where another job saves there, OSError as the calls do.
        """
        return self._find_or_lock(base, saves=False)

    def lock_note(self, base: Path) -> str:
        """What there is to say of the lock on a directory, if anything, and if this rank has asked for one."""
        hold = self._holds.get(base)
        return hold.note if hold is not None else ""

    def release(self) -> None:
        """Let go of all of them."""
        while self._holds:
            _release_lock(self._holds.popitem()[1])

    def _find_or_lock(self, base: Path, saves: bool) -> DirectoryLock:
        hold = self._holds.get(base)
        if hold is None:
            hold = DirectoryLock(base)
            _acquire_lock(hold, saves)
            self._holds[base] = hold
        elif saves and not hold.saves:
            _acquire_lock(hold, saves)
        return hold


def _acquire_lock(hold: DirectoryLock, saves: bool) -> None:
    """Take the lock, or take it for saving where it was taken for restoring."""
    base, path = hold.base, hold.base / NAME
    for _ in range(_ATTEMPTS):
        if hold.descriptor is None:
            if saves:
                make_durable_directory(base)
            with wrap_call("open", path):
                hold.descriptor = _open_lock_file(path, saves)
            if hold.descriptor is None:
                if saves:
                    continue  # the directory went with the lock of somebody who made nothing there
                # Nobody has saved there, or nobody can who does not see this file: there is nothing to be kept from.
                return
        if not _try_lock(hold, saves):
            found = _read_holder(hold.descriptor)
            _close_lock_file(hold)
            raise ExecutionError(_conflict_message(base, saves, found), "R405")
        if _is_same_file(hold.descriptor, path):
            hold.saves = hold.saves or saves
            _write_holder(hold.descriptor, saves)
            return
        _close_lock_file(hold)
    raise ExecutionError(f"{path} is made and removed all the time", "R405")


def _open_lock_file(path: Path, saves: bool) -> int | None:
    """The lock file, made if it is not there; None where there is no directory, or none to restore from to write in."""
    try:
        return open_regular(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        return None
    except OSError as error:
        if saves or error.errno not in _READ_ONLY:
            raise
    try:
        return open_regular(path)
    except FileNotFoundError:
        return None


def _try_lock(hold: DirectoryLock, saves: bool) -> bool:
    """Whether the lock is this run's now; also where the file system has none, which `hold.note` then says."""
    assert hold.descriptor is not None
    for attempt in range(_ASKED):
        sleep(_PAUSE if attempt else 0)
        try:
            fcntl.flock(hold.descriptor, (fcntl.LOCK_EX if saves else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            reason = os.strerror(error.errno)
            hold.note = f"no lock on {hold.base} ({reason}): nothing keeps a second job from saving there meanwhile"
        return True
    return False


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Whether the file that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int, saves: bool) -> None:
    """Write into the lock file who has it. Where there is no room, or no right to write, nobody is told."""
    job = next((f"{name} {os.environ[name]}" for name in _JOBS if os.environ.get(name)), "")
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    told = {"host": socket.gethostname(), "process": os.getpid(), "job": job, "since": since, "saves": saves}
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(told).encode(), 0)


def _read_holder(descriptor: int) -> dict[str, object]:
    """What a lock file says of its holder; empty where that cannot be made out."""
    try:
        found = json.loads(os.pread(descriptor, _LARGEST, 0))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _conflict_message(base: Path, saves: bool, found: dict[str, object]) -> str:
    """The message for whoever is locked out."""
    told = {
        name: text[:100]
        for name in ("host", "process", "job", "since")
        if (text := str(found.get(name, ""))) and text.isprintable()
    }
    others = "restores from" if found.get("saves") is False else "saves to"
    who = "".join(
        text.format(told[name])
        for name, text in (
            ("job", ", {}"),
            ("host", ", on host {}"),
            ("process", ", process {}"),
            ("since", ", since {}"),
        )
        if name in told
    )
    doing = "saved to" if saves else "restored from"
    return (
        f"{base} cannot be {doing} now, because another job {others} it{who}: wait for that job, or end it (its lock "
        "ends with it), or use another --dir"
    )


def _release_lock(hold: DirectoryLock) -> None:
    """Let go: the file is removed, unless others have it too, and the directory if nothing was ever saved there."""
    if hold.descriptor is None:
        return
    with suppress(OSError):
        # Only who has it alone may remove it, or another one could lock a second file of its name.
        if not hold.note:
            fcntl.flock(hold.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (hold.base / NAME).unlink(missing_ok=True)
        hold.base.rmdir()
    _close_lock_file(hold)


def _close_lock_file(hold: DirectoryLock) -> None:
    assert hold.descriptor is not None
    close_read([hold.descriptor])  # nobody misses what it says
    hold.descriptor = None
