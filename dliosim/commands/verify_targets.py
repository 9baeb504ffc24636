"""Find the data sets and checkpoints below a directory, and read what their manifests say; for rank 0."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from dliosim.errors import HELP, DliosimError, UsageError
from dliosim.execute.run.verify import Fault, FaultKind, Target
from dliosim.execute.store.checkpoint_manifest import load_manifest
from dliosim.execute.store.checkpoint_store import CheckpointStores, checkpoint_directory, is_unfinished, list_entries
from dliosim.execute.store.locking import NAME as LOCK
from dliosim.execute.store.manifest import NAME, find_manifest
from dliosim.language.compile import compile_pattern
from dliosim.model import Job

#: The name of a directory that has data of one description.
_DIGEST = re.compile(r"[0-9a-f]{16}")


def find_targets(place: Path, stores: CheckpointStores) -> Iterator[Target]:
    """Yield what is in a directory, or is that directory itself, in the order of names; links are not followed.

    Checkpoints are locked until the next directory is looked at, so that no other job deletes them. Raises UsageError
    where there is no such directory.
    """
    if not place.is_dir():
        usual = Path("dliosim-data")
        hint = f"write `dliosim verify {f'{usual}`, or' if usual.is_dir() else 'DIR`, with'} the --dir of a run"
        reason = "it is a file, and no directory" if place.exists() else "there is no such directory"
        raise UsageError(f"{place}: {reason}{HELP}{hint}")
    if _DIGEST.fullmatch(place.parent.name) and any(entry == place for _, _, entry in list_entries(place.parent)):
        yield from _read_checkpoints(place.parent, stores, place)
        return
    left = [place]
    while left:
        directory = left.pop()
        try:
            if _DIGEST.fullmatch(directory.name):
                yield from _read_directory(directory, stores)
            else:
                with os.scandir(directory) as entries:
                    inner = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
                left += map(Path, reversed(inner))
        except OSError as error:
            yield Target(directory, "directory", fault=_fault(error))


def _read_directory(directory: Path, stores: CheckpointStores) -> Iterator[Target]:
    if list_entries(directory):
        yield from _read_checkpoints(directory, stores)
    elif any(entry.name != LOCK for entry in directory.iterdir()):
        yield _read_dataset(directory)


def _read_checkpoints(base: Path, stores: CheckpointStores, only: Path | None = None) -> Iterator[Target]:
    stores.open_to_restore(base)
    try:
        for number, kind, directory in sorted(list_entries(base)):
            if only in (None, directory):
                yield _read_checkpoint(base, number, kind, directory, only is not None)
    finally:
        stores.close(base)


def _read_checkpoint(base: Path, number: int, kind: str, directory: Path, named: bool) -> Target:
    try:
        if kind or is_unfinished(directory):
            fault = Fault("was never finished", "damaged" if named else "unfinished")
            return Target(directory, "checkpoint", fault=fault)
        return Target(directory, "checkpoint", load_manifest(checkpoint_directory(base, number)))
    except (ValueError, OSError) as error:
        return Target(directory, "checkpoint", fault=_fault(error))


def _read_dataset(directory: Path) -> Target:
    """Return the data set that a manifest describes, or why it describes none; that alone is no damage of the data."""

    def refuse(why: str, kind: FaultKind = "unread") -> Target:
        return Target(directory, "data set", fault=Fault(why, kind))

    manifest = find_manifest(directory, "data set", directory.name)
    if manifest is None:
        if os.path.lexists(directory / NAME):
            return refuse(f"has something else in the place of its {NAME}", "damaged")
        return refuse("was never finished")  # or is being prepared: data sets have no lock
    pattern, size = manifest.get("pattern"), manifest.get("bytes")
    if not isinstance(pattern, list) or not pattern or not all(isinstance(line, str) for line in pattern):
        return refuse(f"has no description in its {NAME}, so nothing says which bytes are right")
    with TemporaryDirectory() as place:
        path = Path(place) / f"{NAME}.dlio"
        path.write_text("\n".join(pattern), encoding="utf-8", errors="replace")
        try:
            workload, _ = compile_pattern(path, (), Job(1))
        except ValueError as error:
            return refuse(f"has a description in its {NAME} that is refused: {_fault(error).why}")
    if type(size) is not int or [dataset.digest() for dataset in workload.datasets] != [directory.name]:
        return refuse(f"has a description in its {NAME} that is of other data", "damaged")
    return Target(directory, "data set", workload.datasets[0], size)


def _fault(error: Exception) -> Fault:
    text = error.message if isinstance(error, DliosimError) else str(error)
    return Fault(text, "unread" if isinstance(error, OSError) else "damaged")
