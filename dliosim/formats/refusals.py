"""Settings of a data set that only some formats have a use for, and what the others say to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dliosim.model import Dataset

_WHY: Final = {
    "header": "files of format {} begin as the format says; only raw files have a header of any size",
    "align": "samples of format {} lie where the format puts them; only those of raw files can be aligned",
    "shape": "samples of format {} have no shape",
    "chunk": "files of format {} have no chunks",
    "compress": "files of format {} are written without compression",
    "parts": "files of format {} hold one array and no more, so a record cannot have several data sets",
    "names": "there is nothing in files of format {} that has a name",
}


def without_use(dataset: Dataset, form: str, taken: Collection[str] = ()) -> tuple[str, str] | None:
    """The first setting that differs from its default though a format does nothing with it, and why; or None.

    `form` is the format's name, `taken` those of the settings above that mean something to it.
    """
    given = {
        "header": dataset.header != 0,
        "align": dataset.align != 1,
        "shape": dataset.shape is not None,
        "chunk": dataset.chunk is not None,
        "compress": dataset.compress is not None,
        "parts": dataset.parts != 1,
        "names": dataset.names != (),
    }
    return next(((name, _WHY[name].format(form)) for name in given if given[name] and name not in taken), None)


MOST_UNITS: Final = 1 << 24
"""Chunks, or columns of row groups, of one file: HDF5 keeps 47 bytes of index for each."""

_MOST_IN_ALL: Final = 1 << 27  # every rank holds the offset and the length of each, 2 GiB then


def too_many_units(dataset: Dataset, units: int) -> tuple[str, str] | None:
    """The setting that makes more chunks than an index holds, and why, where the fullest file has so many; or None."""
    setting = "compress" if dataset.chunk is None else "chunk"
    if units > MOST_UNITS:
        return setting, f"makes {units:_} chunks of a file, over {MOST_UNITS:_}, and each has a place in its index"
    if units * dataset.layout.files > _MOST_IN_ALL:
        total = units * dataset.layout.files
        return setting, f"makes {total:_} chunks in all, over {_MOST_IN_ALL:_}, and every rank knows where each is"
    return None
