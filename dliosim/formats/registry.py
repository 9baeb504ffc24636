"""Formats by name: those that come with this package, and those that others bring by an entry point."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from dliosim.errors import UsageError
from dliosim.formats.protocols import Format, LibraryPreload
from dliosim.model import Dataset

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP: Final = "dliosim.formats"

#: Module and attribute; imported when a pattern names the format, as some need libraries that take long to import.
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
    """The entry points by which packages bring something of their own."""
    from importlib.metadata import entry_points  # takes longer than all formats, and few runs ask for others

    return entry_points(group=group)


def format_names() -> tuple[str, ...]:
    """Names of all formats, those of other packages last."""
    others = sorted({point.name for point in find_entry_points(GROUP)} - set(_BUILT_IN))
    return (*_BUILT_IN, *others)


@cache
def load_format(name: str) -> Format:
    """The format of that name; KeyError where there is none.

    UsageError [R403] where the package that brings it cannot be loaded, or brings something else.
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
        except Exception as error:  # whatever another package's import raises
            text = f"format `{name}` cannot be loaded from `{point.value}`: {type(error).__name__}: {error}"
            raise UsageError(text, "R403") from error
    if not isinstance(found, Format):
        raise UsageError(f"format `{name}`: {found!r} is no format, see docs/extending.md", "R403")
    return found


def import_libraries(form: Format) -> None:
    """Import what a format reads and decodes by, as far as it is installed, before any clock runs."""
    for module in form.libraries if isinstance(form, LibraryPreload) else ():
        with suppress(ImportError):
            import_module(module)


def format_for(dataset: Dataset) -> Format:
    """The format that serves a data set: that of its name, or its variant for such data sets."""
    return load_format(dataset.format).variant(dataset)
