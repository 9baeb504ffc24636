"""Formats, packages and files that the language's tests pretend to have, so that nothing depends on the machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from dliosim.formats.protocols import Bytes, Column, FileIndex, Format, LibraryFile
from dliosim.formats.raw import RAW
from dliosim.model import Dataset, FileSurvey
from dliosim.model.dataset import pack_counts

FORMATS = ("raw", "npy", "npz", "csv", "tfrecord", "indexed", "tar", "hdf5", "jpeg", "png", "parquet")


class Stub:
    """A format that holds everything; `parquet` lacks its package, and `csv` takes one size only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def variant(self, dataset: Dataset) -> Format:
        return self

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        if self.name == "csv" and dataset.constant_size is None:
            return "size", "a line has one length"
        return None

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        return ("pyarrow", "parquet") if self.name == "parquet" else None

    def index(self, path: Path, dataset: Dataset) -> FileIndex:
        raise NotImplementedError

    def decode(self, dataset: Dataset, column: Column | None, data: memoryview) -> Bytes | None:
        raise NotImplementedError


class Read(Stub):
    """A format that has a library."""

    def open_library(self, path: Path, dataset: Dataset, comm: object | None, collective: bool) -> LibraryFile:
        raise NotImplementedError


def serving(dataset: Dataset) -> Format:
    """Raw as it is, and a stub for each other."""
    if dataset.format == "raw":
        return RAW
    return (Read if dataset.format in ("hdf5", "npy", "npz", "parquet") else Stub)(dataset.format)


@contextmanager
def pretended(parallel: bool = False) -> Iterator[None]:
    """All formats and no more, one backend of another package, `gds`, and an HDF5 that is parallel or not."""
    with ExitStack() as stack:
        for name, value in {
            "blocks.storage_settings.format_names": lambda: FORMATS,
            "blocks.storage_settings.format_for": serving,
            "checks.external_readers.format_for": serving,
            "settings.access.plugin_apis": lambda: ("gds",),
            "checks.external_readers.is_hdf5_parallel": lambda: parallel,
        }.items():
            stack.enter_context(mock.patch(f"dliosim.language.{name}", value))
        yield


def finder(dataset: Dataset) -> FileSurvey:
    """Return 1000 samples in 10 files, for any data set."""
    return FileSurvey(1000, 10, "d1ge57")


def uneven(dataset: Dataset) -> FileSurvey:
    """Return 1000 samples in 10 files; the first file has nearly all of them."""
    return FileSurvey(1000, 10, "unev3n", counts=pack_counts(np.array([982, *[2] * 9])))
