"""The manifest of a checkpoint: its files, their sizes and checksums, and the check of what is on storage."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from dliosim.execute.io_errors import call_error, is_damage, unreadable_error
from dliosim.execute.safe_open import open_folder
from dliosim.execute.store.manifest import read_manifest
from dliosim.model import Split
from dliosim.model.checkpoint import Commit

# A file, or a file in a folder; neither name begins with a dot.
_PLAIN = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_LARGEST = 1 << 63

#: The remedy that is offered for a checkpoint that cannot be read.
OLDER = "move its directory away to restore an older one"


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """A checkpoint as it was saved."""

    #: name of the checkpoint
    name: str
    #: digest of all that decides its bytes
    digest: str
    #: how it became complete
    commit: Commit
    #: number of ranks that wrote it
    ranks: int
    #: how the model was split over these ranks
    split: Split
    #: bytes and CRC-32 of each file, by its name, which may include one folder
    files: Mapping[str, tuple[int, int]]

    @property
    def commit_warning(self) -> str:
        """Return the warning about a checkpoint that has all its files; empty if there is none."""
        return "`commit none`: nothing proves that it is complete" if self.commit == "none" else ""

    def manifest_content(self) -> dict[str, Any]:
        """Return the content of the manifest file."""
        return {
            "kind": "checkpoint",
            "name": self.name,
            "digest": self.digest,
            "commit": self.commit,
            "ranks": self.ranks,
            "split": self.split.describe(),
            "files": {name: list(found) for name, found in self.files.items()},
        }

    def find_size_fault(self, directory: Path) -> str | None:
        """Return the first file that is missing, too short or too long, by the sizes alone; None if all are right.

        Raises ExecutionError [R401] if the files cannot be looked at, which proves nothing.
        """
        for folder, names in self._group_by_folder().items():
            try:
                with open_folder(directory / folder) as opened:
                    for name in names:
                        found, size = os.lstat(name.rpartition("/")[2], dir_fd=opened), self.files[name][0]
                        if not stat.S_ISREG(found.st_mode):
                            return f"{name} is no file"
                        if found.st_size != size:
                            return f"{name} has {found.st_size} bytes, not {size}"
            except OSError as error:
                name = _error_path(error, folder)
                if is_damage(error):
                    return f"{name}: {error.strerror}"
                raise unreadable_error(call_error("lstat", str(directory / name), error), OLDER) from error
        return None

    def _group_by_folder(self) -> dict[str, list[str]]:
        folders: dict[str, list[str]] = {}
        for name in self.files:
            folders.setdefault(name.rpartition("/")[0], []).append(name)
        return folders


def load_manifest(directory: Path) -> CheckpointManifest:
    """Read the manifest of a checkpoint's directory.

    Raises ValueError with the reason if it is not a manifest of this checkpoint, ExecutionError [R401] if it
    cannot be read.
    """
    content = read_manifest(directory)
    if content is None:
        raise ValueError("has no manifest that can be read")
    if (content.get("kind"), content.get("digest")) != ("checkpoint", directory.parent.name):
        raise ValueError("has no manifest of such a checkpoint")
    name, ranks = content.get("name"), content.get("ranks")
    commit: Commit | None = next((word for word in get_args(Commit) if word == content.get("commit")), None)
    split, files = _parse_split(content.get("split")), content.get("files")
    if not isinstance(name, str) or not isinstance(ranks, int) or commit is None or split is None:
        raise ValueError("has a manifest that does not say what was saved")
    if not isinstance(files, dict) or not all(_is_file_entry(key, value) for key, value in files.items()):
        raise ValueError("has a manifest with invalid file entries")
    if not files:
        raise ValueError("has a manifest without files")
    found = {key: (value[0], value[1]) for key, value in files.items()}
    return CheckpointManifest(name, directory.parent.name, commit, ranks, split, found)


def _parse_split(found: object) -> Split | None:
    if not isinstance(found, dict):
        return None
    order = found.get("order", "tp-dp-pp")
    sizes = {key: value for key, value in found.items() if key != "order"}
    if set(sizes) != {"tensor", "pipeline", "data", "played"} or order not in ("tp-dp-pp", "tp-pp-dp"):
        return None
    return Split(**sizes, order=order) if all(_is_count(value) for value in sizes.values()) else None


def _is_file_entry(name: str, found: object) -> bool:
    if _PLAIN.fullmatch(name) is None or not isinstance(found, list) or len(found) != 2:
        return False
    return all(_is_count(value) for value in found) and found[1] < 1 << 32


def _is_count(value: object) -> bool:
    # True is an int to isinstance.
    return type(value) is int and 0 <= value < _LARGEST


def _error_path(error: OSError, folder: str) -> str:
    """Return the name that an error is about: a file in the folder, or the folder itself."""
    own = Path(str(error.filename)).name
    return own if own == folder or not folder else f"{folder}/{own}"
