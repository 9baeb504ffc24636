"""A whole run as a value: conditions, phases, answers, and results of its `expect` lines.

Only rank 0 has it, and only it imports this, with the phases of verbs that touch files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeAlias

from dliosim.measure.figures.declaration import Lines
from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary
from dliosim.measure.results.machine import Environment
from dliosim.measure.results.phase import LoopPhase, PartialProgress, PhaseSummary

#: Times of a rank in a verb that do not overlap.
_PARTS: Final = (
    *("wait", "stage", "content", "encode", "serialize", "send", "broadcast", "open", "view", "call", "file_sync"),
    *("plan", "partner", "commit", "rename", "source", "decode", "preprocess"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePhase(PhaseSummary):
    """A verb that touches files: `prepare`, `convert`, `stage`, `drop caches`, and those below."""

    #: its figures
    verb: VerbSummary = field(metadata={"key": "files"})

    #: times that are not in the clock of such a verb, or are in the time of another part
    _apart: ClassVar[tuple[str, ...]] = ()

    @property
    def parts(self) -> dict[str, float]:
        """Return the parts of the time of the rank that took longest, in s, by the names of figures.

        They add up to its `seconds`: `rest_seconds` is the remainder, such as waiting for other ranks. If several calls
        are in flight, the time in calls is limited to what the other parts leave.
        """
        known, whole = self.verb.slowest_rank_seconds, self.verb.seconds
        found = {f"{name}_seconds": known.get(f"{name}_seconds", 0.0) for name in _PARTS if name not in self._apart}
        others = sum(found.values()) - found["call_seconds"]
        found["call_seconds"] = max(0.0, min(found["call_seconds"], whole - others))
        return found | {"rest_seconds": max(0.0, whole - others - found["call_seconds"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePhase(FilePhase):
    """A save."""

    #: name of the loop that made it; None for the verb
    within: str | None = None
    #: setting `fsync`
    fsync: bool = True
    #: setting `commit`
    commit: str = "rename"
    #: why it holds less than the whole checkpoint (`scale`, `subset`)
    part_of: str = ""
    #: bytes of all of it / bytes of the part
    whole_times: float = 1.0
    #: ranks that save all of it; 0 if it holds all
    whole_ranks: int = 0

    _apart = ("content", "rename")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePhase(FilePhase):
    """A restore."""

    #: its options, which differ between restores of one checkpoint
    how: str = ""

    _apart = ("content",)


#: The phase of each verb.
FILE_PHASES: dict[str, type[FilePhase]] = dict.fromkeys(("prepare", "convert", "stage", "drop caches"), FilePhase)
FILE_PHASES |= {"save": SavePhase, "restore": RestorePhase}


#: A number or a name in the sentence of a reason or of advice.
Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason as a value; `report.answer_sentences` has the sentence of each kind."""

    #: name of the sentence
    kind: str
    #: what the sentence takes, by name
    values: Mapping[str, Value] = field(default_factory=dict)

    def extend(self, **values: Value) -> Reason:
        """Return the reason with more values."""
        return replace(self, values={**self.values, **values})


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """An `expect` line and its result."""

    #: the `expect` line
    text: str
    #: the figure over `epochs`, in `unit`; None if there was nothing to measure
    measured: float | None
    #: `ratio`, `B/s`, `samples/s` or `s`; or the plural of what is counted
    unit: str
    #: True if the figure is within the bound
    held: bool
    #: epochs that count, from 1 over all runs of the loop: those of `Answer.epochs`, or all if there are none
    epochs: tuple[int, ...]
    #: why a figure says nothing about storage, or may be missed by chance, and so fails no run; else None
    reported_only: Reason | None = None

    @property
    def is_missed(self) -> bool:
        """Return True if the run fails because of this line."""
        return not self.held and self.reported_only is None


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the epochs that count, with the 95 % interval of its mean."""

    #: mean
    mean: float
    #: lower end of the interval; the mean if nothing tells how far one epoch may be off
    low: float
    #: upper end of the interval
    high: float


@dataclass(frozen=True, slots=True)
class Advice(Reason):
    """Advice on the next step, as a value."""

    #: command line that does it; empty if only the user can know it
    command: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer about the storage of one loop. `got` / `needs` is `storage_utilization` / `goal`."""

    #: name of the loop
    loop: str
    #: `feeds`, `does not feed`, `too close to say` (the goal is within the interval), `cannot say` (waits for a core
    #: may be what is missing, or too little was measured), `not asked` (no compute, or requests come by themselves),
    #: `not a storage result`
    verdict: str
    #: why it is so, and what makes it doubtful
    reasons: tuple[Reason, ...]
    #: where the bytes came from: `device`, `memory`, `mixed`, `null` (nothing was read), `unknown` (not counted),
    #: `modelled` (no file was read: reads waited as on a described storage)
    source: str
    #: True if the bytes of the epochs that count are known to have come from storage
    from_storage: bool
    #: epochs that count, from 1 over all runs of the loop
    epochs: tuple[int, ...]
    #: storage-limited utilization that is asked for
    goal: float
    #: utilization of the loop in these epochs; None without compute
    utilization: Spread | None
    #: storage-limited utilization in these epochs; None without compute
    storage_utilization: Spread | None
    #: bytes/s for the goal; None without compute
    needs_bytes_per_second: Spread | None
    #: bytes/s that this storage gives the loop, if nothing else holds its steps; None if it was not asked for any
    got_bytes_per_second: Spread | None
    #: what to do next
    advice: tuple[Advice, ...]

    @property
    def has_goal_within_interval(self) -> bool:
        """Return True if the interval of the storage-limited utilization contains the goal."""
        alone = self.storage_utilization
        return alone is not None and alone.low < self.goal <= alone.high


def select_epochs(epochs: Sequence[EpochSummary], answer: Answer | None) -> list[EpochSummary]:
    """Return the epochs of a loop that count for its answer; all if there is no answer, and if none counts."""
    numbers = answer.epochs if answer else ()
    return [epochs[number - 1] for number in numbers] or list(epochs)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A whole run, at rank 0."""

    #: name of the workload
    name: str
    #: title of the workload
    title: str
    #: text of the main pattern file
    pattern: Lines
    #: pairs of `-D name=value`
    overrides: tuple[tuple[str, str], ...]
    #: hash of the resolved workload
    digest: str
    #: number of ranks
    ranks: int
    #: number of nodes
    nodes: int
    #: machine and libraries, as in results.json
    environment: Environment
    #: time of the start
    started: str
    #: wall time of the run, in s
    seconds: float
    #: verbs and loops, in order
    phases: tuple[PhaseSummary, ...]
    #: results of the `expect` lines
    expectations: tuple[ExpectationResult, ...] = ()
    #: what the run says about the storage of each loop, in the order of `group_phases`
    answers: tuple[Answer, ...] = field(default=(), metadata={"key": "answer"})
    #: the program as it was typed: a path, if it is not that of PATH
    program: str = "dliosim"
    #: command line after the program
    arguments: tuple[str, ...] = ()
    #: True for a run without I/O
    null: bool = False
    #: name of the described storage on which reads were modelled; empty if files were read
    modelled: str = ""
    #: True if every byte read was checked
    verify: bool = False
    #: mean time between failures as the user gave it, in s
    mtbf: float | None = field(default=None, metadata={"key": "mtbf_seconds"})
    #: time to restart as the user gave it, in s
    restart_time: float | None = field(default=None, metadata={"key": "restart_seconds"})
    #: progress so far; None for a complete run
    partial: PartialProgress | None = None

    def is_stored_on(self, phase: PhaseSummary, kinds: frozenset[str]) -> bool:
        """Return True if the root that a phase reads or writes is on a file system of these kinds."""
        return self.environment.is_stored_on(phase.root, kinds)

    @property
    def loops(self) -> list[LoopPhase]:
        """Return the runs of loops that have an epoch."""
        return [phase for phase in self.phases if isinstance(phase, LoopPhase) and phase.epochs]

    @property
    def epochs(self) -> list[EpochSummary]:
        """Return the epochs of all loops."""
        return [epoch for phase in self.loops for epoch in phase.epochs]

    @property
    def files(self) -> list[FilePhase]:
        """Return the verbs that touch files, saves of loops too."""
        return [phase for phase in self.phases if isinstance(phase, FilePhase)]

    @property
    def saves(self) -> list[SavePhase]:
        """Return the saves, those of loops too."""
        return [phase for phase in self.phases if isinstance(phase, SavePhase)]

    @property
    def restores(self) -> list[RestorePhase]:
        """Return the restores."""
        return [phase for phase in self.phases if isinstance(phase, RestorePhase)]

    @property
    def order_hash(self) -> int:
        """Return the hash of all samples in their order: the sum over epochs, modulo 2^64."""
        return sum(epoch.order_hash for epoch in self.epochs) % 2**64

    @property
    def extent_hash(self) -> int:
        """Return the hash of all bytes read: the sum over epochs, modulo 2^64."""
        return sum(epoch.extent_hash for epoch in self.epochs) % 2**64

    @property
    def bytes_verified(self) -> int:
        """Return the bytes that were compared with what was prepared or saved; 0 without `verify`.

        These are the `verifiable_bytes` with known contents: contents of samples, without the bytes that a format puts
        around them, and without files that existed before.
        """
        if not self.verify:
            return 0
        # Unknown bytes may be counted in whole units, which hold more than the samples: never below 0.
        loops = (max(0, one.bytes_from_storage - one.unchecked_bytes) for one in self.epochs)
        return sum(loops) + self._bytes_restored

    @property
    def verifiable_bytes(self) -> int:
        """Return the bytes that loops and restores read.

        Samples that `cache memory` keeps were checked when they were read. Bytes that O_DIRECT reads around samples are
        not checked.
        """
        return sum(one.bytes_from_storage for one in self.epochs) + self._bytes_restored

    @property
    def _bytes_restored(self) -> int:
        return sum(phase.verb.bytes for phase in self.restores)
