"""Figures: a field of a summary declares how it follows from the records of all ranks. Only rank 0 has them.

The type of a field says how its column is reduced: `int` is the sum over ranks, `TimeSpread` mean, least and greatest,
`Histogram` all latencies together; with `| None` it is None unless every rank knows its own. Other figures have a
formula. The type also says how results.json, its schema and its reader have the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.records import CAUSES, unpack_arrivals, unpack_waits
from dliosim.measure.reducer import RATE_UNIT, RATIO_UNIT, Ints

T = TypeVar("T")

#: A number from 0 to 1.
Share: TypeAlias = float

#: A number that may be below 0.
Signed: TypeAlias = Annotated[float, "may be below 0"]

#: A sum of hashes, modulo 2^64.
Hash: TypeAlias = Annotated[int, "16 hexadecimal digits in results.json"]


#: A text of several lines.
Lines: TypeAlias = Annotated[str, "lines"]


@dataclass(frozen=True, slots=True)
class TimeSpread:
    """A time of every rank, in seconds. Tool time is a remainder, and may be slightly below 0."""

    #: mean over ranks
    mean: Signed
    #: least of any rank
    min: Signed
    #: greatest of any rank
    max: Signed


#: Times of one rank by their names, in seconds.
Times: TypeAlias = Mapping[str, Signed]

#: A part of the wall time; the parts of an epoch do not overlap, and add up to it.
Part: TypeAlias = TimeSpread


@dataclass(frozen=True, slots=True)
class BoundShares:
    """Shares of the steps that ended in a sync, by cause.

    The cause is the activity on which the last rank to arrive had spent most of the step's time.
    """

    #: waiting for data
    storage: Share
    #: computing
    compute: Share
    #: work of the tool itself
    tool: Share
    #: waiting for requests
    arrivals: Share
    #: decoding and preprocessing in the step
    decode: Share


@dataclass(frozen=True, slots=True)
class Reduced:
    """The records of all ranks, column by column."""

    #: sum over the ranks that know the column
    total: Mapping[str, int]
    #: number of these ranks
    known: Mapping[str, int]
    #: greatest of these ranks
    most: Mapping[str, int]
    #: least of these ranks
    least: Mapping[str, int]
    #: latencies of all ranks
    histograms: Mapping[str, Histogram]
    #: of each step that ended in a sync, the word (`pack_arrivals`) of the rank that waited least
    arrivals: Ints
    #: of the steps up to each sync, the times of `EpochRecord.storage_ns` of the slowest rank, (syncs + 1, 2)
    storage_ns: Ints
    #: of a verb the times of the rank whose wall time is longest, in s
    slowest: Times = field(default_factory=dict)
    #: of a loop over several data sets, a summary of each
    sources: tuple[object, ...] = ()

    @property
    def ranks(self) -> int:
        """Return the number of ranks: every rank knows its wall time."""
        return self.known["wall_ns"]

    def total_if_known(self, column: str) -> int | None:
        """Return the sum over all ranks; None if one rank does not know its value."""
        return self.total[column] if self.known[column] == self.ranks else None

    def total_hash(self, column: str) -> int:
        """Return the sum of hashes modulo 2^64, which are reduced in two halves."""
        return (self.total[column] + (self.total[f"{column}_high"] << 32)) % 2**64

    def spread(self, column: str) -> TimeSpread:
        """Return a time over all ranks."""
        return TimeSpread(self.total[column] * 1e-9 / self.ranks, self.least[column] * 1e-9, self.most[column] * 1e-9)

    def mean_ratio(self, column: str) -> float | None:
        """Return the mean of a ratio over the ranks that know it; None if no rank does."""
        return self.total[column] * RATIO_UNIT / self.known[column] if self.known[column] else None

    def to_ratio(self, reduced: Mapping[str, int], column: str) -> float | None:
        """Return the least or the greatest ratio of the ranks that know it; None if no rank does."""
        return reduced[column] * RATIO_UNIT if self.known[column] else None

    def total_if_counted(self, column: str) -> int | None:
        """Return the sum over all ranks; None if a library wrote files without reporting its calls."""
        return None if self.total["uncounted_files"] else self.total[column]

    def steady_rate(self) -> float | None:
        """Return samples / greatest time of the steps after the first."""
        samples, time = self.total["steady_samples"], self.most["steady_ns"] * 1e-9
        return samples / time if samples and time > 0 else None

    def storage_utilization(self) -> float | None:
        """Return the time of the steps with storage that takes no time / their time with this storage.

        None like utilization, and if nothing is read.
        """
        least, whole = self.storage_ns.sum(axis=0).tolist()
        return least / whole if self.known["utilization"] and self.total["samples"] and whole else None

    def storage_utilization_error(self) -> float | None:
        """Return the standard error of `storage_utilization`, a ratio of sums over syncs; None with fewer than two."""
        share, rows = self.storage_utilization(), self.storage_ns[self.storage_ns[:, 1] > 0]
        if share is None or len(rows) < 2:
            return None
        apart = rows[:, 0] - share * rows[:, 1]
        return float(np.sqrt((apart**2).sum() * len(rows) / (len(rows) - 1)) / rows[:, 1].sum())

    def storage_step_seconds(self) -> float:
        """Return the time of the steps with this storage if nothing else held them."""
        return int(self.storage_ns[:, 1].sum()) * 1e-9

    def oversleep_share(self) -> float | None:
        """Return the compute time beyond the time asked / the time asked; None without compute."""
        asked = self.total["compute_ns"] - self.total["oversleep_ns"]
        return self.total["oversleep_ns"] / asked if asked > 0 else None

    def dlio_rate(self) -> float | None:
        """Return DLIO's samples/s of all ranks; None if one rank has none."""
        total = self.total_if_known("dlio_rate")
        return None if total is None else total * RATE_UNIT

    def cause_shares(self) -> BoundShares | None:
        """Return the causes of late steps; None without syncs."""
        if len(self.arrivals) == 0:
            return None
        shares = np.bincount(unpack_arrivals(self.arrivals)[1], minlength=len(CAUSES)) / len(self.arrivals)
        return BoundShares(**dict(zip(CAUSES, shares.tolist(), strict=True)))

    def slowest_rank(self) -> int | None:
        """Return the rank that was last in most of the synced steps."""
        return int(self._times_last().argmax()) if len(self.arrivals) else None

    def slowest_rank_share(self) -> float | None:
        """Return the share of the synced steps in which that rank was last."""
        return float(self._times_last().max() / len(self.arrivals)) if len(self.arrivals) else None

    def _times_last(self) -> Ints:
        return np.bincount(unpack_arrivals(self.arrivals)[0])

    def least_sync_wait(self) -> float | None:
        """Return the sum over all syncs of the wait of the rank that waited least; seconds."""
        return float(unpack_waits(self.arrivals).sum()) * 1e-9 if len(self.arrivals) else None


def figure(
    heading: str = "",
    table: str = "",
    *,
    of: Callable[[Reduced], object] | None = None,
    optional: bool = False,
    usual: float = 0.0,
    saved: bool = True,
) -> Any:
    """Declare a figure that needs more than its type.

    Args:
        heading: heading of its column on a terminal
        table: the table there that has it
        of: the formula; None if the column of that name is reduced by the type
        optional: True to leave the column out if every row has the `usual` figure or None
        usual: uninformative figure
        saved: False if results.json does not have the figure
    """
    shown = {"heading": heading, "table": table, "optional": optional, "usual": usual}
    return field(metadata={"shown": shown, "saved": saved, "formula": of})


def quotient(above: str, below: str, unit: float = 1.0) -> Callable[[Reduced], float | None]:
    """Return the formula of a sum over all ranks by another.

    None if that is 0, or if a rank does not know the first.
    """

    def divide(ranks: Reduced) -> float | None:
        total = ranks.total_if_known(above)
        return total * unit / ranks.total[below] if total is not None and ranks.total[below] else None

    return divide


class Derived(Generic[T]):
    """A figure derived from others of its summary: a property that results.json has.

    `shown` says how tables on a terminal have it: arguments of `figure`.
    """

    def __init__(self, get: Callable[[Any], T], **shown: Any) -> None:
        self.get, self.shown, self.__doc__ = get, shown, get.__doc__

    def __get__(self, summary: Any, owner: type | None = None) -> T:
        return self.get(summary)


_REDUCTIONS: dict[str, Callable[[Reduced, str], object]] = {
    "int": lambda reduced, column: reduced.total[column],
    "int | None": Reduced.total_if_known,
    "TimeSpread": Reduced.spread,
    "Part": Reduced.spread,
    "TimeSpread | None": lambda ranks, column: None if ranks.total_if_known(column) is None else ranks.spread(column),
    "Histogram": lambda reduced, column: reduced.histograms[column],
    "Hash": Reduced.total_hash,
}


def column_of(figure: str) -> str:
    """Return the column that a figure reduces if it has no formula: seconds are nanoseconds there."""
    return f"{figure.removesuffix('_seconds')}_ns" if figure.endswith("_seconds") else figure


def make_summary(summary: type[T], reduced: Reduced) -> T:
    """Return the summary of a record."""
    values = {}
    for one in fields(summary):  # type: ignore[arg-type]
        formula = one.metadata.get("formula")
        values[one.name] = formula(reduced) if formula else _REDUCTIONS[str(one.type)](reduced, column_of(one.name))
    return summary(**values)


class ResultFigure(NamedTuple):
    """A figure as results.json and tables have it."""

    #: key in results.json
    key: str
    #: attribute of the summary
    name: str
    #: type, as it is declared
    kind: str
    #: heading of its column on a terminal
    heading: str = ""
    #: the table there that has it; empty if there is none
    table: str = ""
    #: True to leave the column out if every row has the `usual` figure or None
    optional: bool = False
    #: figure that says nothing
    usual: float = 0.0

    @property
    def words(self) -> str:
        """Return the heading in one line."""
        return self.heading.replace("-\n", "").replace("\n", " ")


def result_figures(summary: type, table: str | None = None) -> list[ResultFigure]:
    """Return the figures of a summary for results.json, or for a table on a terminal."""
    saved = [one for one in fields(summary) if one.metadata.get("saved", True)]
    found = [(one.name, str(one.type), one.metadata.get("shown", {})) for one in saved]
    derived = [(name, one) for name, one in vars(summary).items() if isinstance(one, Derived)]
    found += [(name, one.get.__annotations__["return"], one.shown) for name, one in derived]
    keys = [f"{name}_seconds" if kind == "Histogram" else name for name, kind, _ in found]
    figures = [ResultFigure(key, name, kind, **how) for key, (name, kind, how) in zip(keys, found, strict=True)]
    return [one for one in figures if table in (None, one.table)]


def time_parts(summary: type) -> list[str]:
    """Return the times that do not overlap and together are the wall time of a rank."""
    return [one.name for one in fields(summary) if one.type == "Part"]


def name_part(part: str) -> str:
    """Return the name of one of these times: `data wait` for `data_wait_seconds`."""
    return part.removesuffix("_seconds").replace("_", " ")


def latency_kinds(summary: type) -> list[str]:
    """Return the kinds of latencies: `batch` if there is a figure `batch_latency`."""
    return [one.name.removesuffix("_latency") for one in fields(summary) if one.type == "Histogram"]
