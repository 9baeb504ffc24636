"""The figures of `dliosim plan`: the work and the needs of each phase, computed without touching data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType

import numpy as np

from dliosim.errors import PlanError
from dliosim.formats.protocols import Ints
from dliosim.formats.registry import bind
from dliosim.model import Convert, Dataset, Job, Loop, Prepare, Restore, Save, Stage, Verb, Workload
from dliosim.model.epoch_size import LARGEST_TABLE, find_shard, rows_of_step, steps_of_epoch
from dliosim.model.expectation import GOAL, goals_of
from dliosim.model.verbs import count_due, flatten_verbs, list_saved_checkpoints
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast import checkpoint_footprint
from dliosim.plan.forecast.epoch_statistics import PassRange, count_passes, unread_pass
from dliosim.plan.forecast.forecast_types import Demand, Forecast, Listing, PhaseForecast, StateForecast, Storage
from dliosim.plan.forecast.layout_forecast import (
    Placement,
    estimate_mean,
    join_placements,
    mean_compute,
    place_samples,
    read_columns,
)
from dliosim.plan.forecast.prepare_forecast import (
    forecast_conversion_reads,
    forecast_prepare,
    forecast_stage,
    sum_sidecars,
)
from dliosim.plan.forecast.rank_memory import NODE_BYTES, RANK_BYTES, RankMemory, fullest_node
from dliosim.plan.samples.sample_index import DataIndex
from dliosim.plan.samples.sample_to_file import BLOCK, SUMS_OF_SAMPLES, block_count, needs_totals
from dliosim.plan.samples.sampler import plan_epoch

_LISTED = 1 << 18  # samples planned at a time for a list, unless a step has more
_ROWS = 1 << 14  # samples listed at a time
_STEPS = 4 * LARGEST_TABLE  # largest sum of the rows of one step of every loop
_SUMMED = 1 << 24  # largest number of sizes that are summed for the offsets of samples in shared files


def forecast(workload: Workload, found: Mapping[str, DataIndex] = MappingProxyType({})) -> Forecast:
    """Plan a workload for its job without touching data; takes seconds for a workload of any size.

    `found` has the indexes of existing files: by `Dataset.found`, or by the digest of a prepared data set.
    """
    placements = {
        dataset.name: place_samples(dataset, found.get(dataset.found or dataset.digest()))
        for dataset in workload.datasets
    }
    _check_step_rows(workload)
    phases: list[PhaseForecast] = []
    most, fullest, staging = 0, 0, _staging_memory(workload, list_saved_checkpoints(workload.verbs))
    for verb, times in flatten_verbs(workload.verbs):
        made, needed = _forecast_verb(workload, placements, verb, times)
        for one in made:
            own = _staging_memory(workload, [one.name] if one.verb == "save" else [])
            phases.append(replace(one, node_memory=fullest_node(_rank_memory(one, workload) + own, workload.job)))
        most = max(most, int((needed + staging).max()))
        fullest = max(fullest, fullest_node(needed + staging, workload.job))
    index = sum(8 * (block_count(dataset) + 1) for dataset in workload.datasets if needs_totals(dataset))
    states = tuple(_forecast_states(workload, phases))
    return Forecast(
        workload.name,
        workload.digest(),
        workload.job.ranks,
        workload.job.nodes,
        tuple(phases),
        _forecast_storage(workload, phases, states),
        states,
        RANK_BYTES + most,
        index,
        RANK_BYTES * workload.job.ranks_per_node + NODE_BYTES + fullest + index,
    )


def _rank_memory(phase: PhaseForecast, workload: Workload) -> Ints:
    """Return the bytes of memory that each rank needs in a phase, int64 (ranks,), without staging buffers."""
    if phase.rank_memory is not None:
        return phase.rank_memory
    return np.full(workload.job.ranks, phase.memory.total)


def _staging_memory(workload: Workload, checkpoints: Iterable[str]) -> Ints:
    """Return the bytes of staging buffers of each rank, which are there from the start of a run; int64 (ranks,)."""
    total = np.zeros(workload.job.ranks, np.int64)
    for checkpoint in map(workload.checkpoint, checkpoints):
        each = checkpoint_footprint.staging_bytes(
            checkpoint, state_files(checkpoint, checkpoint.split(workload.job.ranks))
        )
        total[: len(each)] += each
    return total


def list_reads(
    workload: Workload,
    rank: int,
    epoch: int,
    loop: str | None = None,
    found: Mapping[str, tuple[DataIndex, Sequence[str]]] = MappingProxyType({}),
) -> Iterator[Listing]:
    """Return the reads of `rank` in `epoch` (from 0) of the first loop, or of the loop named, in blocks of steps.

    `found` is that of `forecast`, with the names of the files. Raises PlanError if there is no such loop, rank or
    epoch, if the offsets of samples are not known before files are written, or if the list is too long.
    """
    job = workload.job
    if not 0 <= rank < job.ranks:
        raise PlanError(f"there is no rank {rank}: the job has {job.ranks}")
    chosen = next((one for one in loops_of(workload.verbs) if loop in (None, one.name)), None)
    if chosen is None:
        raise PlanError(f"there is no loop `{loop}`" if loop else "the pattern has no loop")
    dataset = workload.read_dataset(chosen)
    if dataset is None:
        raise PlanError(f"`{chosen.name}` reads nothing that could be listed")
    indexes = [found.get(one.found or one.digest(), (None, ())) for one in dataset.members]
    for one, (index, _) in zip(dataset.members, indexes, strict=True):
        if index is None:
            _refuse_unknown_places(one)
    placed = [place_samples(one, index, _SUMMED) for one, (index, _) in zip(dataset.members, indexes, strict=True)]
    places = read_columns(join_placements(dataset, placed), chosen.columns).places
    steps = steps_of_epoch(chosen, dataset, job.ranks)
    # All requests are one epoch, with the number of passes that they take.
    epochs = sum(runs for each, runs in _loop_runs(workload.verbs) if each is chosen)
    epochs *= 1 if chosen.arrivals is not None else chosen.epochs
    if epoch >= epochs:
        raise PlanError(f"there is no epoch {epoch + 1}: `{chosen.name}` has {epochs}")
    passes = [PassRange(epoch + 1, epoch + 1, steps)] if chosen.arrivals is None else _split_passes(chosen, steps, 1)
    if not find_shard(chosen, dataset, job.ranks, rank)[1]:
        passes = []  # there may be millions of passes, all empty
    rows = steps * chosen.batch * dataset.rows
    if chosen.shuffle.samples == "within buffer" and rows > LARGEST_TABLE:
        text = f"--csv lists at most {LARGEST_TABLE:_} samples `within buffer`, and rank {rank} reads {rows:_}"
        raise PlanError(f"{text}; `steps` in `{chosen.name}` makes them fewer")

    def file_names(files: Ints) -> Iterator[str]:
        for member, file in zip(places.member_of_files(files).tolist(), files.tolist(), strict=True):
            one, names, number = dataset.members[member], indexes[member][1], file - places.members[member].first_file
            yield names[number] if names else f"{one.path}/{one.digest()}/{one.file_name(number)}"

    first_samples = np.array([member.first_sample for member in places.members])
    # The offset of a sample in its block needs the sizes before it, drawn again: up to 64 for each sample.
    drawn = any(needs_totals(one) and one.samples > SUMS_OF_SAMPLES for one in dataset.members)
    at_once = _LISTED // BLOCK if drawn else _LISTED
    return (
        Listing(
            before_it + first + np.searchsorted(plan.step_start, np.arange(row, upto), side="right") - 1,
            plan.sample[row:upto] - first_samples[places.member_of_files(plan.file[row:upto])],
            [*file_names(plan.file[row:upto])],
            plan.offset[row:upto],
            plan.length[row:upto],
        )
        for number, before_it, steps in _number_epochs(passes)
        for first, last in _cut_blocks(steps, max(1, at_once // chosen.batch))
        for plan in [plan_epoch(replace(chosen, steps=last), places, job, rank, number, first)]
        for row, upto in _cut_blocks(len(plan.sample), _ROWS)
    )


def _refuse_unknown_places(dataset: Dataset) -> None:
    """Raise PlanError if samples without an index cannot be listed, see `list_reads`."""
    if bind(dataset).needs_index:
        text = f"data set `{dataset.name}`: only its files know where samples are in {dataset.format}"
        text = f"{text}, and there are none below --dir"
        raise PlanError(f"{text}: prepare them by `dliosim run`; the other tables of `plan` estimate it")
    # Summing takes 30 to 200 ns for each sample whose size varies.
    if needs_totals(dataset) and dataset.samples > _SUMMED:
        text = f"samples of varying size in shared files: --csv places at most {_SUMMED:_}, and there are"
        raise PlanError(f"data set `{dataset.name}`: {text} {dataset.samples:_}")


def _check_step_rows(workload: Workload) -> None:
    """Refuse loops if not even one step of each can be planned."""
    read = ((one, workload.read_dataset(one)) for one in loops_of(workload.verbs))
    rows = sum(rows_of_step(one, dataset) for one, dataset in read if dataset is not None)
    if rows > _STEPS:
        text = f"a step of each loop has {rows:_} samples or calls on a rank, all loops together"
        raise PlanError(f"{text}; at most {_STEPS:_} are planned: use fewer loops, or a smaller `batch`")


def _number_epochs(passes: list[PassRange]) -> Iterator[tuple[int, int, int]]:
    """Yield each epoch (from 0), the steps before it, and its own steps."""
    before = 0
    for each in passes:
        for number in range(each.first - 1, each.last):
            yield number, before, each.steps
            before += each.steps


def _cut_blocks(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield first and last (exclusive) index of blocks of at most `most` items."""
    return ((first, min(first + most, count)) for first in range(0, count, most))


def loops_of(verbs: tuple[Verb, ...]) -> Iterator[Loop]:
    """Yield all loops, each followed by the evaluations inside it."""
    return (loop for loop, _ in _loop_runs(verbs))


def _loop_runs(verbs: tuple[Verb, ...]) -> Iterator[tuple[Loop, int]]:
    """Yield each loop, and how often it runs before its epochs count from 0 again.

    An evaluation does not count from 0 in each run: its epochs continue.
    """
    for verb, _ in flatten_verbs(verbs):
        if isinstance(verb, Loop):
            yield verb, 1
            for evaluation in verb.evaluations:
                yield evaluation.loop, count_due(evaluation, verb.epochs)


def _forecast_verb(
    workload: Workload, placements: dict[str, Placement], verb: Verb, times: int
) -> tuple[list[PhaseForecast], Ints]:
    """Return the phases of one verb, and the bytes of memory that each rank needs for it; int64 (ranks,)."""
    if isinstance(verb, Loop):
        return _forecast_loop(workload, placements, verb, times, 1)
    if isinstance(verb, Convert):
        places, ranks = placements[verb.dataset], workload.job.ranks
        reads = forecast_conversion_reads(placements[verb.source], places, verb, ranks, times)
        made = [reads, replace(forecast_prepare(places, verb, ranks, times), verb="convert")]
    elif isinstance(verb, Prepare):
        made = [forecast_prepare(placements[verb.dataset], verb, workload.job.ranks, times)]
    elif isinstance(verb, Stage) and verb.copy != "off":
        made = [forecast_stage(placements[verb.dataset], verb, workload.job, times)]
    elif isinstance(verb, Save):
        made = [checkpoint_footprint.forecast_save(workload.checkpoint(verb.checkpoint), workload.job.ranks, times)]
    elif isinstance(verb, Restore):
        checkpoint = workload.checkpoint(verb.checkpoint)
        made = [checkpoint_footprint.forecast_restore(checkpoint, verb, workload.job.ranks, times * max(verb.each, 1))]
    else:
        made = []
    return made, sum((_rank_memory(phase, workload) for phase in made), np.zeros(workload.job.ranks, np.int64))


def _forecast_loop(
    workload: Workload, placements: dict[str, Placement], loop: Loop, times: int, runs: int
) -> tuple[list[PhaseForecast], Ints]:
    """Return the phases of a loop done `times` times, and the memory of each rank, int64 (ranks,).

    Each time it is done in `runs` runs that share its epochs.
    """
    dataset = workload.read_dataset(loop)
    passes = _split_passes(loop, steps_of_epoch(loop, dataset, workload.job.ranks), runs)
    stream = loop.arrivals is not None
    if dataset is None:
        found = [unread_pass(loop, workload.job.ranks, one) for one in passes]
    else:
        loops = sum(1 for _ in loops_of(workload.verbs))
        placement = join_placements(dataset, [placements[one.name] for one in dataset.members])
        placement = read_columns(placement, loop.columns)
        read = dataset if loop.columns is None else placement.dataset
        found = count_passes(loop, read, placement, workload.job, passes, stream, loops)
    goal = goals_of(workload.expectations).get(loop.name, GOAL)
    phases = [replace(one, times=times * one.times, demand=_storage_demand(loop, one, goal)) for one in found]
    if stream:
        phases = [_label_stream_pass(phase, passes[-1].last) for phase in phases]
    if loop.access.scatter:
        phases = [replace(phase, rank_memory=_memory_with_leaders(phase.memory, workload.job)) for phase in phases]
    needed = reduce(
        np.maximum, (_rank_memory(phase, workload) for phase in phases), np.zeros(workload.job.ranks, np.int64)
    )
    for evaluation in loop.evaluations:
        inner, more = _forecast_loop(workload, placements, evaluation.loop, times, count_due(evaluation, loop.epochs))
        phases += inner
        needed += more  # its buffers stay while those of the training loop are in use
    if loop.seconds is not None:
        phases = [replace(phase, at_most=True) for phase in phases]
    saving = np.zeros_like(needed)
    for cadence in loop.checkpoints:
        saves = checkpoint_footprint.count_saves(loop, cadence, steps_of_epoch(loop, dataset, workload.job.ranks))
        by_clock = cadence.unit == "seconds"
        if by_clock:
            saves = max(saves, 1)  # there are more where steps wait for data; without compute the number is not known
        phase = checkpoint_footprint.forecast_save(
            workload.checkpoint(cadence.checkpoint), workload.job.ranks, times * saves
        )
        at_most = loop.seconds is not None and cadence.unit not in ("end", "seconds")
        phases.append(replace(phase, at_most=at_most, at_least=by_clock))
        saving = np.maximum(saving, _rank_memory(phase, workload))
    return phases, needed + saving


def _memory_with_leaders(leader: RankMemory, job: Job) -> Ints:
    """Return the bytes of each rank, int64 (ranks,), from those of ranks that read for all ranks of their nodes."""
    needed = np.full(job.ranks, leader.total - leader.buffers + leader.buffers // job.ranks_per_node)
    needed[:: job.ranks_per_node] = leader.total
    return needed


def _label_stream_pass(phase: PhaseForecast, passes: int) -> PhaseForecast:
    """Return a pass that requests make: requests are one stream without epochs, planned as a whole."""
    when = f"pass {phase.first_epoch}"
    if phase.last_epoch != phase.first_epoch:
        when += f" to {phase.last_epoch}"
    memory = replace(phase.memory, plan=phase.memory.plan * passes)
    return replace(phase, first_epoch=None, last_epoch=None, when=when, memory=memory)


def _split_passes(loop: Loop, steps: int, runs: int) -> list[PassRange]:
    """Return the passes of `runs` runs of a loop: the first is separate, and so is the last of a stream of requests."""
    whole, rest = loop.epochs * runs, 0
    if loop.arrivals is not None:
        whole, rest = divmod(loop.arrivals.requests, max(steps, 1))
    made = [PassRange(1, 1, steps), PassRange(2, whole, steps)][: min(whole, 2)]
    return [*made, PassRange(whole + 1, whole + 1, rest)] if rest else made


def _time_to_read(compute: float, overlapped: bool, goal: float) -> float:
    """Return the seconds in which a step's data must be read for the goal: during compute, or added to it."""
    return compute / goal if overlapped else compute * (1 / goal - 1)


def _storage_demand(loop: Loop, found: PhaseForecast, goal: float) -> Demand | None:
    """Return what storage must deliver for a loop; None if nothing says in which time."""
    if not found.steps or not loop.dataset:
        return None
    compute, readers = mean_compute(loop.compute, found.samples.mean / found.steps), loop.access.readers
    each = estimate_mean(loop.preprocess.time) if loop.preprocess is not None else 0.0
    processing = each * found.samples.mean / found.steps
    # Readers preprocess in parallel, while the step computes; without readers preprocessing is a part of the step.
    least = max(compute, processing / readers) if readers else compute + processing
    if loop.arrivals is not None:
        left = max(estimate_mean(loop.arrivals.gap) - least, 0.0)
        return Demand(found.bytes.mean / found.steps, None, least, left, processing)
    if not compute:
        return None
    time = _time_to_read(least, readers > 0, goal)
    enough = 0 if compute >= goal * least else int(processing / _time_to_read(compute, True, goal)) + 1
    return Demand(found.bytes.mean / found.steps, goal, least, time, processing, enough)


def _forecast_states(workload: Workload, phases: list[PhaseForecast]) -> Iterator[StateForecast]:
    # The restores by which this job continues; to read what another job saved has another purpose.
    restores = [
        verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Restore) and verb.written_by is None
    ]
    for checkpoint in workload.checkpoints:
        saves = sum(phase.times for phase in phases if phase.verb == "save" and phase.name == checkpoint.name)
        if not saves:
            continue
        state = checkpoint_footprint.forecast_state(checkpoint, workload.job.ranks, saves)
        how = next((verb.option_text for verb in restores if verb.checkpoint == checkpoint.name), None)
        wanted = ("restore", checkpoint.name, how)
        read = (phase.bytes.total for phase in phases if (phase.verb, phase.name, phase.when) == wanted)
        yield replace(state, restored=next(read, state.restored))


def _forecast_storage(
    workload: Workload, phases: list[PhaseForecast], states: tuple[StateForecast, ...]
) -> tuple[Storage, ...]:
    """Return the space of data sets that are prepared, and of checkpoints that are saved."""
    prepared = {phase.name: phase.bytes for phase in phases if phase.verb in ("prepare", "convert") and not phase.when}
    made = []
    for name, size in prepared.items():
        dataset = workload.dataset(name)
        files = dataset.layout.files
        made.append(Storage("dataset", name, dataset.root, size.total, files, 1, size.estimated))
        for suffix in bind(dataset).sidecars:
            total, estimated = sum_sidecars(dataset, suffix)
            made.append(Storage("sidecar", f"{name}.{suffix}", dataset.root, total, files, 1, estimated))
    copied = {one.name: one for one in phases if one.verb == "stage"}
    for verb in workload.stages():
        one, nodes = copied[verb.dataset], workload.job.nodes
        each, files = one.bytes.total / nodes, round(one.files.total / nodes)
        made.append(Storage("copy", verb.dataset, verb.root, each, files, nodes, one.bytes.estimated))
    for state in states:
        made += checkpoint_footprint.storage_of(workload.checkpoint(state.checkpoint), state)
    return tuple(made)
