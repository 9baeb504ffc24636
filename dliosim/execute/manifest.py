"""The small file that says that data beside it are whole: written last, aside, synced and renamed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dliosim.errors import UsageError
from dliosim.execute.faults import calling

NAME = "manifest.json"

#: Larger files than this are not ours.
LARGEST = 64 * 1024 * 1024

#: What a manifest may speak of.
Kind = Literal["data set", "checkpoint"]


def manifest_text(content: Mapping[str, Any]) -> str:
    """What a manifest of this content is: only its end has a brace at the beginning of a line."""
    return json.dumps(dict(content), indent=1, sort_keys=True)


def write_manifest(directory: Path, content: Mapping[str, Any]) -> None:
    """Write the manifest of a directory so that it exists whole or not at all, and survives a crash.

    Raises ExecutionError.
    """
    aside = directory / f"{NAME}.partial"
    write_small(aside, manifest_text(content).encode(), durable=True)
    with calling("rename", aside):
        aside.rename(directory / NAME)
    sync_directory(directory)


def write_small(path: Path, data: bytes, durable: bool) -> None:
    """Write a small file, made or emptied before, and sync it where it shall be `durable`. Raises ExecutionError."""
    with calling("open", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        left = memoryview(data)
        while left:
            with calling("write", path):
                left = left[os.write(descriptor, left) :]
        if durable:
            with calling("fsync", path):
                os.fsync(descriptor)
    finally:
        with calling("close", path):
            os.close(descriptor)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a directory, or None where there is none that can be read whole."""
    try:
        descriptor = os.open(directory / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="utf-8") as stream:
            # A read asks for memory of its whole limit, whatever there is to read.
            content = json.loads(stream.read(min(LARGEST, os.fstat(descriptor).st_size)))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def ends_whole(directory: Path) -> bool:
    """Whether a directory has a manifest that was written to its end, readable or not.

    What is no file, or cannot be looked at, counts as one: it is not for us to say that nobody finished it.
    """
    try:
        descriptor = os.open(directory / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno != errno.ENOENT
    try:
        return os.pread(descriptor, 2, max(0, os.fstat(descriptor).st_size - 2)) == b"\n}"
    except OSError:
        return True
    finally:
        os.close(descriptor)


def manifest_of(directory: Path, kind: Kind, digest: str) -> dict[str, Any] | None:
    """The manifest of a directory, or None where there is none of data of this kind and digest."""
    content = read_manifest(directory)
    if content is None or (content.get("kind"), content.get("digest")) != (kind, digest):
        return None
    return content


def remove_manifest(directory: Path) -> None:
    """Take back the word that the data are whole, durably, before they are written over."""
    (directory / NAME).unlink(missing_ok=True)
    if directory.is_dir():
        sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. Raises ExecutionError."""
    with calling("open", directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with calling("fsync", directory):
            os.fsync(descriptor)
    finally:
        with calling("close", directory):
            os.close(descriptor)


def make_durably(directory: Path) -> None:
    """Make a directory and those above it, so that what becomes durable in it is not lost with a name above it.

    Raises ExecutionError.
    """
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    make_directory(directory, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def make_directory(directory: Path, exist_ok: bool = False) -> None:
    """Make a directory, and those above it; with `exist_ok` it may be there. Raises ExecutionError."""
    with calling("mkdir", directory):
        directory.mkdir(parents=True, exist_ok=exist_ok)


def inside(root: Path, relative: str) -> Path:
    """`root/relative` as an absolute path without symbolic links; UsageError [E208] if it lies outside the root."""
    base = Path(os.path.realpath(root))
    path = Path(os.path.realpath(base / relative))
    if path != base and base not in path.parents:
        raise UsageError(f"`{relative}` leads out of its root {root}, to {path}", "E208")
    return path
