"""Checks of reads by other code: the library of a format, or a backend of another package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dliosim.errors import UsageError
from dliosim.formats.registry import bind, format_names
from dliosim.language.settings.block_settings import Settings
from dliosim.model import Access, Dataset
from dliosim.plugins import APIS


def has_library(dataset: Dataset) -> bool:
    """Return True if the library of its format can read the samples of a data set."""
    try:
        return bind(dataset).library_reader() is not None
    except (UsageError, ImportError):  # `check_format` reports it
        return False


def is_hdf5_parallel() -> bool:
    """Return True if the installed h5py can open files by MPI-IO."""
    try:
        import h5py
    except ImportError:
        return False
    return bool(h5py.get_config().mpi)


def check_library(settings: Settings, access: Access, dataset: Dataset, data: Settings) -> None:
    """Report the findings for `through library`.

    E216 if the format has no library or it does not read by the api, R403 if the library lacks MPI, E211 for
    settings of calls, E206 for O_DIRECT.
    """
    if has_library(dataset):
        _check_driver(settings, access, dataset, data)
        _check_library_calls(settings, access)
        _check_library_lock(settings, access, dataset)
        return
    formats = ", ".join(name for name in sorted(format_names()) if has_library(replace(dataset, format=name)))
    hint = f"leave `through` out; formats with a library: {formats}"
    if not dataset.found:  # files that are there have the format that they have
        hint = f"give `-D {dataset.name}.format=hdf5`, or {hint}"
    settings.report(
        "E216",
        f"format `{dataset.format}` has no library to read through",
        hint,
        ("through", "asks for the format's own library"),
        data.labels("format", "it has none", f"the format is {dataset.format} (the default)"),
    )


def _check_driver(settings: Settings, access: Access, dataset: Dataset, data: Settings) -> None:
    """Report E216 or R403 if the library cannot read by the api."""
    through = ("through", "the library makes the calls")
    if access.is_mpi and dataset.format == "hdf5":
        if not is_hdf5_parallel():
            settings.report(
                "R403",
                f"`through library` with `api {access.api}` needs a parallel HDF5, which is not installed",
                "write `through direct`, which reads without h5py, or `api posix`; docs/running.md#parallel-hdf5 says "
                "how to build one",
                ("api", "needs an HDF5 and an h5py that are built with MPI"),
                through,
            )
    elif access.api != "posix":
        settings.report(
            "E216",
            f"the library of `{dataset.format}` does not read by `api {access.api}`",
            "use `api posix`, or leave `through` out",
            ("api", "not known to it"),
            through,
            data.labels("format", "the library of this format"),
        )


def _check_library_calls(settings: Settings, access: Access) -> None:
    """Report E211 for settings that only the library decides, and E206 for `cache off`."""
    refused = (
        ("engine", settings.find_line("engine") is not None, "how calls are issued"),
        ("transfer", access.transfer is not None, "how large they are"),
        ("hints", access.hint_set != "library", "what MPI is asked for"),
        ("hint", settings.find_line("hint") is not None, "what MPI is asked for"),
        ("scatter", access.scatter, "which rank makes them"),
        ("readers", access.readers > 0 and access.by == "sample", "a batch is one read of the library"),
        ("cache", access.cache == "off", "O_DIRECT is a way of opening files"),
    )
    _refuse_settings(settings, "through library", "the library makes its own calls", refused)


def _check_library_lock(settings: Settings, access: Access, dataset: Dataset) -> None:
    """Report W307 for several readers of one rank that wait for each other in the library."""
    if dataset.format == "hdf5" and access.readers > 1:
        settings.report(
            "W307",
            f"{access.readers} readers are no faster than one with h5py, which has one lock for all threads of a rank",
            "use `readers 1`, with a rank for each worker of the job, or `through direct`",
            ("readers", "threads of a rank; workers that are processes do not wait for each other"),
            ("through", "h5py makes the calls"),
        )


def check_plugin(settings: Settings, access: Access) -> None:
    """Report E211 for settings of the built-in readers if another package brings the api."""
    if access.api in APIS.own:
        return
    refused = (
        ("engine", settings.find_line("engine") is not None, "one of our own ways of making calls"),
        ("hints", access.hint_set != "library", "for the MPI library"),
        ("hint", settings.find_line("hint") is not None, "for the MPI library"),
        ("communicator", access.communicator != "world", "ranks that open a file together by MPI-IO"),
        ("scatter", access.scatter, "one of our own ways of reading"),
    )
    _refuse_settings(settings, f"api {access.api}", "another package's", refused)


def _refuse_settings(settings: Settings, by: str, why: str, refused: Iterable[tuple[str, bool, str]]) -> None:
    """Report each setting (keyword, whether it is asked for, what it decides) that does not work with `by`."""
    for head, is_asked, reason in refused:
        if is_asked:
            message = f"`{_PHRASES.get(head, head)}` does not work with `{by}`"
            hint = _REMEDIES.get(head, f"leave `{head}` out")
            settings.report("E206" if head == "cache" else "E211", message, hint, (head, reason), (by.split()[0], why))


_REMEDIES: Final = {"readers": "use `readers … by batch`", "cache": "use `cache page`, or leave `through` out"}
_PHRASES: Final = {"cache": "cache off", "readers": "readers … by sample", "scatter": "scatter by node"}
