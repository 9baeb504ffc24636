"""Locks on directories of checkpoints, so that no other job deletes or numbers what a run saves there.

The lock is the kernel's (flock), on a small file in the directory that names its holder: it ends with the process of
the holder, in whatever way that ends. The holder removes the file when it releases the lock; the file of a killed
holder is taken over by the next one.
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

#: Environment variables with the id of the job, by batch system.
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}

#: Bytes of a lock file that are read.
_LARGEST = 4096

#: How often a lock file is opened again after its holder has removed it.
_ATTEMPTS = 100

#: Attempts to take a lock that another job holds, and the pause between them (seconds): a job that releases it holds it
#: alone for a moment, and one that was killed takes a moment to end.
_ASKED, _PAUSE = 10, 0.03


@dataclass(slots=True)
class DirectoryLock:
    """The lock of this run on one directory of checkpoints, and what the run does there; on rank 0 alone."""

    #: the directory
    base: Path
    #: why there is no lock; empty if there is one
    note: str = ""
    #: whether the lock is taken for saving; else it is shared with other jobs that restore
    saves: bool = False
    #: descriptor of the lock file; None: not open
    descriptor: int | None = None
    #: numbers of checkpoints that are being written or deleted
    busy: set[int] = field(default_factory=set)
    #: number of drains and restores that run on a checkpoint, by its number
    used: Counter[int] = field(default_factory=Counter)
    #: numbers of checkpoints that need no check for being unfinished
    finished: set[int] = field(default_factory=set)
    #: highest number that this run has begun
    last: int = 0
    #: highest number that this run has completed
    newest: int = 0
    #: names of what was removed of earlier jobs, until a save has reported them
    swept: list[str] = field(default_factory=list)
    #: held by a thread that reads several of these fields, or changes them
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def pin_checkpoint(self, number: int) -> Iterator[None]:
        """Pin a checkpoint during the block, so that it is not deleted while it is drained or restored."""
        self.add_pin(number)
        try:
            yield
        finally:
            self.remove_pin(number)

    def add_pin(self, number: int) -> None:
        """Keep a checkpoint from deletion until `remove_pin` is called as often."""
        with self.mutex:
            self.used[number] += 1

    def remove_pin(self, number: int) -> None:
        """Take back one `add_pin`."""
        with self.mutex:
            self.used[number] -= 1
            if self.used[number] <= 0:
                del self.used[number]


class LockTable:
    """All directories of checkpoints that this run has locked, each once; for rank 0.

    As a context, it releases them at its end. After an error that only this rank knows they end with the process, as
    other ranks may still write.
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
        """Return the lock on a directory that this run saves to; the directory is made if it is missing.

        Raises ExecutionError [R405] where another job saves there or restores from there, OSError as the calls do.
        """
        return self._find_or_lock(base, saves=True)

    def lock_to_restore(self, base: Path) -> DirectoryLock:
        """Return the lock on a directory that this run restores from; other jobs may restore from it too.

        Raises ExecutionError [R405] where another job saves there, OSError as the calls do.
        """
        return self._find_or_lock(base, saves=False)

    def lock_note(self, base: Path) -> str:
        """Return the note about the lock on a directory; empty if there is none, or this rank asked for no lock."""
        lock = self._holds.get(base)
        return lock.note if lock is not None else ""

    def release(self) -> None:
        """Release all locks."""
        while self._holds:
            _release_lock(self._holds.popitem()[1])

    def _find_or_lock(self, base: Path, saves: bool) -> DirectoryLock:
        lock = self._holds.get(base)
        if lock is None:
            lock = DirectoryLock(base)
            _acquire_lock(lock, saves)
            self._holds[base] = lock
        elif saves and not lock.saves:
            _acquire_lock(lock, saves)
        return lock


def _acquire_lock(lock: DirectoryLock, saves: bool) -> None:
    """Take the lock, or take it for saving where it was taken for restoring. Raises ExecutionError [R405]."""
    base, path = lock.base, lock.base / NAME
    for _ in range(_ATTEMPTS):
        if lock.descriptor is None:
            if saves:
                make_durable_directory(base)
            with wrap_call("open", path):
                lock.descriptor = _open_lock_file(path, saves)
            if lock.descriptor is None:
                if saves:
                    continue  # another job that saved nothing removed the directory with its lock
                # There is no directory, or it is read-only and has no lock file: then there is nothing to protect.
                return
        if not _try_lock(lock, saves):
            found = _read_holder(lock.descriptor)
            _close_lock_file(lock)
            raise ExecutionError(_conflict_message(base, saves, found), "R405")
        if _is_same_file(lock.descriptor, path):
            lock.saves = lock.saves or saves
            _write_holder(lock.descriptor, saves)
            return
        _close_lock_file(lock)
    raise ExecutionError(f"{path} is made and removed again and again by other jobs", "R405")


def _open_lock_file(path: Path, saves: bool) -> int | None:
    """Open the lock file, and make it if it is missing.

    Returns None where there is no directory, or the run only restores, may not write there and finds no lock file.
    """
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


def _try_lock(lock: DirectoryLock, saves: bool) -> bool:
    """Return whether this run has the lock now; also where the file system has no locks, which goes to `hold.note`."""
    assert lock.descriptor is not None
    for attempt in range(_ASKED):
        sleep(_PAUSE if attempt else 0)
        try:
            fcntl.flock(lock.descriptor, (fcntl.LOCK_EX if saves else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            reason = os.strerror(error.errno)
            lock.note = f"no lock on {lock.base} ({reason}): nothing keeps a second job from saving there meanwhile"
        return True
    return False


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether the file that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int, saves: bool) -> None:
    """Write into the lock file who holds it; nothing where there is no room or no right to write."""
    job = next((f"{name} {os.environ[name]}" for name in _JOBS if os.environ.get(name)), "")
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    owner = {"host": socket.gethostname(), "process": os.getpid(), "job": job, "since": since, "saves": saves}
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)


def _read_holder(descriptor: int) -> dict[str, object]:
    """Return what a lock file says about its holder; empty where it cannot be read."""
    try:
        found = json.loads(os.pread(descriptor, _LARGEST, 0))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _conflict_message(base: Path, saves: bool, found: dict[str, object]) -> str:
    """Return the message for a job that cannot take the lock."""
    owner = {
        name: text[:100]
        for name in ("host", "process", "job", "since")
        if (text := str(found.get(name, ""))) and text.isprintable()
    }
    others = "restores from" if found.get("saves") is False else "saves to"
    who = "".join(
        text.format(owner[name])
        for name, text in (
            ("job", ", {}"),
            ("host", ", on host {}"),
            ("process", ", process {}"),
            ("since", ", since {}"),
        )
        if name in owner
    )
    doing = "saved to" if saves else "restored from"
    return (
        f"{base} cannot be {doing} now, because another job {others} it{who}: wait for that job, or end it (its lock "
        "ends with it), or use another --dir"
    )


def _release_lock(lock: DirectoryLock) -> None:
    """Release the lock: remove its file unless other jobs hold it too, and the directory if nothing was saved there."""
    if lock.descriptor is None:
        return
    with suppress(OSError):
        # Only a sole holder may remove the file, or another job could lock a second file of its name.
        if not lock.note:
            fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (lock.base / NAME).unlink(missing_ok=True)
        lock.base.rmdir()
    _close_lock_file(lock)


def _close_lock_file(lock: DirectoryLock) -> None:
    assert lock.descriptor is not None
    close_read([lock.descriptor])  # an error of closing does not matter here
    lock.descriptor = None
