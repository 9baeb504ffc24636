"""Formats, packages and files that the language's tests pretend to have, so that nothing depends on the machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from dliosim.formats.protocols import FileIndex, Format, LibraryFile, LibraryReadable
from dliosim.formats.raw import Raw
from dliosim.formats.registry import FORMATS
from dliosim.model import Dataset, FileSurvey
from dliosim.model.dataset import pack_counts
from dliosim.plugins import APIS


class Stub(Format):
    """A format that holds everything; `parquet` lacks its package, and `csv` takes one size only."""

    def refuse(self) -> tuple[str, str] | None:
        if self.dataset.format == "csv" and self.dataset.constant_size is None:
            return "size", "a line has one length"
        return None

    def needs(self) -> tuple[str, str] | None:
        return ("pyarrow", "parquet") if self.dataset.format == "parquet" else None

    def index(self, path: Path) -> FileIndex:
        raise NotImplementedError


class Read(Stub, LibraryReadable):
    """A format that has a library."""

    def open_library(self, path: Path, comm: object | None, collective: bool) -> LibraryFile:
        raise NotImplementedError


def serving(dataset: Dataset) -> Format:
    """Raw as it is, and a stub for each other."""
    if dataset.format == "raw":
        return Raw(dataset)
    return (Read if dataset.format in ("hdf5", "npy", "npz", "parquet") else Stub)(dataset)


@contextmanager
def pretended(parallel: bool = False) -> Iterator[None]:
    """All formats and no more, one backend of another package, `gds`, and an HDF5 that is parallel or not."""
    with ExitStack() as stack:
        for name, value in {
            "blocks.storage_settings.FORMATS": replace(FORMATS, group="none"),
            "blocks.storage_settings.bind": serving,
            "checks.access_checks.bind": serving,
            "settings.access.APIS": replace(APIS, group="none", own=(*APIS.own, "gds")),
            "checks.access_checks.is_hdf5_parallel": lambda: parallel,
        }.items():
            stack.enter_context(mock.patch(f"dliosim.language.{name}", value))
        yield


def finder(dataset: Dataset) -> FileSurvey:
    """Return 1000 samples in 10 files, for any data set."""
    return FileSurvey(1000, 10, "d1ge57")


def uneven(dataset: Dataset) -> FileSurvey:
    """Return 1000 samples in 10 files; the first file has nearly all of them."""
    return FileSurvey(1000, 10, "unev3n", counts=pack_counts(np.array([982, *[2] * 9])))
