"""Formats by name: those of this package, and those that other packages add by an entry point."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from dliosim.errors import UsageError
from dliosim.formats.protocols import Format, LateModules, LibraryPreload
from dliosim.model import Dataset

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP: Final = "dliosim.formats"

#: Module and attribute. Imported when a pattern names the format: the libraries of some take long to import.
_BUILT_IN: Final = {
    "raw": "raw:RAW",
    "npy": "numpy_files.npy:NPY",
    "npz": "numpy_files.npz:NPZ",
    "csv": "csv:CSV",
    "tfrecord": "tfrecord:TFRECORD",
    "indexed": "megatron:INDEXED",
    "tar": "tar:TAR",
    "hdf5": "hdf5.format:HDF5",
    "jpeg": "images:JPEG",
    "png": "images:PNG",
    "parquet": "parquet.format:PARQUET",
}


def find_entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group, by which other packages add formats and backends."""
    from importlib.metadata import entry_points  # slower than all formats together, and few runs need others

    return entry_points(group=group)


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, those of other packages last."""
    others = sorted({point.name for point in find_entry_points(GROUP)} - set(_BUILT_IN))
    return (*_BUILT_IN, *others)


@cache
def load_format(name: str) -> Format:
    """Return the format of that name; KeyError where there is none.

    UsageError [R403] where the package that provides it cannot be loaded, or provides something else.
    """
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name].split(":")
        found = getattr(import_module(f"dliosim.formats.{module}"), attribute)
    else:
        point = next((point for point in find_entry_points(GROUP) if point.name == name), None)
        if point is None:
            raise KeyError(name)
        try:
            found = point.load()
        except Exception as error:  # the import of another package may raise anything
            text = f"format `{name}` cannot be loaded from `{point.value}`: {type(error).__name__}: {error}"
            raise UsageError(text, "R403") from error
    if not isinstance(found, Format):
        raise UsageError(f"format `{name}`: {found!r} is no format, see docs/extending.md", "R403")
    return found


def import_libraries(form: Format) -> None:
    """Import the installed libraries that a format reads and decodes with, before any clock runs."""
    for module in form.libraries if isinstance(form, LibraryPreload) else ():
        with suppress(ImportError):
            import_module(module)


def import_modules(datasets: Iterable[Dataset]) -> None:
    """Import the modules that reading and writing these data sets needs, before any clock runs."""
    for form in map(format_for, datasets):
        for module in form.modules if isinstance(form, LateModules) else ():
            import_module(module)


def format_for(dataset: Dataset) -> Format:
    """Return the format that serves a data set: the one of its name, or a variant of it."""
    return load_format(dataset.format).variant(dataset)
