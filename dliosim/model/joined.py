"""Several data sets that one loop reads: sample i of each, or a mixture by weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

from dliosim.hashes import sha256
from dliosim.model.dataset import Dataset, Layout
from dliosim.model.distributions import Distribution

#: Weights of a mixture add up to this: they are multiples of 0.1 %.
WHOLE: Final = 1000


@dataclass(frozen=True, slots=True)
class Sources:
    """The data sets that a loop reads, if they are several. As text it is the phrase of `read`."""

    names: tuple[str, ...]  #: names of the data sets
    weights: tuple[int, ...] = ()  #: share of each in a mixture, in 1 / `WHOLE`; empty: a step reads sample i of each
    repeated: bool = False  #: true: a mixture lasts until all have ended, and those that end earlier begin again

    def __str__(self) -> str:
        if not self.weights:
            return ", ".join(self.names)
        shares = (f"{name} {weight / 10:g} %" for name, weight in zip(self.names, self.weights, strict=True))
        return f"{', '.join(shares)}, until {'all end' if self.repeated else 'first ends'}"

    @property
    def quotas(self) -> tuple[int, ...]:
        """Samples of each data set in the fewest samples that hold exact shares; 1 of each without weights."""
        common = gcd(*self.weights)
        return tuple(weight // common for weight in self.weights) or (1,) * len(self.names)


@dataclass(frozen=True, slots=True)
class JoinedDataset(Dataset):
    """Several data sets as one loop reads them: their files, and their samples, one data set after the other.

    `samples` are those of an epoch: a sample has one of each data set, or of one of them in a mixture. `size` is their
    mean, and never constant: closed forms are for the samples of one data set.
    """

    sources: Sources = Sources(())  #: how they are read
    joined: tuple[Dataset, ...] = ()  #: the data sets

    @property
    def members(self) -> tuple[Dataset, ...]:
        """The data sets."""
        return self.joined

    @property
    def rows(self) -> int:
        """Samples of data sets that make a sample of the loop."""
        return 1 if self.sources.weights else len(self.joined)

    @property
    def largest_size(self) -> float:
        """Bytes of the largest sample that can be drawn."""
        sizes = [one.largest_size for one in self.joined]
        return max(sizes) if self.sources.weights else sum(sizes)

    def digest(self) -> str:
        """Return 16 hexadecimal digits of everything that determines the files' bytes."""
        return sha256(" ".join([self.name, *(one.digest() for one in self.joined)]).encode()).hexdigest()[:16]


def find_dataset(name: str | Sources, known: Mapping[str, Dataset]) -> Dataset:
    """Return the data set of a name, or several as one; KeyError if there is none."""
    if isinstance(name, Sources):
        return join_datasets(name, [known[one] for one in name.names])
    return known[name]


def join_datasets(sources: Sources, datasets: Sequence[Dataset]) -> JoinedDataset:
    """Return several data sets as one; a mixture has no samples if one of them has fewer than its quota."""
    quotas, sizes = sources.quotas, [one.size.nonnegative_mean() for one in datasets]
    if not sources.weights:
        samples, mean = datasets[0].samples, sum(sizes)
    else:
        pairs = [(one.samples, quota) for one, quota in zip(datasets, quotas, strict=True)]
        ends = [-(-held // quota) if sources.repeated else held // quota for held, quota in pairs]
        samples = sum(quotas) * (max(ends) if sources.repeated else min(ends))
        mean = sum(size * weight for size, weight in zip(sizes, sources.weights, strict=True)) / WHOLE
    files = sum(one.layout.files for one in datasets)
    return JoinedDataset(
        str(sources),
        datasets[0].seed,
        samples,
        Distribution("uniform", (mean, mean)),
        Layout("files", files),
        "",
        datasets[0].root,
        "several",
        sources=sources,
        joined=tuple(datasets),
    )
