"""The small file that marks the data next to it as complete: written last, under another name, synced and renamed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dliosim.boundedjson import LARGEST, check_json_size, parse_json
from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.io_errors import call_error, is_damage, unreadable_error, wrap_call
from dliosim.execute.safe_open import open_folder, open_for_read, read_pieces, write_file
from dliosim.formats.header_scanner import read_at

NAME = "manifest.json"

#: The kinds of data that a manifest describes.
Kind = Literal["data set", "checkpoint"]


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


def find_manifest(directory: Path, kind: Kind, digest: str) -> dict[str, Any] | None:
    """Return the manifest of a directory; None if it has none of this kind and digest. Raises as `read_manifest`."""
    content = read_manifest(directory)
    if content is None or (content.get("kind"), content.get("digest")) != (kind, digest):
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
