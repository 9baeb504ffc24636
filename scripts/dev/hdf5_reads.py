#!/usr/bin/env python
"""Measure what h5py reads of a file in DLIO's layout: bytes for each byte of contents, and those of HDF5's own index.

    scripts/dev/hdf5_reads.py [FOLDER]     a folder with 500 MB (default: /dev/shm)

A sample is a square of float64 along the last axis, in square chunks; 8 processes read an eighth of the samples each.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

SAMPLES, PROCESSES = 1344, 8
#: Side of a sample, side of a chunk, filter and level: as in docs/evidence/published.md.
FILES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    *((181, chunk, {}) for chunk in (32, 46, 64, 91, 128, 181)),
    *((202, chunk, {}) for chunk in (32, 46, 64, 91, 128, 182, 202)),
    *((side, 64, {"compression": "gzip", "compression_opts": level}) for side in (181, 202) for level in (0, 1, 4, 9)),
    *((side, 64, {"compression": "lzf"}) for side in (181, 202)),
)


def write_file(path: Path, side: int, chunk: int, filters: dict[str, Any]) -> int:
    """Write a file of random samples; return the bytes that its chunks take."""
    with h5py.File(path, "w") as file:
        data = np.random.default_rng(1).random((side, side, SAMPLES))
        made = file.create_dataset("records", data=data, chunks=(chunk, chunk, 1), **filters)
        return int(made.id.get_storage_size())


def read_part(path: Path, part: int) -> int:
    """Read an eighth of the samples; return the bytes that this process got from files meanwhile."""
    before, each = count_bytes(), SAMPLES // PROCESSES
    with h5py.File(path) as file:
        for sample in range(part * each, (part + 1) * each):
            file["records"][:, :, sample]
    return count_bytes() - before


def count_bytes() -> int:
    """Return the bytes that read calls of this process have returned (Linux)."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


def main() -> None:
    """Print a line for each file; with two arguments, read a part of one."""
    if len(sys.argv) == 3:
        print(read_part(Path(sys.argv[1]), int(sys.argv[2])))
        return
    path = Path(sys.argv[1] if len(sys.argv) == 2 else "/dev/shm") / "hdf5_reads.h5"
    try:
        for side, chunk, filters in FILES:
            stored = write_file(path, side, chunk, filters)
            command = [sys.executable, __file__, str(path)]
            read = sum(int(subprocess.check_output([*command, str(part)])) for part in range(PROCESSES))
            each = (read - stored) / (SAMPLES * (-(-side // chunk)) ** 2)
            words = " ".join(str(value) for value in filters.values()) or "none"
            print(
                f"{side} in {chunk} x {chunk}, {words}: {read / (8 * side**2 * SAMPLES):.4f}, {each:.1f} B a chunk",
                flush=True,
            )
    finally:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
