"""Locks on directories of checkpoints and of copies, so that no other job writes or deletes what a run has there.

The lock is the kernel's (flock), on a small file in the directory that names its holder: it ends with the process of
the holder, in whatever way that ends. The holder removes the file when it releases the lock; the file of a killed
holder is taken over by the next one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from time import sleep

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
    """The lock of this run on one directory of checkpoints or of a copy; on the rank that took it alone."""

    #: the directory
    base: Path
    #: why there is no lock; empty if there is one
    note: str = ""
    #: whether the lock is taken for writing; else it is shared with other jobs that read
    saves: bool = False
    #: descriptor of the lock file; None: not open
    descriptor: int | None = None

    def acquire(self, saves: bool) -> None:
        """Take the lock for writing or reading, or change it from one to the other. Raises ExecutionError [R405]."""
        base, path = self.base, self.base / NAME
        for _ in range(_ATTEMPTS):
            if self.descriptor is None:
                if saves:
                    make_durable_directory(base)
                with wrap_call("open", path):
                    self.descriptor = _open_lock_file(path, saves)
                if self.descriptor is None:
                    if saves:
                        continue  # another job that saved nothing removed the directory with its lock
                    # There is no directory, or it is read-only and has no lock file: then there is nothing to protect.
                    return
            if not self._try_lock(self.descriptor, saves):
                found = _read_holder(self.descriptor)
                self._close()
                raise ExecutionError(_conflict_message(base, saves, found), "R405")
            if _is_same_file(self.descriptor, path):
                self.saves = saves
                _write_holder(self.descriptor, saves)
                return
            self._close()
        raise ExecutionError(f"{path} is made and removed again and again by other jobs", "R405")

    def release(self) -> None:
        """Release the lock: remove its file unless other jobs hold it, and the directory if nothing was saved."""
        if self.descriptor is None:
            return
        with suppress(OSError):
            # Only a sole holder may remove the file, or another job could lock a second file of its name.
            if not self.note:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.base / NAME).unlink(missing_ok=True)
            self.base.rmdir()
        self._close()

    def _try_lock(self, descriptor: int, saves: bool) -> bool:
        """Return whether this run has the lock now; True with a `note` if the file system has no locks."""
        for attempt in range(_ASKED):
            sleep(_PAUSE if attempt else 0)
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if saves else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                reason = os.strerror(error.errno)
                self.note = f"no lock on {self.base} ({reason}): nothing keeps a second job from writing there"
            return True
        return False

    def _close(self) -> None:
        assert self.descriptor is not None
        close_read([self.descriptor])  # an error of closing does not matter here
        self.descriptor = None


def _open_lock_file(path: Path, saves: bool) -> int | None:
    """Open the lock file, and make it if it is missing.

    Returns None if there is no directory, or the run only restores, may not write there and finds no lock file.
    """
    with suppress(FileNotFoundError):
        try:
            return open_regular(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if saves or error.errno not in _READ_ONLY:
                raise
            return open_regular(path)
    return None


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether the file that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int, saves: bool) -> None:
    """Write into the lock file who holds it; nothing if there is no room or no right to write."""
    job = next((f"{name} {os.environ[name]}" for name in _JOBS if os.environ.get(name)), "")
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    owner = {"host": os.uname().nodename, "process": os.getpid(), "job": job, "since": since, "saves": saves}
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)


def _read_holder(descriptor: int) -> dict[str, object]:
    """Return what a lock file says about its holder; empty if it cannot be read."""
    try:
        found = json.loads(os.pread(descriptor, _LARGEST, 0))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _conflict_message(base: Path, saves: bool, found: dict[str, object]) -> str:
    """Return the message for a job that cannot take the lock."""
    others = "reads from" if found.get("saves") is False else "writes to"
    who = "".join(
        f", {label}{text[:100]}"
        for name, label in (("job", ""), ("host", "on host "), ("process", "process "), ("since", "since "))
        if (text := str(found.get(name, ""))) and text.isprintable()
    )
    doing = "written to" if saves else "read from"
    return (
        f"{base} cannot be {doing} now, because another job {others} it{who}: wait for that job, or end it (its lock "
        "ends with it), or use another --dir or --root"
    )
