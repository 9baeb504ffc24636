"""What a workload does, in order: verbs and loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Union

from dliosim.model.access import Access
from dliosim.model.distributions import Distribution
from dliosim.model.split import Split


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The order of samples and of files: each epoch anew, or `once` for all epochs."""

    samples: Literal["off", "globally", "within shard", "within buffer"] = "off"
    samples_once: bool = False
    buffer: int = 0
    files: Literal["off", "globally", "within shard"] = "off"
    files_once: bool = False


@dataclass(frozen=True, slots=True)
class Compute:
    """Seconds of accelerator time, drawn for each (epoch, step, rank); slept, or spun where `busy`."""

    time: Distribution
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """What ranks do after compute, every `every` steps; `size` is the bytes of float32 that an allreduce moves."""

    kind: Literal["off", "barrier", "allreduce"] = "barrier"
    size: int = 0
    every: int = 1


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Open-loop requests: how many for each rank, and the seconds between two of them."""

    requests: int
    gap: Distribution


@dataclass(frozen=True, slots=True)
class Cadence:
    """When a training loop saves a checkpoint: every `every` steps or epochs, every `seconds`, or at its end.

    With `seconds` at the first step boundary after so much time since the last save of this line, or the loop's start.
    """

    checkpoint: str
    unit: Literal["steps", "epochs", "seconds", "end"]
    every: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A loop inside a training loop, run after every `every` epochs."""

    every: int
    loop: Loop


@dataclass(frozen=True, slots=True)
class Loop:
    """A pass or passes over a data set; `batch` is samples of one rank and step.

    `steps` caps the steps of each epoch; `seconds` ends the loop at the first step boundary after it. `shift` is the
    N of `shifted by N ranks`: rank r reads what rank (r + N) mod ranks would have read. Whoever reads a batch decodes
    its samples (`decode`), then sleeps or spins for each (`preprocess`).
    """

    kind: Literal["train", "evaluate", "infer"]
    name: str
    dataset: str
    access: Access
    batch: int = 1
    shard: Literal["by sample", "by block", "by file", "off"] = "by sample"
    shuffle: Shuffle = Shuffle()
    last_batch: Literal["drop", "pad", "keep"] = "drop"
    epochs: int = 1
    steps: int | None = None
    seconds: float | None = None
    arrivals: Arrivals | None = None
    shift: int = 0
    compute: Compute = Compute(Distribution("constant", (0.0,)))
    decode: bool = False
    preprocess: Compute | None = None
    sync: Sync = Sync()
    checkpoints: tuple[Cadence, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepare:
    """Write a data set, or keep a complete one of the same digest unless `afresh`."""

    dataset: str
    access: Access
    afresh: bool = False
    fsync: bool = True


@dataclass(frozen=True, slots=True)
class Save:
    """Write a checkpoint."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Read the newest complete checkpoint that ranks split as `written_by` wrote (None: as this job's are).

    `parallel` is how this job's ranks shall hold it (None: as the checkpoint says). Rank r reads what rank
    (r + `shift`) mod ranks would. Each rank reads what it will hold, or `everything`; with `once` what several ranks
    need is read by the first of them, who broadcasts it to the others.
    """

    checkpoint: str
    written_by: Split | None = None
    parallel: Split | None = None
    shift: int = 0
    everything: bool = False
    once: bool = False

    @property
    def option_text(self) -> str:
        """What tells it from a plain one of the same checkpoint, in few words; empty for that."""
        told = [
            f"by {self.parallel.axes_text}" if self.parallel else "",
            f"from {self.written_by.axes_text}" if self.written_by else "",
            f"shifted by {self.shift}" if self.shift else "",
            "everything" * self.everything,
            "once" * self.once,
        ]
        return " ".join(filter(None, told))


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds that every rank waits; the same draw on all."""

    time: Distribution


@dataclass(frozen=True, slots=True)
class Barrier:
    """Wait for all ranks."""


@dataclass(frozen=True, slots=True)
class DropCaches:
    """Ask the kernel of every node to forget the pages of every file of the workload."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Verbs run `count` times."""

    count: int
    body: tuple[Verb, ...]


Verb = Union[Loop, Prepare, Save, Restore, Pause, Barrier, DropCaches, Repeat]


def flatten_verbs(verbs: tuple[Verb, ...], times: int = 1) -> Iterator[tuple[Verb, int]]:
    """Verbs and how often each is done, repeats unrolled into a count."""
    for verb in verbs:
        if isinstance(verb, Repeat):
            yield from flatten_verbs(verb.body, times * verb.count)
        else:
            yield verb, times
