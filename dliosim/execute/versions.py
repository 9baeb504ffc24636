"""The numbered directories of a checkpoint: which are complete, which is the next, which are deleted.

They lie in a directory (`base`) that is named by the digest of what decides their bytes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.manifest import manifest_of, read_manifest, sync_directory, write_manifest

_COMPLETE = re.compile(r"\d{6,12}")
_PARTIAL = ".partial"


def file_name(file: int) -> str:
    """Name of one file of a checkpoint, in its directory."""
    return f"{file:06d}.ckpt"


def numbers(base: Path) -> list[int]:
    """Numbers of the checkpoints under `base` that were renamed into place, newest first."""
    if not base.is_dir():
        return []
    return sorted((int(entry.name) for entry in base.iterdir() if _COMPLETE.fullmatch(entry.name)), reverse=True)


def saved_files(base: Path) -> list[Path]:
    """All data files of the checkpoints under `base` that were renamed into place."""
    return [path for number in numbers(base) for path in sorted((base / f"{number:06d}").glob("*.ckpt"))]


def unfinished_bytes(base: Path) -> int:
    """What checkpoints that were never finished, or not wholly deleted, take on storage until the next is begun."""
    return sum(path.lstat().st_blocks * 512 for path in base.glob(f"*{_PARTIAL}/*"))


def begin(base: Path) -> tuple[int, Path]:
    """Make the directory in which the next checkpoint is written aside; what a crash left there is removed."""
    base.mkdir(parents=True, exist_ok=True)
    for entry in base.glob(f"*{_PARTIAL}"):
        shutil.rmtree(entry)
    number = max(numbers(base), default=0) + 1
    aside = base / f"{number:06d}{_PARTIAL}"
    aside.mkdir()
    return number, aside


def commit(aside: Path, name: str, sizes: Iterable[int], ranks: int) -> Path:
    """Give a written and synced checkpoint its name, durably; from then on it is complete."""
    described = {"kind": "checkpoint", "name": name, "digest": aside.parent.name, "ranks": ranks}
    write_manifest(aside, {**described, "sizes": list(sizes)})
    final = aside.with_name(aside.name.removesuffix(_PARTIAL))
    aside.rename(final)
    sync_directory(final.parent)
    return final


def abandon(directory: Path) -> None:
    """Remove what was written of a checkpoint that will not be completed."""
    shutil.rmtree(directory, ignore_errors=True)


def delete_old(base: Path, keep: int) -> None:
    """Delete all that is older than the newest `keep` complete checkpoints; damaged ones do not count among these.

    The newest of all is the one that was just committed. Others wait meanwhile, so it is believed without a look, and
    of the rest only those are looked at on which it depends what is deleted.
    """
    found = numbers(base)
    complete, at = 1, 1
    while complete < keep:
        if len(found) - at <= keep - complete:
            return  # all of them are kept, complete or not
        complete += _fault(base / f"{found[at]:06d}") is None
        at += 1
    for number in found[at:]:
        # Aside first, so that a deletion cut short leaves nothing that looks complete.
        old = base / f"{number:06d}"
        dying = old.with_name(f"{old.name}.old{_PARTIAL}")
        old.rename(dying)
        shutil.rmtree(dying)


def newest_complete(base: Path, name: str, ranks: int) -> tuple[int, Path, list[str]]:
    """The newest complete checkpoint: number, directory, and what was found newer and why it does not count.

    Raises ExecutionError [R404] where there is none.
    """
    passed_over: list[str] = []
    for number in numbers(base):
        directory = base / f"{number:06d}"
        fault = _fault(directory)
        if fault is None:
            return number, directory, passed_over
        passed_over.append(f"{directory.name}: {fault}")
    for entry in sorted(base.glob(f"*{_PARTIAL}")) if base.is_dir() else []:
        passed_over.append(f"{entry.name}: was never finished")
    found = "; ".join(passed_over) or f"nothing was ever saved there by {ranks} ranks and this description"
    raise ExecutionError(f"no complete checkpoint of `{name}` in {base}: {found}", "R404")


def writers_beside(base: Path, name: str) -> Iterator[tuple[str, int]]:
    """Digest and number of ranks of the checkpoints of that name in the directories beside `base`."""
    for other in sorted(base.parent.iterdir()) if base.parent.is_dir() else []:
        for number in numbers(other) if other != base else []:
            manifest = manifest_of(other / f"{number:06d}", "checkpoint", other.name)
            ranks = manifest.get("ranks") if manifest and manifest.get("name") == name else None
            if isinstance(ranks, int):
                yield other.name, ranks
                break


def _fault(directory: Path) -> str | None:
    manifest = manifest_of(directory, "checkpoint", directory.parent.name)
    sizes = manifest.get("sizes") if manifest else None
    if not isinstance(sizes, list):
        return (
            "has no manifest of such a checkpoint" if read_manifest(directory) else "has no manifest that can be read"
        )
    for file, size in enumerate(sizes):
        path = directory / file_name(file)
        try:
            found = path.lstat().st_size
        except OSError as error:
            return f"{path.name}: {error.strerror}"
        if found != size:
            return f"{path.name} has {found} bytes, not {size}"
    return None
