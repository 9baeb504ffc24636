"""The small file that says that data beside it are whole: written last, aside, synced and renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dliosim.errors import UsageError

NAME = "manifest.json"

#: Larger files than this are not ours.
LARGEST = 64 * 1024 * 1024

#: What a manifest may speak of.
Kind = Literal["data set", "checkpoint"]


def write_manifest(directory: Path, content: Mapping[str, Any]) -> None:
    """Write the manifest of a directory so that it exists whole or not at all, and survives a crash.

    Raises OSError as the calls do.
    """
    aside = directory / f"{NAME}.partial"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(dict(content), stream, indent=1, sort_keys=True)
        stream.flush()
        os.fsync(stream.fileno())
    aside.rename(directory / NAME)
    sync_directory(directory)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a directory, or None where there is none that can be read whole."""
    try:
        descriptor = os.open(directory / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="utf-8") as stream:
            content = json.loads(stream.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


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
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def inside(root: Path, relative: str) -> Path:
    """`root/relative` as an absolute path without symbolic links; UsageError [E208] if it lies outside the root."""
    base = Path(os.path.realpath(root))
    path = Path(os.path.realpath(base / relative))
    if path != base and base not in path.parents:
        raise UsageError(f"`{relative}` leads out of its root {root}, to {path}", "E208")
    return path
