"""The verbs and loops of a workload, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Union

from dliosim.model.access import Access
from dliosim.model.dataset import Dataset
from dliosim.model.distributions import Distribution
from dliosim.model.joined import Sources
from dliosim.model.phrase import Phrase, Switch
from dliosim.model.transformer import Split


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
    """The accelerator time of a step, drawn for each (epoch, step, rank), or the sum over its samples."""

    time: Distribution  #: seconds
    per_sample: bool = False  #: true: of each sample, drawn for each (epoch, sample); false: of a step
    busy: bool = False  #: true: the rank spins; false: it sleeps


@dataclass(frozen=True, slots=True)
class Preprocess:
    """The time that a thread works on each sample, drawn for each (epoch, sample)."""

    time: Distribution  #: seconds
    busy: bool = False  #: true: the thread spins; false: it sleeps


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
    """The rule by which a training loop saves a checkpoint."""

    checkpoint: str  #: name of the checkpoint
    #: what is counted between two saves; `end`: one save at the end of the loop
    unit: Literal["steps", "epochs", "seconds", "end"]
    every: int = 1  #: steps or epochs between two saves
    first: int = 0  #: the first step or epoch that is followed by a save, from 1; 0: `every`
    #: with unit `seconds`: saves at the first step boundary after this time since this line's last save, or since the
    #: loop began
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A loop inside a training loop."""

    every: int  #: epochs of the training loop from one run to the next
    loop: Loop  #: the loop that is run
    first: int = 0  #: the first epoch that is followed by a run, from 1; 0: `every`


def is_due(one: Cadence | Evaluation, number: int) -> bool:
    """Return whether a save or an evaluation follows an epoch, or a step, of this number, from 1."""
    first = one.first or one.every
    return number >= first and (number - first) % one.every == 0


def count_due(one: Cadence | Evaluation, last: int) -> int:
    """Return how many saves or evaluations there are up to an epoch, or a step, of this number."""
    return max((last - (one.first or one.every)) // one.every + 1, 0)


def count_due_saves(loop: Loop, cadence: Cadence, steps: int) -> int | None:
    """Return the saves in one run of a loop whose epochs have `steps` steps; None if a clock decides them."""
    if cadence.unit == "end":
        return 1
    if cadence.unit == "seconds":
        return None
    # The count of steps begins again in each pass.
    return loop.epochs * count_due(cadence, steps) if cadence.unit == "steps" else count_due(cadence, loop.epochs)


#: Seconds in which a node drops the pages of a data set if the pattern says no time.
DROP_LIMIT: Final = 60.0

SHIFT: Final = "COUNT>=0 rank(s)"


@dataclass(frozen=True, slots=True)
class Loop:
    """One pass or several passes over a data set, or steps that read nothing."""

    kind: Literal["train", "evaluate", "infer"]  #: verb
    name: str  #: name in the pattern
    #: data set and access method: `D`, `D with ACCESS`. [Several](language.md#several-data-sets): `images, labels`
    #: reads sample i of each, `code 70 %, text 30 %` a mixture, to which `, until all end` may be added. May be absent
    #: from a loop with `steps` and `compute` or `checkpoint`. Default: nothing is read; `, until first ends`
    dataset: Annotated[str | Sources, Phrase(keyword="read", rule="read")]
    access: Access  #: how samples are read
    #: reads only the first N columns of a table (parquet; for existing files name `datasets`). Default: all
    columns: Annotated[int | None, Phrase("COUNT")] = None
    #: samples per rank and step; a total must be a multiple of the ranks
    batch: Annotated[int, Phrase("COUNT per rank | COUNT total")] = 1
    #: assignment of samples to ranks. `by sample`: number (step * ranks + rank) * batch + slot of the order. `by
    #: block`: a contiguous part each. `by file`: files at places p of their order with p % ranks == rank. `off`: every
    #: rank reads all
    shard: Annotated[Literal["by sample", "by block", "by file", "off"], Phrase()] = "by sample"
    #: order of samples and of files; both lines may be given. `samples globally each epoch`, `... once`: permutes all
    #: samples before sharding (with `shard by file`, what the rank's files hold). `samples within shard`: permutes the
    #: rank's shard. `samples within buffer of 1000 samples`: a streaming buffer, as in tf.data. `files globally`:
    #: permutes all files before sharding; `files within shard`: the rank's files. Samples keep their order within a
    #: file. Default: `off`; `each epoch`; files `globally`
    shuffle: Annotated[Shuffle, Phrase(rule="shuffle")] = Shuffle()
    #: samples that do not fill a batch. `drop`: as many steps as the rank with the fewest samples fills. `pad`: as many
    #: as the rank with the most, wrapping round the shard. `keep`: the same number, with short or empty batches at the
    #: end
    last_batch: Annotated[Literal["drop", "pad", "keep"], Phrase(keyword="last batch")] = "drop"
    epochs: Annotated[int, Phrase("COUNT<=1_000_000_000")] = 1  #: passes over the data
    #: most steps per pass; the exact number if nothing is read. Default: all
    steps: Annotated[int | None, Phrase("COUNT")] = None
    #: page cache at the start of an epoch. `cold each epoch`: each node first drops the pages of the data set; if a
    #: node still caches 1 % or more after this time, the run fails. The time is reported only as `drop_seconds`.
    #: Default: `as they are`; `within 60 s`
    cold_within: Annotated[float | None, Phrase("as they are | cold each epoch [within TIME]", "caches")] = None
    #: ends the loop at the first step boundary after this time, agreed by all ranks unless `sync off`; it does not
    #: repeat passes: give enough `epochs`
    seconds: Annotated[float | None, Phrase("TIME", "for")] = None
    #: open-loop arrivals of an `infer` loop, a batch each; passes repeat as needed; not with `epochs`, `steps`,
    #: `readers` or `prefetch`
    arrivals: Annotated[Arrivals | None, Phrase("COUNT per rank every TIMES", "requests", blocks=("infer",))] = None
    #: rank r reads what rank (r + N) mod ranks would: with N ranks per node no rank reads what its node wrote
    shift: Annotated[int, Phrase(SHIFT, "shifted by")] = 0
    #: accelerator time of a step, drawn for each epoch, step and rank; slept, or spun with `busy`. `per sample`: the
    #: sum of a draw for each sample, the same on any number of ranks
    compute: Annotated[Compute, Phrase("TIMES [per sample] [busy]")] = Compute(Distribution("constant", (0.0,)))
    #: the reading thread runs the format's decoder on each sample, timed separately; `through library` decodes anyway,
    #: within its calls. Not with both `transfer` and `readers ... by sample`; `parquet` is decoded `through library`
    #: only
    decode: Switch = False
    #: then the same thread sleeps, or spins with `busy`, this long for each sample, as for augmentation
    preprocess: Annotated[Preprocess | None, Phrase("TIMES [busy]")] = None
    #: ends a step, after its compute: a barrier, or an allreduce of this many bytes of float32 in place. `every`: only
    #: after every N steps of a pass. Default: `barrier`; `off` with `requests`
    sync: Annotated[Sync, Phrase("off | barrier [every [COUNT] step(s)] | allreduce SIZE [every [COUNT] step(s)]")] = (
        Sync()
    )
    #: saves a checkpoint (`train` only): `model every 2 epochs`, `every 2 epochs from 5`, `every 100 steps` (of a
    #: pass), `every 30 s` (not with `sync off`), `at end`. A time runs from the last save of this line, or the loop's
    #: start, to the next step boundary. May be repeated. Default: `off`, which -D can give, too
    checkpoints: Annotated[tuple[Cadence, ...], Phrase(keyword="checkpoint", rule="cadence", blocks=("train",))] = ()
    evaluations: tuple[Evaluation, ...] = ()  #: loops that run between epochs


def names_read(loop: Loop) -> tuple[str, ...]:
    """Return the names of the data sets that a loop reads."""
    if isinstance(loop.dataset, Sources):
        return loop.dataset.names
    return (loop.dataset,) if loop.dataset else ()


@dataclass(frozen=True, slots=True)
class Prepare:
    """A `prepare` verb: writes a data set, unless there is a complete one with the same digest."""

    dataset: str  #: name of the data set
    access: Access  #: how it is written
    afresh: bool = False  #: true: writes even if a complete one exists
    fsync: Switch = True  #: files are synced


@dataclass(frozen=True, slots=True)
class Convert(Prepare):
    """A `convert` verb: reads a data set and writes its samples as another one, replacing existing data."""

    source: str = ""  #: name of the data set that is read
    fsync: Switch = True  #: files are synced
    #: runs the format's decoder on each sample that is read, timed separately
    decode: Switch = False
    #: then the rank sleeps, or spins with `busy`, this long for each sample
    preprocess: Annotated[Preprocess | None, Phrase("TIMES [busy]")] = None

    @property
    def title(self) -> str:
        """Return the title for messages."""
        return f"convert {self.source} to {self.dataset}"

    def reading_loop(self, source: Dataset) -> Loop:
        """Return the loop that reads as this verb does, whole samples by POSIX calls."""
        access = Access(open="each sample" if source.layout.kind == "file per sample" else "once")
        return Loop("train", self.title, self.source, access, decode=self.decode, preprocess=self.preprocess)


@dataclass(frozen=True, slots=True)
class Stage:
    """A `stage` verb: every node copies the files of a data set to a root of its own, which later loops read."""

    dataset: str  #: name of the data set
    root: str  #: root that every node has for itself
    #: `before`: the verbs that follow wait for the copies. `in the background`: they do not; a loop reads the copy from
    #: the first epoch that begins after all nodes have theirs. `off`: nothing is copied. `stage D to R in the
    #: background` means the same
    copy: Annotated[Literal["before", "in the background", "off"], Phrase()] = "before"
    #: files that a node copies: `all`, or its `own share`, those that its ranks read, if they read the same samples in
    #: each epoch
    holds: Annotated[Literal["all", "own share"], Phrase()] = "all"
    #: copies are synced; others count only until the node reboots
    fsync: Switch = True


@dataclass(frozen=True, slots=True)
class Save:
    """Write a checkpoint."""

    checkpoint: str  #: name of the checkpoint


@dataclass(frozen=True, slots=True)
class Restore:
    """Read the newest complete checkpoint of a split."""

    checkpoint: str  #: name of the checkpoint
    #: split that wrote it: `8 ranks`, `tensor 8 pipeline 4 data 2`; `... subset 16` if only the first 16 of these ranks
    #: did. Default: as this job's ranks hold it
    written_by: Annotated[Split | None, Phrase(keyword="written by", rule="written")] = None
    #: split in which this job's ranks hold it: `tensor 4 data 16`, `... subset`. Default: the checkpoint's
    parallel: Annotated[Split | None, Phrase(rule="parallel")] = None
    #: rank r reads what rank (r + N) mod ranks would
    shift: Annotated[int, Phrase(SHIFT, "shifted by")] = 0
    #: `own part`: each rank reads what it will hold. `everything`: each rank reads all. `... once`: one rank reads what
    #: several need (data rank 0 for tensors) and sends it to the others; `... once without sending`: the others get
    #: nothing. `everything by file then broadcast`: file k is read by rank k mod ranks, which broadcasts it; all ranks
    #: read at once. Default: `own part`
    everything: Annotated[bool, Phrase(keyword="reads", rule="reads")] = False
    once: bool = False  #: true: of ranks that need the same bytes the first one reads them, and broadcasts them
    sent: bool = True  #: false: with `once`, nothing is broadcast
    by_file: bool = False  #: true: each file is read by one rank, in turn, which broadcasts it to all
    #: file with which a rank starts. `as saved`: the first that it needs. `rotated by rank`: rank r starts at place r *
    #: files / ranks of its files, and ends with the files before
    order: Annotated[Literal["as saved", "rotated by rank"], Phrase()] = "as saved"
    #: `calls`: those of the checkpoint's `api`. `mmap`: pages of mapped files are touched as they are needed, as with
    #: `engine mmap` of a loop; `api posix` only
    through: Annotated[Literal["calls", "mmap"], Phrase()] = "calls"
    #: `whole file`: each rank reads a whole file, through the page cache, before the first range that it needs of it;
    #: `api posix` only
    ahead: Annotated[bool, Phrase("whole file | off", "read ahead")] = False
    #: `each once`: all checkpoints that the verbs above saved, the oldest first. `each of 10 once`: the first 10 of
    #: these or, if nothing above saves, of those that exist. A missing or damaged one is an error. `restore C each
    #: once` means the same. Default: the newest one
    each: Annotated[int, Phrase("once | of COUNT once")] = 0
    #: with `each`: time that all ranks wait before each of them, the same for all
    pause: Annotated[Distribution | None, Phrase("TIMES")] = None

    @property
    def option_text(self) -> str:
        """Short text of the options that differ from a plain restore of the checkpoint; empty without any."""
        phrases = [
            f"by {self.parallel.axes_text}" if self.parallel else "",
            f"from {self.written_by.axes_text}" if self.written_by else "",
            f"shifted by {self.shift}" if self.shift else "",
            "everything" * self.everything,
            f"once{'' if self.sent else ' not sent'}" * self.once,
            "by file then broadcast" * self.by_file,
            self.order if self.order != "as saved" else "",
            "through mmap" * (self.through == "mmap"),
            "read ahead" * self.ahead,
            "oldest first" * bool(self.each),
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


Verb = Union[Loop, Prepare, Stage, Save, Restore, Pause, Barrier, DropCaches, Repeat]


def flatten_verbs(verbs: tuple[Verb, ...], times: int = 1) -> Iterator[tuple[Verb, int]]:
    """Yield each verb and how often it runs; a repeat becomes a factor of that number."""
    for verb in verbs:
        if isinstance(verb, Repeat):
            yield from flatten_verbs(verb.body, times * verb.count)
        else:
            yield verb, times


def list_saved_checkpoints(verbs: tuple[Verb, ...]) -> list[str]:
    """Return the names of the checkpoints that verbs save, each once."""
    names: dict[str, None] = {}
    for verb, _ in flatten_verbs(verbs):
        if isinstance(verb, Save):
            names[verb.checkpoint] = None
        elif isinstance(verb, Loop):
            names |= {cadence.checkpoint: None for cadence in verb.checkpoints}
    return list(names)


def loops_after(stage: Stage, verbs: tuple[Verb, ...]) -> Iterator[Loop]:
    """Yield the loops among some verbs, and the evaluations in them, that read the data of a `stage` verb after it.

    In a `repeat` those before it count, too: they run again.
    """
    within = [any(one is stage for one, _ in flatten_verbs((verb,))) for verb in verbs]
    for verb, _ in flatten_verbs(verbs[within.index(True) :]):
        if isinstance(verb, Loop):
            own = (verb, *(evaluation.loop for evaluation in verb.evaluations))
            yield from (loop for loop in own if stage.dataset in names_read(loop))


#: What else the field calls these settings: `language/suggest/synonyms.py` says how it is read.
OTHER_WORDS: Final = """
read: DATASET | DATASET with ACCESS | DATASET 70 %, OTHER_DATASET 30 % | DATASET 70 %, OTHER_DATASET 30 %, until all end
    dataset, data, data_set, input, dataset_name
batch
    batch_size, per_device_batch_size, micro_batch_size, minibatch -> {} per rank
    global_batch, global_batch_size, total_batch -> {} total
shard
    sharding, sampler
shuffle: samples globally each epoch | files globally each epoch | samples within buffer of 1000 samples | off
    sample_shuffle, rw, readwrite, random -> samples globally each epoch | off
    seed_change_epoch, reshuffle_each_iteration -> samples globally each epoch | samples globally once
    file_shuffle, shuffle_files, shardshuffle -> files globally each epoch | off
    shuffle_buffer, shuffle_buffer_size, shuffle_size, buffer_size -> samples within buffer of {} samples
last batch
    drop_last, drop_remainder -> drop | keep
epochs
    num_epochs, max_epochs, n_epochs, passes, repetitions, repeat
steps
    total_training_steps, take, max_steps, num_steps, steps_per_epoch, iterations, iters, num_iterations
for: 60 s
    runtime, duration, time_limit, max_time, time -> {} s
    time_based
requests
    arrival, request_rate
shifted by
    shift
    reorder_tasks -> 1 rank | 0 ranks
    task_offset -> {} ranks
compute
    computation_time, compute_time, step_time, gpu_time -> {} s
    thinktime -> {} us
    think_time
    compute_per_sample, time_per_sample -> {} s per sample
preprocess
    preprocess_time -> {} s
    preprocessing, transforms, augment, augmentation
sync
    allreduce, all_reduce, gradients -> allreduce {}
    barrier -> barrier {} | off
    gradient_accumulation_steps, accumulate_grad_batches, gradient_accumulation -> barrier every {} steps
    synchronize
checkpoint: CHECKPOINT every 2 epochs | CHECKPOINT every 100 steps | CHECKPOINT every 30 s | CHECKPOINT at end
    time_between_checkpoints -> CHECKPOINT every {} s
    steps_between_checkpoints, save_steps, save_interval -> CHECKPOINT every {} steps
    epochs_between_checkpoints, checkpoint_every, save_every, checkpoint_after_epoch -> CHECKPOINT every {} epochs
    save_model, save, ckpt
decode
    decoding
caches
    drop_caches, drop_cache, clear_caches -> cold each epoch | as they are
"""
