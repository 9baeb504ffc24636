"""The manifest of a data set: the check whether a directory holds complete data of one description, and its errors."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.store.manifest import NAME, find_manifest, write_manifest
from dliosim.model import Dataset

#: The fault if there is no directory.
ABSENT = "has not been prepared"


def write_dataset_manifest(dataset: Dataset, directory: Path, size: int, pattern: str, durable: bool) -> None:
    """Write the manifest of a data set of `size` bytes; unless they are `durable`, with the id of this node's boot.

    `pattern` is the text that `dliosim verify` makes the data again from. Raises ExecutionError.
    """
    content = {
        "kind": "data set",
        "name": dataset.name,
        "digest": dataset.digest(),
        "layout": dataset.layout.kind,
        "files": dataset.layout.files,
        "samples": dataset.samples,
        "bytes": size,
        "pattern": pattern.splitlines(),
        "synced": durable,
    }
    write_manifest(directory, content if durable else {**content, "boot": boot_id()})


def find_dataset_fault(dataset: Dataset, directory: Path) -> str | None:
    """Return why the data in a directory do not count, as words that follow the data set's name; None if they do.

    Raises ExecutionError [R401] if their manifest cannot be read.
    """
    manifest = find_manifest(directory, "data set", dataset.digest())
    if manifest is None:
        if os.path.lexists(directory / NAME):
            return f"has something else where it should have its {NAME}"
        return "is incomplete" if directory.is_dir() else ABSENT
    boot = boot_id()
    if manifest.get("synced") is True or (boot is not None and manifest.get("boot") == boot):
        return None
    return "was prepared with `fsync off` by another node, or before this one was booted, and may have lost bytes,"


def find_preparing_ranks(dataset: Dataset, directory: Path) -> int:
    """Return how many ranks prepared the same data set in a directory next to this one; 0 if none is found."""
    if dataset.layout.kind != "file per rank":
        return 0
    with suppress(OSError):
        for entry in sorted(directory.parent.iterdir()):
            manifest = find_manifest(entry, "data set", entry.name) if entry != directory else None
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
