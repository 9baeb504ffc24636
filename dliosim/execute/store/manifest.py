"""The small file that marks the data next to it as complete: written last, under another name, synced and renamed.

Those of data sets and of checkpoints say of what they are, and whether what is on storage is that.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from dliosim.boundedjson import LARGEST, check_json_size, parse_json
from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.io_errors import call_error, is_damage, unreadable_error, wrap_call
from dliosim.execute.safe_open import open_folder, open_for_read, read_pieces, write_file
from dliosim.formats.header_scanner import read_at
from dliosim.model import Dataset, Split
from dliosim.model.checkpoint import Commit

NAME = "manifest.json"


def encode_manifest(directory: Path, content: Mapping[str, Any]) -> bytes:
    """Return the manifest of a directory as JSON; only the last line begins with a brace.

    Raises ExecutionError if it is too large to be read again.
    """
    made = json.dumps(dict(content), indent=1, sort_keys=True).encode()
    try:
        check_json_size(made)
    except ValueError as error:
        raise ExecutionError(f"the manifest of {directory} would never be read: {error}") from error
    return made


def write_manifest(directory: Path, content: Mapping[str, Any]) -> None:
    """Write the manifest of a directory so that it exists whole or not at all, and survives a crash.

    Raises ExecutionError, also if `encode_manifest` does.
    """
    aside = directory / f"{NAME}.partial"
    write_file(aside, [encode_manifest(directory, content)], durable=True)
    with wrap_call("rename", aside):
        aside.rename(directory / NAME)
    sync_directory(directory)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Return the manifest of a directory; None if there is certainly none: no file, or one of another content.

    Raises ExecutionError [R401] if it cannot be read, which proves nothing.
    """
    try:
        with open_for_read(directory / NAME) as descriptor:
            data = b"".join(read_pieces(descriptor, LARGEST + 1))
    except OSError as error:
        if is_damage(error):
            return None
        raise unreadable_error(call_error("read", str(directory / NAME), error)) from error
    try:
        content = parse_json(data)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def has_complete_manifest(directory: Path) -> bool:
    """Return whether a directory has a manifest that was written to its end, readable or not.

    Anything other than a file, or a file that cannot be opened, counts as one too: it does not prove that the data are
    unfinished.
    """
    try:
        with open_for_read(directory / NAME) as descriptor:
            return read_at(descriptor, 2, max(0, os.fstat(descriptor).st_size - 2)) == b"\n}"
    except OSError as error:
        return error.errno != errno.ENOENT


def find_manifest(directory: Path, digest: str) -> dict[str, Any] | None:
    """Return the manifest of a data set's directory; None without one of this digest. Raises as `read_manifest`."""
    content = read_manifest(directory)
    if content is None or (content.get("kind"), content.get("digest")) != ("data set", digest):
        return None
    return content


def remove_manifest(directory: Path) -> None:
    """Remove the mark that the data are complete, durably, before they are overwritten. Raises ExecutionError."""
    with wrap_call("unlink", directory / NAME):
        (directory / NAME).unlink(missing_ok=True)
    if directory.is_dir():
        sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. Raises ExecutionError."""
    with wrap_call("open", directory), open_folder(directory, follow=True) as descriptor, wrap_call("fsync", directory):
        os.fsync(descriptor)


def make_durable_directory(directory: Path) -> None:
    """Make a directory and those above it, and make their names durable.

    Otherwise durable data in it could be lost with a name above it. Raises ExecutionError.
    """
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    make_directory(directory, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def make_directory(directory: Path, exist_ok: bool = False) -> None:
    """Make a directory and those above it; with `exist_ok` it may exist. Raises ExecutionError."""
    with wrap_call("mkdir", directory):
        directory.mkdir(parents=True, exist_ok=exist_ok)


def resolve_in_root(root: Path, relative: str) -> Path:
    """Return `root/relative` as an absolute path without symbolic links; UsageError [E208] if it leaves the root."""
    base = Path(os.path.realpath(root))
    path = Path(os.path.realpath(base / relative))
    if path != base and base not in path.parents:
        raise UsageError(f"`{relative}` leads out of its root {root}, to {path}", "E208")
    return path


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


#: The fault if there is no directory.
ABSENT = "has not been prepared"


def write_dataset_manifest(dataset: Dataset, directory: Path, size: int, pattern: str, durable: bool) -> None:
    """Write the manifest of a data set of `size` bytes; unless they are `durable`, with the id of this node's boot.

    `pattern` is the text that `dliosim verify` makes the data again from. Raises ExecutionError.
    """
    content = {
        "name": dataset.name,
        "digest": dataset.digest(),
        "layout": dataset.layout.kind,
        "files": dataset.layout.files,
        "samples": dataset.samples,
        "bytes": size,
        "pattern": pattern.splitlines(),
    }
    complete_data(directory, content, durable)


def find_dataset_fault(dataset: Dataset, directory: Path) -> str | None:
    """Return why the data in a directory do not count, as words that follow the data set's name; None if they do.

    Raises ExecutionError [R401] if their manifest cannot be read.
    """
    manifest = find_manifest(directory, dataset.digest())
    if manifest is None:
        if os.path.lexists(directory / NAME):
            return f"has something else where it should have its {NAME}"
        return "is incomplete" if directory.is_dir() else ABSENT
    if is_durable(manifest):
        return None
    return "was prepared with `fsync off` by another node, or before this one was booted, and may have lost bytes,"


def is_durable(manifest: Mapping[str, Any]) -> bool:
    """Return whether the data of a manifest were synced, or written on this node since it was booted."""
    boot = boot_id()
    return manifest.get("synced") is True or (boot is not None and manifest.get("boot") == boot)


def complete_data(directory: Path, about: Mapping[str, Any], durable: bool) -> None:
    """Write a manifest that says `about` the data of a directory; as `write_dataset_manifest`."""
    content = {**about, "kind": "data set", "synced": durable}
    write_manifest(directory, content if durable else {**content, "boot": boot_id()})


def find_preparing_ranks(dataset: Dataset, directory: Path) -> int:
    """Return how many ranks prepared the same data set in a directory next to this one; 0 if none is found."""
    if dataset.layout.kind != "file per rank":
        return 0
    with suppress(OSError):
        for entry in sorted(directory.parent.iterdir()):
            manifest = find_manifest(entry, entry.name) if entry != directory else None
            files = manifest.get("files") if manifest else None
            if isinstance(files, int):
                other = replace(dataset, layout=replace(dataset.layout, files=files))
                if entry.name == other.digest():
                    return files
    return 0


def damage_error(dataset: Dataset, what: str) -> ExecutionError:
    """Return the error of a data set whose files are not as its manifest, or their first inspection, says."""
    if dataset.source:
        text = f"data set `{dataset.name}` has changed since its files were looked at: {what}"
        return ExecutionError(text, "R401")
    again = f"`prepare {dataset.name} afresh` writes it again"
    return ExecutionError(f"data set `{dataset.name}` is damaged: {what}; {again}", "R401")


def boot_id() -> str | None:
    """Return the id of this boot of this node; None if the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None
