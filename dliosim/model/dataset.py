"""A data set: how many samples of which size, and in which files they lie."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

from dliosim.model.distributions import Distribution


@dataclass(frozen=True, slots=True)
class Layout:
    """Sample i of N lies in file i * files // N; files are dealt round robin over `folders`.

    `files` is resolved: the samples with a file per sample, the ranks that prepared it with a file per rank, 1 with a
    shared file.
    """

    kind: Literal["file per sample", "files", "file per rank", "shared file"]
    files: int
    folders: int = 1


@dataclass(frozen=True, slots=True)
class Stripe:
    """Striping asked of the file system: bytes of one stripe, and the number of targets."""

    size: int
    targets: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set with nothing left to default; sizes in bytes.

    `header` bytes stand before sample 0 of every file, and the offset of every sample is rounded up to `align`.
    """

    name: str
    seed: int
    samples: int
    size: Distribution
    layout: Layout
    path: str
    root: str = "data"
    format: str = "raw"
    header: int = 0
    align: int = 1
    stripe: Stripe | None = None

    @property
    def fixed_size(self) -> int | None:
        """Bytes of every sample, or None where sizes vary."""
        return int(self.size.parameters[0]) if self.size.is_constant else None

    def digest(self) -> str:
        """16 hexadecimal digits of everything that decides the files' bytes and striping (not where they lie)."""
        described = asdict(self)
        del described["path"], described["root"]
        text = json.dumps(described, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def folder_name(self, folder: int) -> str:
        """Path of one folder of files, relative to the data set's own directory; '.' where there is one only."""
        return "." if self.layout.folders == 1 else f"{folder:04d}"

    def file_name(self, file: int) -> str:
        """Path of one file, relative to the data set's own directory; names are computed, never listed."""
        name = f"{file:09d}.{self.format}"
        return name if self.layout.folders == 1 else f"{file % self.layout.folders:04d}/{name}"
