"""Read whole numbers of an HDF5 file as arrays; refuse what is too large, in another file, or no whole number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import UsageError
from dliosim.readable import printable
from dliosim.report.reader.fields import MAX_TEXT, check_file

#: The largest HDF5 file that is read; bytes.
MAX_HDF5_BYTES = 1 << 30
#: The most numbers that are read from one file: 1 GB of memory.
MAX_NUMBERS = 1 << 27

_MAX_GROUPS = 100_000

Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]


@dataclass(slots=True)
class Hdf5Group:
    """A group of an open HDF5 file.

    Every method raises UsageError where a member is missing or has another type.
    """

    path: Path  #: path of the file
    content: Any  #: h5py.Group
    left: list[int]  #: one number: how many numbers may still be read from the file; shared by its groups

    def groups(self) -> list[tuple[str, Hdf5Group]]:
        """Return the groups inside with their names, in the order of names."""
        names = sorted(self.content.keys())
        if len(names) > _MAX_GROUPS:
            raise self._member_error("", f"has more than {_MAX_GROUPS} groups")
        import h5py

        found = [(str(name), self._member(name)) for name in names]
        return [(name, Hdf5Group(self.path, one, self.left)) for name, one in found if isinstance(one, h5py.Group)]

    def text(self, name: str) -> str:
        """Return an attribute that is a text."""
        value = self.content.attrs.get(name)
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise self._member_error(name, "is not an attribute with a text")
        return printable(value)

    def whole(self, name: str) -> int:
        """Return an attribute that is a whole number, 0 or more."""
        value = self.content.attrs.get(name)
        if not isinstance(value, (int, np.integer)) or not 0 <= int(value) < 2**63:
            raise self._member_error(name, "is not an attribute with a whole number")
        return int(value)

    def array(self, name: str, shape: tuple[int | None, ...], least: int = 0, most: int = 1 << 53) -> Ints:
        """Return a data set of whole numbers from `least` to `most`; None in `shape` is any length."""
        import h5py

        found = self._member(name)
        if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
            raise self._member_error(name, "is not a data set of this file")
        if found.dtype.kind not in "iu":
            raise self._member_error(name, "does not hold whole numbers")
        if len(found.shape) != len(shape) or any(
            is_long != long for is_long, long in zip(found.shape, shape, strict=True) if long is not None
        ):
            expected = ", ".join("any" if long is None else str(long) for long in shape)
            raise self._member_error(name, f"has the shape {found.shape}, not ({expected})")
        self.left[0] -= found.size
        if self.left[0] < 0:
            raise self._member_error(name, f"brings the numbers of the file above {MAX_NUMBERS}")
        values = found[()]
        if values.size and not least <= int(values.min()) <= int(values.max()) <= most:
            raise self._member_error(name, f"holds numbers that are not between {least} and {most}")
        whole: Ints = values.astype(np.int64)
        return whole

    def _member(self, name: str) -> Any:
        """Return a member of this file; a link is refused, as it may lead to another file."""
        import h5py

        link = self.content.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise self._member_error(name, "is missing" if link is None else "is a link")
        return self.content[name]

    def _member_error(self, name: str, what: str) -> UsageError:
        place = f"{self.content.name}/{name}".replace("//", "/")
        return UsageError(f"{self.path}: {printable(place)[:200]} {what}")


@contextmanager
def open_hdf5(path: Path) -> Iterator[Hdf5Group]:
    """Open an HDF5 file for reading; UsageError where it is none, too large or damaged, also while it is read."""
    import h5py  # takes 100 ms: tables alone do not need it

    check_file(path, MAX_HDF5_BYTES)
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield Hdf5Group(path, file, [MAX_NUMBERS])
    except UsageError:
        raise
    # h5py and HDF5 may raise any of these for broken files.
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read as HDF5: {printable(str(error))[:300]}") from error
