"""Formats by name: those of this package, and those that other packages add by an entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Final, cast

from dliosim.errors import UsageError
from dliosim.formats.protocols import Format
from dliosim.model import Dataset
from dliosim.plugins import Registry

#: Module and attribute. Imported when a pattern names the format: the libraries of some take long to import.
_BUILT_IN: Final = {
    "raw": "raw:Raw",
    "npy": "numpy_files.npy_header:Npy",
    "npz": "numpy_files.npz:npz",
    "csv": "csv:Csv",
    "tfrecord": "tfrecord:TfRecord",
    "indexed": "megatron:Indexed",
    "tar": "tar:Tar",
    "hdf5": "hdf5.format:hdf5",
    "jpeg": "images:Jpeg",
    "png": "images:Png",
    "parquet": "parquet.format:Parquet",
}


FORMATS: Final = Registry("format", "dliosim.formats", tuple(_BUILT_IN))


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, those of other packages last."""
    return FORMATS.names()


@cache
def load_format(name: str) -> Callable[[Dataset], Format]:
    """Return the function that binds the format of that name to a data set; KeyError if there is none.

    UsageError [R403] if the package that provides it cannot be loaded.
    """
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name].split(":")
        found = getattr(import_module(f"dliosim.formats.{module}"), attribute)
    else:
        found, _ = FORMATS.load(name)
    return cast(Callable[[Dataset], Format], found)


def bind(dataset: Dataset) -> Format:
    """Return the format of a data set, bound to it; never fails for a data set that the format refuses.

    Raises as `load_format`, and UsageError [R403] if another package provides something else.
    """
    make = load_format(dataset.format)
    try:
        form = make(dataset) if callable(make) else make
    except Exception as error:  # another package's code may raise anything
        if dataset.format in _BUILT_IN:
            raise
        text = f"format `{dataset.format}` cannot be bound to `{dataset.name}`: {type(error).__name__}: {error}"
        raise UsageError(text, "R403") from error
    if not isinstance(form, Format):
        raise UsageError(f"format `{dataset.format}`: {form!r} is no format, see docs/dev/extending.md", "R403")
    return form


def import_libraries(form: Format) -> None:
    """Import the installed libraries that a format reads and decodes with, before any clock runs."""
    for module in form.libraries:
        with suppress(ImportError):
            import_module(module)


def import_modules(datasets: Iterable[Dataset]) -> None:
    """Import the modules that reading and writing these data sets needs, before any clock runs."""
    for form in map(bind, datasets):
        for module in form.modules:
            import_module(module)
