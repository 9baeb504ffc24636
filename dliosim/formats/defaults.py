"""Defaults for formats without checksums, trailers or sidecars, and refusals of settings without use in a format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from dliosim.formats.protocols import Ints
from dliosim.lazy_numpy import np
from dliosim.model import Dataset


class SimpleFormat:
    """Formats whose files end with their last sample, and need nothing that runs through them or lies beside them."""

    checksum: Callable[[memoryview, int], int] | None = None

    def trailer(self, dataset: Dataset, counts: Ints, ends: Ints) -> Ints:
        """None."""
        return np.zeros_like(counts)

    def start_checksum(self, dataset: Dataset, count: int, end: int) -> int:
        """There is none."""
        return 0

    def write_trailer(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Nothing."""
        return b""

    def sidecars(self, dataset: Dataset) -> tuple[str, ...]:
        """None."""
        return ()

    def write_sidecar(self, dataset: Dataset, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """Never asked for."""
        return iter(())


class ContiguousFormat(SimpleFormat):
    """Formats whose samples lie one right after the other; each says for itself what stands before all of them."""

    def align(self, dataset: Dataset) -> int:
        """Anywhere."""
        return 1

    def stride(self, dataset: Dataset, sizes: Ints) -> Ints:
        """The samples' own bytes."""
        return sizes

    def length(self, dataset: Dataset, sizes: Ints) -> Ints:
        """The samples' own bytes."""
        return sizes

    def content(self, dataset: Dataset, sizes: Ints) -> tuple[Ints, Ints]:
        """All of it."""
        return np.zeros_like(sizes), sizes

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Nothing."""


_WHY: Final = {
    "header": "files of format {} begin as the format says; only raw files have a header of any size",
    "align": "samples of format {} lie where the format puts them; only those of raw files can be aligned",
    "shape": "samples of format {} have no shape",
    "chunk": "files of format {} have no chunks",
    "compress": "files of format {} are written without compression",
    "parts": "files of format {} hold one array and no more, so a record cannot have several data sets",
    "names": "there is nothing in files of format {} that has a name",
}


def refuse_unused(dataset: Dataset, form: str, taken: Collection[str] = ()) -> tuple[str, str] | None:
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


def refuse_excess_units(dataset: Dataset, units: int) -> tuple[str, str] | None:
    """The setting that makes more chunks than an index holds, and why, where the fullest file has so many; or None."""
    setting = "compress" if dataset.chunk is None else "chunk"
    if units > MOST_UNITS:
        return setting, f"makes {units:_} chunks of a file, over {MOST_UNITS:_}, and each has a place in its index"
    if units * dataset.layout.files > _MOST_IN_ALL:
        total = units * dataset.layout.files
        return setting, f"makes {total:_} chunks in all, over {_MOST_IN_ALL:_}, and every rank knows where each is"
    return None
