"""Checks of `convert` with its two data sets (E211, W306)."""

from __future__ import annotations

from collections.abc import Mapping

from dliosim.language.checks.loop_checks import warn_raw_decode
from dliosim.language.diagnostics import Label
from dliosim.language.settings.block_settings import Settings
from dliosim.model import Convert, Dataset
from dliosim.readable import count


def check_convert(
    settings: Settings, verb: Convert, nouns: Mapping[str, Settings], source: Dataset, dataset: Dataset
) -> None:
    """Report the findings about a conversion of `source` to `dataset`; `nouns` has the settings of both."""
    header = settings.block.header
    read, written = header["converted"].span, header["NAME"].span
    if source.name == dataset.name:
        hint = f"name another data set to write, as `convert {source.name} to packed`"
        settings.report(
            "E211", f"`{source.name}` is converted to itself", hint, [Label(written, "this is what is read")]
        )
        return
    if source.samples != dataset.samples:
        settings.report(
            "E211",
            f"`{source.name}` has {count(source.samples, 'sample')}, and `{dataset.name}` {dataset.samples}",
            f"write `samples {source.samples}` in `dataset {dataset.name}`: each sample becomes one",
            [Label(written, f"{dataset.samples} here"), Label(read, f"{source.samples} here")],
            nouns[dataset.name].labels("samples", "too many or too few"),
        )
    if verb.access.is_mpi:
        settings.report(
            "E211",
            f"`convert` does not write by `api {verb.access.api}`",
            "use `api posix`: each file is written by one rank",
            ("api", "ranks write together"),
        )
    if not verb.decode:
        return
    data = nouns[source.name]
    if source.format == "parquet":
        settings.report(
            "E211",
            "`decode on` does not work here: parquet is decoded by its library alone",
            "leave it out, and give its time by `preprocess 1 ms busy`",
            ("decode", "a decoder must be run on what is read"),
            data.labels("format", "parts of its files do not say how they are decoded", "found by the files' names"),
        )
    if source.format == "raw":
        warn_raw_decode(settings, data)
