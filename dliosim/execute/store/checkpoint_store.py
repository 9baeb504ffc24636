"""The numbered directories of a checkpoint: the complete ones, the next one, and those to delete.

They are in one directory (`base`), named by the digest of everything that determines their bytes. A checkpoint is
`NNNNNN`; one that is being written with `commit rename` is `NNNNNN.partial`, one that is being deleted
`NNNNNN.old.partial`. Without a manifest none of them counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import perf_counter_ns
from types import TracebackType

from dliosim.errors import HELP, ExecutionError, UsageError
from dliosim.execute.io_errors import call_error, is_damage, unreadable_error, wrap_call
from dliosim.execute.safe_open import write_file
from dliosim.execute.store import manifest
from dliosim.execute.store.locking import DirectoryLock
from dliosim.execute.store.manifest import sync_directory
from dliosim.measure.rank.meter import Stopwatch
from dliosim.model import Split
from dliosim.model.checkpoint import Commit
from dliosim.trace.calls import Call
from dliosim.trace.recorder import open_log

_OURS = re.compile(r"([0-9]{6,12})(\.old\.partial|\.partial|)")
_MOST = 10**12 - 1
_ASIDE, _DYING = ".partial", ".old.partial"


@dataclass(slots=True)
class CommitTimes:
    """The time of each part of completing a checkpoint."""

    #: time of syncing directories, without that of the manifest; ns
    sync_ns: int = 0
    #: time of writing, syncing and renaming the manifest; ns
    manifest_ns: int = 0
    #: time of renaming the directory; ns
    rename_ns: int = 0


class CheckpointStore:
    """The numbers of the checkpoints in one directory, and what this run does with each; on rank 0 alone.

    Its threads may call it at the same time. The `lock` keeps other jobs from saving there.
    """

    def __init__(self, base: Path) -> None:
        self.lock = DirectoryLock(base)
        #: names of what was removed of earlier jobs, until a save has reported them
        self.swept: list[str] = []
        self._base = base
        self._mutex = Lock()
        # Numbers that are being written or deleted, and those that need no check for being unfinished.
        self._busy: set[int] = set()
        self._finished: set[int] = set()
        #: the numbers that this run has completed, in their order
        self.completed: list[int] = []
        # How many drains and restores use a number.
        self._used: Counter[int] = Counter()
        # The highest numbers that this run has begun and completed.
        self._last = self._newest = 0

    def begin(self, commit: Commit, above: int = 0) -> tuple[int, Path]:
        """Make the directory in which the next checkpoint is written, and remove what earlier jobs left unfinished.

        Its number is higher than any existing one, so that no rank of a dying job writes into this directory. It is
        also higher than `above`, the number of copies elsewhere, which may outlive this root. Raises ExecutionError,
        also if the last number is already used.
        """
        with self._mutex:
            manifest.make_durable_directory(self._base)
            number = max(self._remove_unfinished(), self._last, above) + 1
            if number > _MOST:
                raise ExecutionError(f"{self._base / str(_MOST)} has the highest number possible: move it away")
            return number, self._make_directory(number, _ASIDE if commit == "rename" else "")

    def begin_copy(self, number: int) -> Path:
        """Make the directory to which a checkpoint of another root is copied; its name ends in `.partial`.

        An existing copy of that number is removed.
        """
        with self._mutex:
            manifest.make_durable_directory(self._base)
            self._remove_unfinished()
            _remove_checkpoint(self._base / f"{number:06d}")
            return self._make_directory(number, _ASIDE)

    def commit(self, number: int, saved: manifest.CheckpointManifest) -> CommitTimes:
        """Make a written checkpoint complete in the way of `saved.commit`; from then on it counts.

        Its files are written, and synced if the checkpoint asks for it. Raises ExecutionError; the caller must
        `abandon` it then.
        """
        final = self._base / f"{number:06d}"
        directory = final.with_name(final.name + _ASIDE) if saved.commit == "rename" else final
        times = CommitTimes()
        if saved.commit == "none":
            with Stopwatch(times, "manifest_ns"):
                write_file(
                    directory / manifest.NAME,
                    [manifest.encode_manifest(directory, saved.manifest_content())],
                    durable=False,
                )
        else:
            with Stopwatch(times, "sync_ns"):
                for folder in sorted({name.rpartition("/")[0] for name in saved.files} - {""}):
                    sync_directory(directory / folder)
                if saved.commit == "metadata":
                    # The manifest is the last thing that is made durable, so all that it lists must be durable before.
                    sync_directory(directory)
                    sync_directory(self._base)
            with Stopwatch(times, "manifest_ns"):
                manifest.write_manifest(directory, saved.manifest_content())
        if saved.commit == "rename":
            with Stopwatch(times, "rename_ns"), wrap_call("rename", directory):
                directory.rename(final)
            with Stopwatch(times, "sync_ns"):
                sync_directory(self._base)
        with self._mutex:
            self._busy.discard(number)
            self._finished.add(number)
            self._newest = max(self._newest, number)
            self.completed.append(number)
        return times

    def abandon(self, number: int) -> None:
        """Remove a checkpoint that will not be complete. Raises nothing: the next `begin` removes what is left."""
        name = f"{number:06d}"
        with self._mutex:
            for entry in (self._base / f"{name}{_ASIDE}", self._base / name):
                with suppress(OSError):
                    _remove_checkpoint(entry)
            self._busy.discard(number)

    def add_pin(self, number: int) -> None:
        """Keep a checkpoint from deletion, while it is drained or restored, until `remove_pin` is called as often."""
        with self._mutex:
            self._used[number] += 1

    def remove_pin(self, number: int) -> None:
        """Undo one `add_pin`."""
        with self._mutex:
            self._used[number] -= 1

    def delete_old(self, keep: int) -> None:
        """Delete all checkpoints older than the newest `keep` complete ones; damaged ones do not count among these.

        The newest one is not examined if this run has completed it, since other ranks wait meanwhile. Of the others,
        only those that decide what is deleted are examined. A checkpoint that is being written, drained or restored
        stays.
        """
        with self._mutex:
            found = [number for number in checkpoint_numbers(self._base) if number not in self._busy]
            complete = at = 0
            while complete < keep:
                if len(found) - at <= keep - complete:
                    return  # all of them are kept, complete or not
                complete += found[at] == self._newest or _is_complete(self._base / f"{found[at]:06d}")
                at += 1
            dying = {}
            for number in found[at:]:
                if not self._used[number]:
                    # Renamed first, so that an interrupted deletion leaves nothing that looks complete.
                    old = self._base / f"{number:06d}"
                    with wrap_call("rename", old):
                        dying[number] = old.rename(old.with_name(f"{old.name}{_DYING}"))
            self._busy |= dying.keys()
        try:
            if dying:
                sync_directory(self._base)
            for old in dying.values():
                _record_deletes(old)
                _remove_checkpoint(old)
        finally:
            with self._mutex:
                self._busy -= dying.keys()

    def _make_directory(self, number: int, suffix: str) -> Path:
        directory = self._base / f"{number:06d}{suffix}"
        manifest.make_directory(directory)
        self._busy.add(number)
        self._last = max(self._last, number)
        return directory

    def _remove_unfinished(self) -> int:
        """Remove what dead jobs left unfinished, and return the highest number that was there. Needs the mutex."""
        # `.old.partial` come first: another directory may have to take their name.
        found = sorted(list_entries(self._base), key=lambda entry: entry[1], reverse=True)
        for number, kind, entry in found:
            if number in self._busy or (number in self._finished and not kind):
                continue
            if kind or is_unfinished(entry):
                _remove_checkpoint(entry)
                self.swept.append(entry.name)
            else:
                self._finished.add(number)
        return max((number for number, _, _ in found), default=0)


class CheckpointStores:
    """All directories of checkpoints and of copies that this run has locked, each once.

    Checkpoints are for rank 0, a copy is for the first rank of its node. As a context, it releases them at its end.
    After an error that only this rank knows, the locks end with the process, as other ranks may still write.
    """

    def __init__(self) -> None:
        self._stores: dict[Path, CheckpointStore] = {}
        self._copies: dict[Path, DirectoryLock] = {}

    def __enter__(self) -> CheckpointStores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or getattr(error, "shared", False):
            self.release()

    def open_to_save(self, base: Path) -> CheckpointStore:
        """Return the store of a directory that this run saves to; the directory is made if it is missing.

        Raises ExecutionError [R405] if another job saves there or restores from there, OSError as the calls do.
        """
        return self._open(base, saves=True)

    def open_to_restore(self, base: Path) -> CheckpointStore:
        """Return the store of a directory that this run restores from; other jobs may restore from it too.

        Raises ExecutionError [R405] if another job saves there, OSError as the calls do.
        """
        return self._open(base, saves=False)

    def lock_copy(self, base: Path, writes: bool) -> str:
        """Lock the directory of a copy to write it, or to read it together with other jobs; return the lock's note.

        Raises ExecutionError [R405] if another job writes it, or reads what this one is to write, OSError as the calls
        do.
        """
        lock = self._copies.setdefault(base, DirectoryLock(base))
        lock.acquire(writes)
        return lock.note

    def lock_note(self, base: Path) -> str:
        """Return the note about the lock on a directory; empty if there is none, or this rank asked for no lock."""
        store = self._stores.get(base)
        return store.lock.note if store is not None else ""

    def close(self, base: Path) -> None:
        """Release the lock on a directory, if there is one."""
        if base in self._stores:
            self._stores.pop(base).lock.release()

    def release(self) -> None:
        """Release all locks."""
        for base in reversed(tuple(self._stores)):
            self.close(base)
        while self._copies:
            self._copies.popitem()[1].release()

    def _open(self, base: Path, saves: bool) -> CheckpointStore:
        store = self._stores.get(base) or CheckpointStore(base)
        if base not in self._stores or (saves and not store.lock.saves):
            store.lock.acquire(saves)
            self._stores[base] = store
        return store


def checkpoint_numbers(base: Path) -> list[int]:
    """Return the numbers of the checkpoints under `base` with their final name, complete or not, newest first."""
    return sorted((number for number, kind, _ in list_entries(base) if not kind), reverse=True)


def list_data_files(base: Path) -> list[Path]:
    """Return all data files of the checkpoints under `base` with their final name."""
    return [
        path
        for number in checkpoint_numbers(base)
        for path in _list_files(base / f"{number:06d}")
        if path.name != manifest.NAME
    ]


def count_leftover_bytes(base: Path) -> int:
    """Return the bytes on storage of checkpoints that were never finished or only partly deleted.

    The next save removes them.
    """
    return sum(
        path.lstat().st_blocks * 512
        for _, kind, entry in list_entries(base)
        if kind or is_unfinished(entry)
        for path in _list_files(entry)
    )


def highest_number(base: Path) -> int:
    """Return the highest number of any directory under `base`, complete or not; 0 if there is none."""
    return max((number for number, _, _ in list_entries(base)), default=0)


def find_newest_complete(
    base: Path, name: str, ranks: int, below: int | None = None, passed_over: Sequence[str] = ()
) -> tuple[int, manifest.CheckpointManifest, list[str]]:
    """Return the number and manifest of the newest complete checkpoint, and why each newer one does not count.

    `below`: only checkpoints with a lower number, after that one proved damaged. `passed_over`: the notes on newer ones
    so far. Raises ExecutionError [R404] if there is none, [R401] if one that may be complete cannot be read, and
    UsageError [E208] if a link may lead out of the root.
    """
    notes = list(passed_over)
    for number in checkpoint_numbers(base):
        if below is not None and number >= below:
            continue
        directory = checkpoint_directory(base, number)
        try:
            saved = manifest.load_manifest(directory)
            fault = saved.find_size_fault(directory)
            if fault is None:
                return number, saved, notes
        except ValueError as error:
            fault = str(error)
        notes.append(f"{directory.name}: {fault}")
    notes += [f"{entry.name}: was never finished" for _, kind, entry in sorted(list_entries(base)) if kind]
    cure = f"{HELP}put `save {name}` in front, or give the --dir where it was saved"
    found = "; ".join(notes) or f"nothing was ever saved there by {ranks} ranks and this description{cure}"
    raise ExecutionError(f"no complete checkpoint of `{name}` in {base}: {found}", "R404")


def checkpoint_directory(base: Path, number: int) -> Path:
    """Return the directory of a checkpoint; UsageError [E208] if it is a link, which may lead anywhere."""
    directory = base / f"{number:06d}"
    if directory.is_symlink():
        text = "checkpoints are read only from real directories: remove the link, or move its target into its place"
        raise UsageError(f"{directory} is a symbolic link: {text}", "E208")
    return directory


def find_other_writers(base: Path, name: str) -> Iterator[tuple[Path, Split]]:
    """Yield the other directories next to `base` with checkpoints of that name, and the split of their ranks.

    Raises OSError.
    """
    for other in sorted(base.parent.iterdir()) if base.parent.is_dir() else []:
        for number in checkpoint_numbers(other) if other != base else []:
            with suppress(ValueError):
                saved = manifest.load_manifest(other / f"{number:06d}")
                if saved.name == name:
                    yield other, saved.split
                    break


def _is_complete(directory: Path) -> bool:
    """Return whether a checkpoint is certainly complete."""
    try:
        return manifest.load_manifest(directory).find_size_fault(directory) is None
    except (OSError, ValueError):
        return False  # it does not count, so no older one is deleted


def list_entries(base: Path) -> list[tuple[int, str, Path]]:
    """Return the entries of `base` with a name of this module: number, suffix, path.

    Raises ExecutionError [R401] if `base` cannot be listed.
    """
    try:
        listed = list(base.iterdir())
    except OSError as error:
        if is_damage(error):
            return []
        raise unreadable_error(call_error("opendir", str(base), error)) from error
    found = ((_OURS.fullmatch(entry.name), entry) for entry in listed)
    made = ((int(match[1]), match[2], entry) for match, entry in found if match)
    return [(number, kind, entry) for number, kind, entry in made if entry.name == f"{number:06d}{kind}"]


def is_unfinished(directory: Path) -> bool:
    """Return whether a directory was never completed: its manifest is missing or cut short.

    A directory with any other damage stays: a user may still want the files next to the manifest.
    """
    return directory.is_dir() and not directory.is_symlink() and not manifest.has_complete_manifest(directory)


def _list_files(directory: Path) -> list[Path]:
    """Return the files of a checkpoint, sorted: those in its directory, which is no link, or in a folder of it."""
    if directory.is_symlink():
        return []
    found = (*directory.glob("*"), *directory.glob("*/*"))
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _record_deletes(directory: Path) -> None:
    """Delete the files of a checkpoint one by one if calls are recorded: a trace so shows how many are kept."""
    with wrap_call("unlink", directory):
        files = sorted(one for one in directory.iterdir() if not one.is_dir())
        log = open_log(lambda file: str(files[file]), Call.UNLINK)
        if log is not None:
            for number, file in enumerate(files):
                begun = perf_counter_ns()
                file.unlink()
                log.add_call(Call.UNLINK, begun, number)


def _remove_checkpoint(entry: Path) -> None:
    """Remove a directory of a checkpoint so that it looks complete at no moment; nothing if it is not there."""
    if entry.is_symlink() or not entry.is_dir():
        with wrap_call("unlink", entry):
            entry.unlink(missing_ok=True)  # opening a pipe to look into it would block
        return
    dying = entry if entry.name.endswith(_ASIDE) else entry.with_name(entry.name + _DYING)
    with wrap_call("rename", entry), suppress(FileNotFoundError):
        if dying != entry:
            entry.rename(dying)
    import shutil  # loads every compression library, for the ranks that remove something alone

    with wrap_call("rmtree", dying), suppress(FileNotFoundError):
        shutil.rmtree(dying)
