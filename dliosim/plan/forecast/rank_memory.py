"""The memory of ranks and nodes: the base of a process, and the additions of its verbs."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Final, cast

import numpy as np

from dliosim.formats.protocols import Built, Format, Framed, GroupEncoder, Ints
from dliosim.formats.registry import bind
from dliosim.model import Access, Convert, Dataset, Job, Loop, Prepare
from dliosim.model.epoch_size import LARGEST_TABLE, rows_of_step
from dliosim.plan.forecast.layout_forecast import estimate_mean
from dliosim.plan.samples.io_requests import plan_calls
from dliosim.plan.samples.places import Places
from dliosim.plan.samples.read_ranges import STEP_BYTES, buffer_bytes, plan_reads
from dliosim.plan.samples.sample_to_file import bind_file, block_count, needs_totals
from dliosim.plan.samples.sampler import plan_bytes, plan_epoch

#: Memory of a rank before it reads anything, and once a node what its ranks share: the interpreter, numpy and the MPI
#: library. `scripts/dev/bench_start.py` measures both: PSS of 1 to 32 ranks, a straight line in the number of ranks.
RANK_BYTES: Final = 30_000_000
NODE_BYTES: Final = 27_000_000

#: Memory of a reader process (`readers K processes`) of its own: the interpreter, numpy, and what it reads with.
PROCESS_BYTES: Final = 25_000_000

#: Columns of numbers that a reader process has of each file with an index, and of each column of samples in it.
_FILE_COLUMNS: Final = 3
_PART_COLUMNS: Final = 6

#: Bytes of the name of an existing file below its root, about: ImageNet's have 36.
_NAME_BYTES: Final = 40

#: Rows of an epoch that are planned to find its largest batch; if all samples have one size a step would do.
_PLANNED: Final = 1 << 14

#: Memory of a rank that prepares next to what it makes: keys and places of samples, and random bytes.
_PREPARING: Final = 2 << 20

#: Files of framed formats below the first number of bytes are made together, up to the second.
SMALL_FILE: Final = 2 << 20
MADE_TOGETHER: Final = (4 << 20) + (64 << 10)

_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of memory that one rank needs in a phase, or the ranks of a node together."""

    buffers: int = 0  #: buffers of batches, or of calls
    plan: int = 0  #: columns of the plan
    allreduce: int = 0  #: buffer of the allreduce
    cache: int = 0  #: samples that `cache memory` keeps
    staging: int = 0  #: buffers of background saves until they are flushed
    saving: int = 0  #: buffers of saves next to what else there is
    readers: int = 0  #: reader processes, without buffers
    files: int = 0  #: files that are written to memory (tmpfs); only a run counts them

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(astuple(self))

    def __add__(self, other: RankMemory) -> RankMemory:
        return RankMemory(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


def fullest_node(needed: Ints, job: Job) -> int:
    """Return the largest sum of what the ranks of a node need; int64 (ranks,), the ranks dealt to nodes in blocks."""
    return int(np.add.reduceat(needed, np.arange(0, len(needed), job.ranks_per_node)).max(initial=0))


def rank_buffers(loop: Loop, batch: int, on_node: int, leads: bool) -> int:
    """Return the bytes of read buffers of a rank that has `on_node` ranks on its node, of batches of `batch` bytes.

    With `scatter by node` the rank that leads its node reads for all, and the others receive one batch at a time.
    """
    return batch * (on_node if loop.access.scatter and leads else loop.access.batches)


def reader_bytes(access: Access, dataset: Dataset | None) -> int:
    """Return the bytes of the reader processes of a rank, with the one copy of their set-up."""
    if not access.processes:
        return 0
    return access.readers * PROCESS_BYTES + sum(map(_setup_bytes, dataset.members if dataset is not None else ()))


def _setup_bytes(dataset: Dataset) -> int:
    """Return about the bytes of names of files and of places of samples that reader processes need."""
    files = dataset.layout.files
    if dataset.source or bind(dataset).needs_index:
        names = files * (8 + _NAME_BYTES) if dataset.source else 0
        return names + 8 * files * (_FILE_COLUMNS + _PART_COLUMNS * dataset.parts)
    return 8 * block_count(dataset) if needs_totals(dataset) else 0


def loop_memory(loop: Loop, dataset: Dataset | None, steps: int, batch: int) -> RankMemory:
    """Return the memory of a loop on a rank that does not read for others, for `steps` steps an epoch.

    `cache memory` keeps no more than is read in an epoch.
    """
    planned = 0 if dataset is None else plan_bytes(loop, dataset, steps)
    cache = min(loop.access.memory, steps * batch)
    buffers, readers = loop.access.batches * batch, reader_bytes(loop.access, dataset)
    return RankMemory(buffers, planned, loop.sync.size, cache, readers=readers)


def largest_batch(loop: Loop, places: Places, job: Job) -> int:
    """Return the bytes of a buffer for the largest batch of a loop, by its first steps; 0 if a step is too large."""
    dataset = places.dataset
    rows = rows_of_step(loop, dataset)
    if rows > LARGEST_TABLE:
        return 0
    steps = max(1, _PLANNED // rows)
    first = replace(loop, steps=min(steps, loop.steps or steps))
    stored = plan_reads(plan_epoch(first, places, job, 0, 0), loop.access, _NONE, places).extents
    return buffer_bytes(dataset, plan_calls(stored, loop.access.transfer, loop.access.page).buffer_size)


def prepares_whole_files(form: Format, verb: Prepare) -> bool:
    """Return whether a file is written by one rank, and not by several that share its samples."""
    if isinstance(form, Framed):
        return isinstance(verb, Convert) or form.checksum is not None
    return isinstance(verb, Convert) or (isinstance(form, Built) and not isinstance(form, GroupEncoder))


def prepare_memory(form: Format, verb: Prepare, rank: int) -> RankMemory:
    """Return the memory of a rank that writes its part of a data set: the samples made at a time, and the encoder's."""
    dataset, files, transfer = form.dataset, form.dataset.layout.files, verb.access.transfer
    if rank >= (files if prepares_whole_files(form, verb) else dataset.samples):
        return RankMemory()
    sample, file_samples = largest_sample(dataset), -(-dataset.samples // files)
    made, file_bytes = sample + dataset.header + 2 * dataset.align, file_samples * sample
    if isinstance(form, Built):
        made = min(cast(Built, bind_file(form, 0)).batch, file_samples) * sample
    elif transfer is not None and (not isinstance(form, Framed) or form.bare):
        made = min(transfer, file_bytes + dataset.header)
    elif isinstance(form, Framed) and not form.bare:  # whole samples, or several small files
        own = dataset.samples * sample if file_bytes < SMALL_FILE else file_bytes
        made = max(made, min(own, MADE_TOGETHER if file_bytes < SMALL_FILE else transfer or 0))
    return RankMemory(int(made + form.encoder_bytes(int(made), int(sample))) + _PREPARING)


def convert_memory(source: Dataset, dataset: Dataset, rank: int) -> RankMemory:
    """Return the memory of a rank for the samples that it reads to convert; nothing if it has no file to write."""
    if rank >= dataset.layout.files:
        return RankMemory()
    own = -(-source.samples // dataset.layout.files) * largest_sample(source)
    return RankMemory(int(min(own, STEP_BYTES + largest_sample(source))))


def largest_sample(dataset: Dataset) -> float:
    """Return the bytes of the largest sample, or four times the mean if there is no limit."""
    if dataset.constant_size is not None:
        return dataset.constant_size
    return dataset.size.high if dataset.size.high is not None else 4 * estimate_mean(dataset.size)
