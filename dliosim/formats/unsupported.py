"""Checks of settings that a format cannot use or needs, of too many chunks, and of samples that may be too small."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from dliosim.errors import HELP
from dliosim.model import LARGEST_SAMPLE, Dataset, Distribution

#: Names that a message has at most.
_MOST_NAMED: Final = 8

#: Settings that not every format uses: what they are without being given, and why a format does not use them.
_SETTINGS: Final = {
    "header": (0, "files of format {} begin as the format says; only raw files have a header of any size"),
    "align": (1, "the format {} decides where samples begin; only those of raw files can be aligned"),
    "shape": (None, "samples of format {} have no shape"),
    "chunk": (None, "files of format {} have no chunks"),
    "compress": (None, "files of format {} are written without compression"),
    "parts": (1, "files of format {} hold one array and no more, so a record cannot have several data sets"),
    "names": ((), "there is nothing in files of format {} that has a name"),
}


def refuse_unused(dataset: Dataset, form: str, taken: Collection[str] = ()) -> tuple[str, str] | None:
    """Return the first setting that is given but has no use in a format, and why; or None.

    `form` is the format's name, `taken` names those of the settings above that the format does use.
    """
    for name, (absent, why) in _SETTINGS.items():
        if name not in taken and getattr(dataset, name) != absent:
            return name, why.format(form)
    return None


def quote_names(names: Sequence[str]) -> str:
    """Return the first names, for a sentence."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMED]) + more


def cure_names(names: Sequence[str]) -> str:
    """Return the end of a message for files with several arrays: a line that names all; empty if none can."""
    plain = all(re.fullmatch(r"(?=.*\S)[\w ./:+-]{1,60}", name) for name in names) and 0 < len(names) <= _MOST_NAMED
    phrase = ", ".join(f'"{name}"' for name in names)
    return f"{HELP}write `datasets {phrase}`, or some of them, in the data set" if plain else ""


def refuse_sizes(dataset: Dataset, why: str) -> tuple[str, str] | None:
    """Return the setting that gives samples of a file different sizes, and why they have one; or None.

    Plans by the largest sample, as for chunks, need a limit; data sets of a record share one constant size.
    """
    if dataset.source or dataset.constant_size is not None:
        return None
    if dataset.sizes != "by file" and dataset.layout.files < dataset.samples:
        return "size", f"{why}: with `sizes by file` a size is drawn for each file"
    if dataset.parts > 1:
        return "parts", "drawn sizes cannot be divided among several"
    if dataset.largest_size == LARGEST_SAMPLE and (dataset.chunk is not None or dataset.compress is not None):
        return "size", "stored in chunks, drawn sizes need a limit: `clipped to 1 kB and 4 MB`"
    return None


def smallest_size(size: Distribution) -> float:
    """Return a lower limit of all sizes that can be drawn, bytes."""
    drawn = size.parameters[0] if size.kind in ("constant", "uniform") else 0.0
    return max(drawn, size.low or 0.0)


#: The largest number of chunks (HDF5) or column chunks (Parquet) in one file: HDF5's index has 47 bytes for each
MOST_UNITS: Final = 1 << 24

_MOST_IN_ALL: Final = 1 << 27  # every rank keeps offset and length of each: 2 GiB at this limit


def refuse_excess_units(dataset: Dataset, units: int) -> tuple[str, str] | None:
    """Return the setting that makes too many chunks, and why; or None. `units` are the chunks of the largest file."""
    setting = "compress" if dataset.chunk is None else "chunk"
    if units > MOST_UNITS:
        return setting, f"makes {units:_} chunks of a file, over {MOST_UNITS:_}, and each has a place in its index"
    if units * dataset.layout.files > _MOST_IN_ALL:
        total = units * dataset.layout.files
        return setting, f"makes {total:_} chunks in all, over {_MOST_IN_ALL:_}, and every rank knows where each is"
    return None
