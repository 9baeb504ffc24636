"""Dataclasses read from JSON objects, each field by its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, TypeVar

from dliosim.measure.figures.declaration import BoundShares, TimeSpread
from dliosim.measure.rank.histogram import Histogram, Quantiles
from dliosim.measure.results.run_summary import Advice, Spread
from dliosim.readable import printable
from dliosim.report.reader.fields import Fields

T = TypeVar("T")


class _SavedHistogram(Histogram):
    """A histogram as results.json has it: its quantiles alone."""

    __slots__ = ("_known",)

    def __init__(self, known: Quantiles | None) -> None:
        super().__init__()
        self._known = known

    def quantiles(self) -> Quantiles | None:
        return self._known


#: No figure is below this.
_LEAST = -1e24


def read_object(kind: type[T], found: Fields, **given: Any) -> T:
    """Return an object of a dataclass: fields that are not `given` are read by name; UsageError where one is wrong."""
    rest = {one.name: _read_value(str(one.type), found, one.name) for one in fields(kind) if one.name not in given}  # type: ignore[arg-type]
    return kind(**given, **rest)


def _read_value(kind: str, found: Fields, key: str) -> object:
    """Return the value of a key by its declared type."""
    plain = kind.removesuffix(" | None")
    return None if plain != kind and found.is_null(key) else _READERS[plain](found, key)


def _read_hash(found: Fields, key: str) -> int:
    text = found.text(key)
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        raise found.field_error(key, "is not 16 hexadecimal digits")
    return int(text, 16)


def read_quantiles(found: Fields, key: str) -> Quantiles | None:
    """Return quantiles in seconds; null stands for a quantile above the range of histograms, which becomes inf."""
    inside = found.child_or_none(key)
    if inside is None:
        return None
    known = (inside.number_or_none(one.name) for one in fields(Quantiles))
    return Quantiles(*(float("inf") if value is None else value for value in known))


def _read_times(found: Fields) -> Iterator[tuple[str, float]]:
    return ((printable(name), found.number(name, _LEAST)) for name in found.values)


_READERS: dict[str, Callable[[Fields, str], object]] = {
    "str": Fields.text,
    "int": Fields.whole,
    "bool": Fields.flag,
    "float": Fields.number,
    "Share": Fields.number,
    "Signed": lambda found, key: found.number(key, _LEAST),
    "Hash": _read_hash,
    "tuple[str, ...]": Fields.texts,
    "tuple[tuple[str, str], ...]": Fields.text_pairs,
    "tuple[int, ...]": lambda found, key: tuple(int(value) for value in found.numbers(key)),
    "tuple[Advice, ...]": lambda found, key: tuple(read_object(Advice, one) for one in found.child_list(key)),
    "Spread": lambda found, key: read_object(Spread, found.child(key)),
    "Histogram": lambda found, key: _SavedHistogram(read_quantiles(found, f"{key}_seconds")),
    "Part": lambda found, key: read_object(TimeSpread, found.child(key)),
    "TimeSpread": lambda found, key: read_object(TimeSpread, found.child(key)),
    "Times": lambda found, key: dict(_read_times(found.child(key))),
    "BoundShares": lambda found, key: read_object(BoundShares, found.child(key)),
}
