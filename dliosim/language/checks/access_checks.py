"""Checks of access: what an api, cache, engine or library cannot take (E204 to E206, E211), or ignores (W305)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dliosim.errors import UsageError
from dliosim.formats.registry import bind, format_names
from dliosim.language.diagnostics import Label
from dliosim.language.settings.block_settings import Settings
from dliosim.model import MPI_APIS, Access, Dataset, Loop
from dliosim.model.direct_io import DIRECT_ALIGNMENT
from dliosim.plugins import APIS


def check_prepare(settings: Settings, access: Access, dataset: Dataset, data: Settings) -> None:
    """Report the findings about a `prepare` verb."""
    if access.collective and not _is_shared(dataset):
        _report_not_shared(settings, data, dataset)
    check_writes(settings, access)


def check_writes(settings: Settings, access: Access) -> None:
    """Report the findings about how data are written."""
    _can_bypass_cache(settings, access)
    check_hints(settings, access)
    check_plugin(settings, access)


def _is_shared(dataset: Dataset) -> bool:
    return dataset.layout.kind == "shared file" or (dataset.layout.kind == "files" and dataset.layout.files == 1)


def _report_not_shared(settings: Settings, data: Settings, dataset: Dataset) -> None:
    reason = {
        "file per sample": "but each sample is a file of its own",
        "files": f"but the samples are in {dataset.layout.files} files",
        "file per rank": "but each rank has a file of its own",
    }[dataset.layout.kind]
    verb = "write" if settings.block.kind in ("prepare", "convert") else "read"
    other = "name one file" if dataset.source else "store the samples in one file: `layout shared file`"
    settings.report(
        "E204",
        "collective access needs one file shared by every rank",
        f"use `api mpi-independent`, or {other}",
        ("api", f"all ranks must call {verb} together"),
        data.layout_labels(reason, f"{reason} (the default)"),
    )


def check_collective(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> None:
    """Report E204 or E205 if a collective call cannot read what a loop reads."""
    if not loop.access.collective:
        return
    if not _is_shared(dataset):
        _report_not_shared(settings, data, dataset)
    elif loop.access.open == "each sample":
        settings.report(
            "E205",
            "collective access cannot open the file for each sample",
            "use `open once` or `open each epoch`",
            ("open", "ranks would open at different times"),
            ("api", "all must open together"),
        )


def _can_bypass_cache(settings: Settings, access: Access) -> bool:
    """Return False, and report E206, if api or transfer cannot do what `cache off` asks."""
    if access.cache != "off" or (
        not access.is_mpi and (access.transfer is None or access.transfer >= DIRECT_ALIGNMENT)
    ):
        return True
    if access.is_mpi:
        settings.report(
            "E206",
            f"`cache off` does not work with `api {access.api}`",
            "`api posix` can; or `cache page`",
            ("cache", "past the page cache means O_DIRECT"),
            ("api", "MPI-IO offers no O_DIRECT here"),
        )
    else:
        settings.report(
            "E206",
            "`cache off` needs calls of at least 4 KiB",
            "use `transfer 4 KiB` or more, or `cache page`",
            ("transfer", "a call is smaller than a page"),
            ("cache", "O_DIRECT moves whole pages"),
        )
    return False


def check_alignment(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> None:
    """Report E206 for `cache off` that is not possible, or reads raw samples that are not aligned."""
    if not _can_bypass_cache(settings, loop.access) or loop.access.cache != "off":
        return
    if dataset.format != "raw" or dataset.source:
        return  # samples cannot be aligned, so the reader widens calls to whole pages
    alone = dataset.layout.files == dataset.samples
    aligned = dataset.header % DIRECT_ALIGNMENT == 0 and (alone or (dataset.constant_size or 1) % DIRECT_ALIGNMENT == 0)
    if aligned or dataset.align % DIRECT_ALIGNMENT == 0:
        return
    head = "align" if data.find_line("align") is not None else "header" if dataset.header % DIRECT_ALIGNMENT else "size"
    settings.report(
        "E206",
        "`cache off` needs aligned samples",
        f"add `align 4 KiB` to data set `{dataset.name}`",
        ("cache", "O_DIRECT reads whole aligned pages"),
        data.labels(head, "but samples do not begin at multiples of 4 KiB"),
    )


def check_hints(settings: Settings, access: Access) -> None:
    """Report W305 for each `hint`, and for `hints`, that has no effect."""
    if access.api != "posix":
        return
    for line in [*(settings.all_lines("hints") if access.hint_set != "library" else []), *settings.all_lines("hint")]:
        settings.report(
            "W305",
            f"`{line.head}` has no effect with `api posix`",
            "leave it out, or use `api mpi-independent` or `api mpi-collective`",
            [Label(line.phrase, "for the MPI library")],
            ("api", "not asked to do I/O", "which `api posix` (the default) does not use"),
        )


def check_communicator(settings: Settings, access: Access, dataset: Dataset, data: Settings) -> None:
    """Report W305 for a `communicator` if ranks open no file together."""
    if access.communicator == "world" or access.api not in APIS.own:
        return
    hint = "leave it out"
    if access.api == "posix":
        hint = "leave it out, or use `api mpi-independent` or `api mpi-collective`"
        alone, labels = "api posix", settings.labels("api", "each rank opens files for itself")
    elif not _is_shared(dataset):
        reason = "each rank opens the files that it reads for itself"
        alone, labels = f"layout {dataset.layout.kind}", data.labels("layout", reason)
    elif access.open == "each sample":
        alone, labels = "open each sample", settings.labels("open", "each rank opens the file for itself")
    else:
        return
    message = f"`communicator` has no effect with `{alone}`"
    settings.report("W305", message, hint, ("communicator", "ranks that open the file together"), labels)


def check_engine(settings: Settings, access: Access) -> None:
    """Report E211 for an `engine` that does not work here, and E206 with `cache off`."""
    if settings.find_line("engine") is None or access.api not in APIS.own:
        return
    api, mapped = access.api, access.engine == "mmap"
    if api == "mpi-collective":
        hint = "leave `engine` out, or use `api posix`"
        refused = "E211", f"api {api}", "one collective call reads the whole batch, however MPI does it", hint
    elif api == "mpi-independent" and access.engine in ("mmap", "pread"):
        refused = "E211", f"api {api}", "MPI-IO makes a call for each piece", "`api posix` can; or `engine preadv`"
    elif mapped and access.cache == "off":
        hint = "use `engine queued` or `engine preadv`; or `cache page`"
        refused = "E206", "cache off", "O_DIRECT goes past that cache", hint
    elif mapped and access.transfer is not None:
        hint = "leave `transfer` out, or use `engine preadv`"
        refused = "E211", "transfer", "there are no calls that this could cut", hint
    else:
        return
    code, setting, reason, hint = refused
    what = {
        "preadv": "one call after the other",
        "pread": "one call after the other",
        "mmap": "a batch is copied out of a mapping of the page cache",
        "queued": "each rank keeps calls of its own in flight",
    }[access.engine]
    message = f"`engine {access.engine}` does not work with `{setting}`"
    settings.report(code, message, hint, ("engine", what), (setting.split()[0], reason))


def check_memory_cache(settings: Settings, access: Access, dataset: Dataset, data: Settings) -> None:
    """Report E211 for `cache memory` if a sample is not one range of bytes of its own."""
    if access.cache != "memory":
        return
    if dataset.parts > 1 or len(dataset.names) > 1:
        head, reason = "datasets", "a sample is made of several ranges"
    elif dataset.compress is not None:
        head, reason = "compress", "samples share what is compressed as one"
    elif dataset.format == "parquet":
        head, reason = "format", "samples share pages of columns"
    elif dataset.chunks_of_sample(dataset.largest_size) > 1:
        head, reason = "chunk", "a sample is cut into several"
    else:
        return
    settings.report(
        "E211",
        f"`cache memory` does not keep samples of `{dataset.name}`",
        "use `cache page`, which keeps what is read as it is stored",
        ("cache", "keeps samples that are ranges of bytes"),
        data.labels(head, reason),
    )


def check_readers(settings: Settings, access: Access) -> None:
    """Report E211 for reader processes of another api than posix, W304 for several readers that read by MPI-IO."""
    if access.processes and access.api != "posix":
        settings.report(
            "E211",
            f"`readers … processes` does not work with `api {access.api}`",
            f"use `api posix`, or `readers {access.readers}`, which are threads",
            ("readers", "processes without MPI"),
            ("api", "needs the rank's MPI" if access.is_mpi else "another package's, which may need the rank's MPI"),
        )
    elif access.api in MPI_APIS and access.readers > 1:
        settings.report(
            "W304",
            f"{access.readers} readers are no faster than one with MPI-IO",
            "use `readers 1`, or `api posix`",
            ("readers", "only one of these reads at a time"),
            ("api", "one lock a process"),
        )


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
    if dataset.format == "hdf5" and access.readers > 1 and not access.processes:
        settings.report(
            "W307",
            f"{access.readers} readers are no faster than one with h5py, which has one lock for all threads of a rank",
            f"use `readers {access.readers} processes`, as the workers of training jobs, or `through direct`",
            ("readers", "threads of a rank; processes do not wait for each other"),
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
