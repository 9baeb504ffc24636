"""The verbs and loops of a workload, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Union

from dliosim.model.access import Access
from dliosim.model.distributions import Distribution
from dliosim.model.split import Split


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The order of samples and of files."""

    samples: Literal["off", "globally", "within shard", "within buffer"] = "off"  #: range in which samples are shuffled
    samples_once: bool = False  #: true: one order of samples for all epochs; false: a new one each epoch
    buffer: int = 0  #: samples of the buffer with `within buffer`, else 0
    files: Literal["off", "globally", "within shard"] = "off"  #: range in which files are shuffled
    files_once: bool = False  #: true: one order of files for all epochs; false: a new one each epoch


@dataclass(frozen=True, slots=True)
class Compute:
    """The accelerator time of a step, drawn for each (epoch, step, rank)."""

    time: Distribution  #: seconds
    busy: bool = False  #: true: the rank spins; false: it sleeps


@dataclass(frozen=True, slots=True)
class Sync:
    """The operation that ranks do together after compute."""

    kind: Literal["off", "barrier", "allreduce"] = "barrier"  #: operation
    size: int = 0  #: bytes of float32 that an allreduce moves
    every: int = 1  #: steps from one sync to the next


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Open-loop requests."""

    requests: int  #: number for each rank
    gap: Distribution  #: seconds between two requests


@dataclass(frozen=True, slots=True)
class Cadence:
    """The rule when a training loop saves a checkpoint."""

    checkpoint: str  #: name of the checkpoint
    #: what is counted between two saves; `end`: one save at the end of the loop
    unit: Literal["steps", "epochs", "seconds", "end"]
    every: int = 1  #: steps or epochs between two saves
    #: with unit `seconds`: saves at the first step boundary after this time since this line's last save, or since the
    #: loop began
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A loop inside a training loop."""

    every: int  #: epochs of the training loop from one run to the next
    loop: Loop  #: the loop that is run


@dataclass(frozen=True, slots=True)
class Loop:
    """One pass or several passes over a data set."""

    kind: Literal["train", "evaluate", "infer"]  #: verb
    name: str  #: name in the pattern
    dataset: str  #: name of the data set
    access: Access  #: how samples are read
    batch: int = 1  #: samples of one rank in one step
    shard: Literal["by sample", "by block", "by file", "off"] = "by sample"  #: how samples are assigned to ranks
    shuffle: Shuffle = Shuffle()  #: order of samples and files
    last_batch: Literal["drop", "pad", "keep"] = "drop"  #: what happens to the samples that do not fill a batch
    epochs: int = 1  #: number of passes
    steps: int | None = None  #: limit of the steps of each epoch; None: none
    seconds: float | None = None  #: the loop ends at the first step boundary after this time; None: no limit
    arrivals: Arrivals | None = None  #: requests of an `infer` loop; None without
    shift: int = 0  #: N of `shifted by N ranks`: rank r reads the samples of rank (r + N) mod ranks
    compute: Compute = Compute(Distribution("constant", (0.0,)))  #: accelerator time of a step
    decode: bool = False  #: true: the thread that reads a batch also decodes its samples
    #: time for each sample, after reading and decoding, on the same thread; None without
    preprocess: Compute | None = None
    sync: Sync = Sync()  #: end of a step
    checkpoints: tuple[Cadence, ...] = ()  #: checkpoints that the loop saves
    evaluations: tuple[Evaluation, ...] = ()  #: loops that run between epochs


@dataclass(frozen=True, slots=True)
class Prepare:
    """A `prepare` verb: writes a data set, unless there is a complete one with the same digest."""

    dataset: str  #: name of the data set
    access: Access  #: how it is written
    afresh: bool = False  #: true: writes also where a complete one exists
    fsync: bool = True  #: true: files are synced


@dataclass(frozen=True, slots=True)
class Save:
    """Write a checkpoint."""

    checkpoint: str  #: name of the checkpoint


@dataclass(frozen=True, slots=True)
class Restore:
    """Read the newest complete checkpoint of a split."""

    checkpoint: str  #: name of the checkpoint
    written_by: Split | None = None  #: split of the ranks that saved it; None: as the ranks of this job
    parallel: Split | None = None  #: split in which the ranks of this job will hold it; None: as the checkpoint says
    shift: int = 0  #: rank r reads what rank (r + `shift`) mod ranks would read
    everything: bool = False  #: true: each rank reads the whole state; false: what it will hold
    #: true: of ranks that need the same bytes the first one reads them, and broadcasts them to the others
    once: bool = False

    @property
    def option_text(self) -> str:
        """Options that differ from a plain restore of the checkpoint, in few words; empty without any."""
        phrases = [
            f"by {self.parallel.axes_text}" if self.parallel else "",
            f"from {self.written_by.axes_text}" if self.written_by else "",
            f"shifted by {self.shift}" if self.shift else "",
            "everything" * self.everything,
            "once" * self.once,
        ]
        return " ".join(filter(None, phrases))


@dataclass(frozen=True, slots=True)
class Pause:
    """Time that every rank waits."""

    time: Distribution  #: seconds; the same draw on all ranks


@dataclass(frozen=True, slots=True)
class Barrier:
    """Wait for all ranks."""


@dataclass(frozen=True, slots=True)
class DropCaches:
    """Ask the kernel of every node to drop the pages of every file of the workload."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Verbs that run several times."""

    count: int  #: number of times
    body: tuple[Verb, ...]  #: the verbs


Verb = Union[Loop, Prepare, Save, Restore, Pause, Barrier, DropCaches, Repeat]


def flatten_verbs(verbs: tuple[Verb, ...], times: int = 1) -> Iterator[tuple[Verb, int]]:
    """Yield each verb and how often it runs; a repeat becomes a factor of that number."""
    for verb in verbs:
        if isinstance(verb, Repeat):
            yield from flatten_verbs(verb.body, times * verb.count)
        else:
            yield verb, times
