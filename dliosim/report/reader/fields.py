"""Values of a JSON file, each checked when it is read; an error names file and key."""

from __future__ import annotations

import math
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dliosim.boundedjson import LARGEST, parse_json
from dliosim.errors import UsageError
from dliosim.readable import printable

#: The longest text that is accepted, characters, unless its reader sets another limit.
MAX_TEXT = 10_000

#: Larger numbers are no figures, and would break axes.
_GREATEST = 1e24


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of a JSON file.

    Every method raises UsageError where the value is missing or has another type. Other keys are ignored, as later
    versions may have more.
    """

    file: Path  #: path of the file
    where: str  #: key that led to the object; empty for the whole file
    values: Mapping[str, object]  #: values by key

    def text(self, key: str, longest: int = MAX_TEXT, lines: bool = False) -> str:
        """Return a text of at most `longest` characters without control characters; line ends stay with `lines`."""
        value = self._value(key)
        if not isinstance(value, str):
            raise self.field_error(key, "is not a text")
        if len(value) > longest:
            raise self.field_error(key, f"is longer than {longest} characters")
        return printable(value, lines)

    def text_or_none(self, key: str) -> str | None:
        """Return a text, or None for null."""
        return None if self._value(key) is None else self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(Fields(self.file, self._path(key), {str(i): one}).text(str(i)) for i, one in self._list(key))

    def text_pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return an object whose values are texts as pairs, in its order."""
        inside = self.child(key)
        return tuple((printable(name[:MAX_TEXT]), inside.text(name)) for name in inside.values)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return a list of lists of two texts."""
        value = self._value(key)
        if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            raise self.field_error(key, "is not a list of pairs")
        given = [Fields(self.file, f"{self._path(key)}[{i}]", {"0": a, "1": b}) for i, (a, b) in enumerate(value)]
        return tuple((one.text("0"), one.text("1")) for one in given)

    def flag(self, key: str) -> bool:
        """Return true or false."""
        value = self._value(key)
        if not isinstance(value, bool):
            raise self.field_error(key, "is neither true nor false")
        return value

    def whole(self, key: str, least: int = 0, most: int = 2**63 - 1) -> int:
        """Return a whole number from `least` to `most`."""
        value = self._value(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.field_error(key, "is not a whole number")
        if not 0 <= value < 2**63:
            raise self.field_error(key, "is not between 0 and 2^63 - 1")
        if not least <= value <= most:
            raise self.field_error(key, f"is not between {least} and {most}")
        return value

    def number(self, key: str, least: float = 0.0) -> float:
        """Return a finite number, `least` or more."""
        value = self._value(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.field_error(key, "is not a number")
        if not least <= value <= _GREATEST or not math.isfinite(value):
            raise self.field_error(key, f"is not between {least:g} and {_GREATEST:g}")
        return float(value)

    def number_or_none(self, key: str, least: float = 0.0) -> float | None:
        """Return a number, or None for null."""
        return None if self._value(key) is None else self.number(key, least)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers."""
        return tuple(Fields(self.file, self._path(key), {str(i): one}).number(str(i)) for i, one in self._list(key))

    def child(self, key: str) -> Fields:
        """Return an object inside this one."""
        return self._object(key, self._value(key))

    def child_or_none(self, key: str) -> Fields | None:
        """Return an object, or None for null."""
        return None if self._value(key) is None else self.child(key)

    def child_list(self, key: str) -> list[Fields]:
        """Return a list of objects."""
        return [self._object(f"{key}[{i}]", one) for i, one in self._list(key)]

    def is_null(self, key: str) -> bool:
        """Return True for null."""
        return self._value(key) is None

    def check_version(self, expected: int) -> None:
        """Check that the file has the version that this dliosim reads; else UsageError."""
        check_version(self.file, self.whole("schema_version"), expected)

    def field_error(self, key: str, what: str) -> UsageError:
        """Return the error about a key."""
        return UsageError(f"{self.file}: {printable(self._path(key))[:200]} {what}")

    def _value(self, key: str) -> object:
        if key not in self.values:
            raise self.field_error(key, "is missing: make the results again, if another dliosim wrote them")
        return self.values[key]

    def _list(self, key: str) -> list[tuple[int, object]]:
        value = self._value(key)
        if not isinstance(value, list):
            raise self.field_error(key, "is not a list")
        return list(enumerate(value))

    def _object(self, key: str, value: object) -> Fields:
        if not isinstance(value, dict):
            raise self.field_error(key, "is not an object")
        return Fields(self.file, self._path(key), value)

    def _path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key


def check_version(file: Path, version: int, expected: int) -> None:
    """Check that a file has the version that this dliosim reads; else UsageError with what to do."""
    if version != expected:
        raise UsageError(
            f"{file}: schema_version is {version}, and this dliosim reads {expected}: make the results again with this "
            "dliosim, or read them with the one whose `dliosim_version` they have"
        )


def read_json(path: Path) -> Fields:
    """Return the object that a JSON file holds; UsageError where it is too large, unreadable or something else."""
    check_file(path, LARGEST)
    try:
        value = parse_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} does not hold an object")
    return Fields(path, "", value)


def check_file(path: Path, limit: int) -> None:
    """Check that `path` is a regular file of at most `limit` bytes; else UsageError.

    A read of a pipe would block, and a read of a device may never end.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is not a file")
    if found.st_size > limit:
        raise UsageError(f"{path} has {found.st_size} bytes, and dliosim writes none above {limit}")
