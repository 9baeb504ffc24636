"""JSON files from any source, read as dataclasses: one check, by the declared types of the fields."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dliosim.boundedjson import LARGEST, parse_json
from dliosim.errors import UsageError
from dliosim.measure.figures.declaration import Hash, Lines, Signed
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.rank.histogram import Histogram, Quantiles
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import FILE_PHASES, Reason
from dliosim.readable import printable
from dliosim.report.answer_sentences import list_values

T = TypeVar("T")

#: The longest text that is accepted, characters.
MAX_TEXT = 10_000

# Larger numbers are no figures, and would break axes.
_GREATEST = 1e24

_PHASES: dict[str, Any] = {**FILE_PHASES, **dict.fromkeys(("train", "evaluate", "infer"), LoopPhase)}


class _SavedHistogram(Histogram):
    """A histogram as results.json has it: its quantiles alone."""

    __slots__ = ("_known",)

    def __init__(self, known: Quantiles | None) -> None:
        super().__init__()
        self._known = known

    def quantiles(self) -> Quantiles | None:
        return self._known


def read_json(path: Path) -> dict[str, object]:
    """Return the object that a JSON file holds; UsageError if it is too large, unreadable or something else."""
    check_file(path, LARGEST)
    try:
        value = parse_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} does not hold an object")
    return value


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


@contextmanager
def open_json(path: Path, version: int) -> Iterator[dict[str, Any]]:
    """Yield the content of a file of that version; mistakes that the block finds are raised with its path."""
    content = read_json(path)
    try:
        check_version(read_member(int, content, "schema_version"), version)
        yield content
    except UsageError as error:
        raise UsageError(f"{path}: {printable(error.message)[:400]}") from error


def check_version(version: object, expected: int) -> None:
    """Check that a file has the version that this dliosim reads; else UsageError with what to do."""
    if version != expected:
        raise UsageError(
            f"schema_version is {version}, and this dliosim reads {expected}: make the results again with this "
            "dliosim, or read them with the one whose `dliosim_version` they have"
        )


def read_object(kind: type[T], value: object, where: str = "", **given: Any) -> T:
    """Return a dataclass from the JSON object at `where`, its fields by name, or by the `key` of their metadata.

    Fields that are `given` are not read, neither here nor in objects inside. UsageError names the key of a value that
    is missing, unless its field `may_lack` in files of this version, or has another type. Other keys are ignored.
    """
    if kind is PhaseSummary:
        word = read_member(str, value, "kind", where)
        kind = _PHASES.get(word, PhaseSummary)
        # Figures of a phase that is not known would be left out in silence.
        if kind is PhaseSummary and isinstance(value, dict) and (value.get("epochs") or value.get("files")):
            raise UsageError(f"{where}.kind is not known: {word}")
    if issubclass(kind, Reason):
        given = {**given, "values": _read_values(value, where)}
    values = {
        name: given[name] if name in given else read_member(hint, value, key, where, **given)
        for name, key, hint, may_lack in _list_fields(kind)  # type: ignore[arg-type]
        if not (may_lack and isinstance(value, dict) and key not in value)
    }
    return kind(**values)


def _read_values(value: object, where: str) -> dict[str, Any]:
    """Return the values of a reason, by the types that the sentence of its kind declares."""
    kind, values = read_member(str, value, "kind", where), read_member(dict, value, "values", where)
    try:
        return {
            name: read_member(hint, values, name, f"{where}.values")
            for name, hint, is_required in list_values(kind)
            if is_required or values.get(name) is not None
        }
    except KeyError:
        raise UsageError(f"{where}.kind is not known: {kind}") from None


@cache
def _list_fields(kind: Any) -> list[tuple[str, str, Any, bool]]:
    """Return name, key and type of each field of a dataclass, and whether its default stands for a missing key."""
    hints = get_type_hints(kind, localns={"EpochSummary": EpochSummary}, include_extras=True)
    named = [(one.name, one.metadata.get("key", one.name), "may_lack" in one.metadata) for one in fields(kind)]
    return [
        (name, f"{key}_seconds" if hints[name] is Histogram else key, hints[name], may_lack)
        for name, key, may_lack in named
    ]


def read_member(kind: Any, value: object, key: str, where: str = "", **given: Any) -> Any:
    """Return the value of a key of the JSON object at `where`, as the type `kind`; UsageError if it is another."""
    values = _read_scalar(dict, value, where)
    place = f"{where}.{key}" if where else key
    if key not in values:
        raise UsageError(f"{place} is missing: make the results again, if another dliosim wrote them")
    return read_value(kind, values[key], place, **given)


def read_value(kind: Any, value: object, where: str, **given: Any) -> Any:
    """Return the JSON value at `where` as the type `kind`; UsageError if it is another.

    A tuple of pairs may also be an object. Null stands for a quantile beyond the range of histograms, which is inf.
    """
    if kind in _SCALARS:
        return _read_scalar(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else read_value(inner[0], value, where, **given)
    if origin is Mapping:
        names = _read_scalar(dict, value, where)
        return {printable(name[:MAX_TEXT]): read_member(inner[1], value, name, where) for name in names}
    if origin is tuple and isinstance(value, dict) and get_origin(inner[0]) is tuple:
        return tuple(read_value(Mapping[str, str], value, where).items())
    if origin is tuple:
        parts = _read_scalar(list, value, where)
        kinds = [inner[0]] * len(parts) if inner[-1] is Ellipsis else inner
        if len(parts) != len(kinds):
            raise UsageError(f"{where} does not have {len(kinds)} values")
        return tuple(read_value(kinds[i], one, f"{where}[{i}]", **given) for i, one in enumerate(parts))
    if kind is Histogram:
        return _SavedHistogram(read_value(Quantiles | None, value, where))
    if kind is Quantiles:
        known = [read_member(float | None, value, one.name, where) for one in fields(Quantiles)]
        return Quantiles(*(math.inf if one is None else one for one in known))
    if kind is Hash:
        return _read_hash(value, where)
    return read_object(kind, value, where, **given)


def _read_scalar(kind: Any, value: Any, where: str) -> Any:
    types, noun, least, most = _SCALARS[kind]
    if not isinstance(value, types) or isinstance(value, bool) != (kind is bool):
        raise UsageError(f"{where} is not {noun}")
    if isinstance(value, str) and len(value) > most:
        raise UsageError(f"{where} is longer than {most} characters")
    if isinstance(value, (int, float)) and not least <= value <= most:
        raise UsageError(f"{where} is not between {least:g} and {most:g}")
    if isinstance(value, str):
        return printable(value, lines=kind is Lines)
    return float(value) if types is _NUMBER else value


def _read_hash(value: object, where: str) -> int:
    text = _read_scalar(str, value, where)
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        raise UsageError(f"{where} is not 16 hexadecimal digits")
    return int(text, 16)


_NUMBER = (int, float)

#: Types of values as JSON has them, words for them, and their limits; of texts the longest, characters.
_SCALARS: dict[Any, tuple[Any, str, float, float]] = {
    dict: (dict, "an object", 0, 0),
    list: (list, "a list", 0, 0),
    bool: (bool, "true or false", 0, 1),
    int: (int, "a whole number", 0, 2**63 - 1),
    float: (_NUMBER, "a number", 0, _GREATEST),
    Signed: (_NUMBER, "a number", -_GREATEST, _GREATEST),
    str: (str, "a text", 0, MAX_TEXT),
    Lines: (str, "a text", 0, 4 << 20),
}
