"""Check before a run that each node has the memory for everything that exists at once: the kernel kills silently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace
from functools import partial
from typing import Final

import numpy as np

from dliosim.errors import PlanError
from dliosim.execute.checkpoints.background import staging_bytes
from dliosim.execute.checkpoints.checkpoint_session import drain_buffer_bytes
from dliosim.execute.checkpoints.save_steps import write_buffer_bytes
from dliosim.execute.node.memory import find_free_memory
from dliosim.execute.phases.context import Session
from dliosim.formats.registry import bind
from dliosim.model import Checkpoint, Convert, Loop, Prepare, Restore, Save, Sources, Stage, Verb
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import flatten_verbs, list_saved_checkpoints
from dliosim.plan.checkpoints.layout import StateFiles, state_files
from dliosim.plan.forecast import rank_memory
from dliosim.plan.forecast.layout_forecast import Placement, guess_places, join_placements
from dliosim.plan.forecast.prepare_forecast import COPY_CALL
from dliosim.plan.samples.places import Places
from dliosim.readable import count, size

#: What each part of `RankMemory` is called in messages.
_PARTS: Final = {
    "buffers": "buffers of calls",
    "plan": "calls of an epoch",
    "allreduce": "`sync allreduce`",
    "cache": "`cache memory`",
    "staging": "staging buffers",
    "saving": "buffers of saves",
    "readers": "reader processes",
    "files": "files in memory (tmpfs)",
}

#: Parts below this share of the need are not named.
_SMALL_SHARE: Final = 0.1

#: Bytes of a call that any node has memory for.
_SMALL_CALL: Final = 4 << 20

#: The largest sum of bytes; 64 bits hold it.
_MOST: Final = 1 << 56


def require_memory_at_once(session: Session) -> None:
    """Raise ExecutionError [R402] on every rank unless each node has the memory that its ranks need. Collective.

    The verb that needs most is named, with what to type.
    """
    world = session.world
    batches, files = world.run_on_rank_0("look for memory", lambda: (_largest_batches(session), _file_bytes(session)))
    needs = world.run_on_all(lambda: list(_verb_needs(session, batches, files if world.rank == 0 else 0)))
    if not needs:
        return
    table = np.array([[min(part, _MOST // world.size) for part in astuple(need)] for need in needs], np.int64)
    world.allreduce_on_node(table, "sum")
    number = int(table.sum(axis=1).argmax())
    memory, place = find_free_memory()
    memory = _MOST if memory is None else memory
    short = int(table[number].sum()) - memory
    # That of the node which lacks most; of none if no node lacks memory.
    is_worst = short == world.allreduce_number(max(short, 1), "max")
    worst = world.broadcast_first(
        (number, table[number].tolist(), memory, place, world.node.size) if is_worst else None
    )
    if worst is not None:
        world.run_on_rank_0("look for memory", partial(_refuse, session, *worst))


def _refuse(session: Session, number: int, parts: list[int], memory: int, place: str, ranks: int) -> None:
    """Raise the error of the verb that a node has no memory for."""
    verb = next(verb for at, (verb, _) in enumerate(flatten_verbs(session.workload.verbs)) if at == number)
    together = rank_memory.RankMemory(*parts)
    largest = sorted(zip(parts, _PARTS, strict=True), reverse=True)
    named = [(part, name) for part, name in largest if part > _SMALL_SHARE * together.total]
    text = ", ".join(f"{_PARTS[name]} {size(part)}" for part, name in named)
    message = (
        f"`{verb_title(verb)}` needs {size(together.total)} of memory on a node, and {place} has {size(memory)} free"
    )
    cures = (_cure(session, verb, name, memory / together.total) for _, name in named)
    cure = " ".join(dict.fromkeys(filter(None, cures)))
    advice = [f"add `{cure}`"] * bool(cure)
    fewer = int(ranks * memory / together.total)
    if isinstance(verb, Loop | Prepare) and 0 < fewer < ranks:  # whose ranks need about the same
        advice.append(f"start at most {count(fewer, 'rank')} on a node")
    advice = advice or ["run it on a node with more memory"]
    raise session.shortage(number, message, f"{count(ranks, 'rank')} on the node: {text}", "; or ".join(advice))


def verb_title(verb: Verb) -> str:
    """Return the title of a verb in messages: the name of a loop, otherwise the action and its object."""
    if isinstance(verb, Loop | Convert):
        return verb.name if isinstance(verb, Loop) else verb.title
    return f"{type(verb).__name__.lower()} {getattr(verb, 'dataset', getattr(verb, 'checkpoint', ''))}".strip()


def _cure(session: Session, verb: Verb, part: str, share: float) -> str:
    """Return the -D for a verb that needs less of a part; a node has a `share` of the need. Empty if none helps."""
    workload = session.workload
    if part in ("staging", "saving") or isinstance(verb, Save | Restore):
        names = [verb.checkpoint] if isinstance(verb, Save | Restore) else list_saved_checkpoints(workload.verbs)
        checkpoints = [workload.checkpoint(name) for name in names]
        if part == "staging":
            staged = (one.name for one in checkpoints if one.background is not None and not one.background.simulated)
            return " ".join(f"-D {name}.staging=simulated" for name in staged)
        large = (one.name for one in checkpoints if (one.access.transfer or _MOST) > _SMALL_CALL)
        return " ".join(f'-D {name}.transfer="4 MiB"' for name in large)
    if isinstance(verb, Loop):
        access = verb.access
        if part == "plan":
            steps = verb.steps or steps_of_epoch(verb, workload.read_dataset(verb), session.world.size)
            return f"-D {verb.name}.steps={max(1, int(steps * share / 2))}"
        if part == "buffers" and access.batches > 1 and 1 / access.batches <= share:
            return f'-D {verb.name}.prefetch="1 batch"'
        if part == "readers":
            return f"-D {verb.name}.readers={access.readers}"
        if part == "buffers" and verb.batch > 1:
            return f'-D {verb.name}.batch="{max(1, int(verb.batch * share))} per rank"'
        cures = {"allreduce": f"-D {verb.name}.sync=barrier", "cache": f"-D {verb.name}.cache=page"}
        return cures.get(part, "")
    if isinstance(verb, Prepare) and (verb.access.transfer or _MOST) > _SMALL_CALL:
        return f'-D "{type(verb).__name__.lower()} {verb.dataset}.transfer"="4 MiB"'
    return ""


def _places(session: Session, name: str | Sources) -> Places | None:
    """Return the places of a data set's samples, an estimate before its files are there; None if none is made."""
    dataset = session.workload.dataset(name)
    try:
        each = [
            session.opened[one].places if one in session.opened else guess_places(bind(one)) for one in dataset.members
        ]
    except PlanError:
        return None
    return join_placements(dataset, [Placement(places, False) for places in each]).places


def _largest_batches(session: Session) -> dict[str, int]:
    """Return the bytes of a read buffer of each loop, 0 if it is not known before files are there; for rank 0."""
    found: dict[str, int] = {}
    for loop in _loops(session.workload.verbs):
        places = _places(session, loop.dataset) if loop.dataset and not session.options.null else None
        found[loop.name] = 0 if places is None else rank_memory.largest_batch(loop, places, session.workload.job)
    return found


def _loops(verbs: tuple[Verb, ...]) -> Iterator[Loop]:
    for verb, _ in flatten_verbs(verbs):
        if isinstance(verb, Loop):
            yield from (verb, *(evaluation.loop for evaluation in verb.evaluations))


def _file_bytes(session: Session) -> int:
    from dliosim.execute.run.capacity_check import bytes_in_memory  # for rank 0 alone

    return 0 if session.options.null else bytes_in_memory(session)


def _verb_needs(session: Session, batches: dict[str, int], files: int) -> Iterator[rank_memory.RankMemory]:
    """Yield for each verb what this rank has in memory while it runs, `files` bytes of files among it."""
    null = session.options.null
    always = rank_memory.RankMemory() if null else replace(_background_memory(session), files=files)
    for verb, _ in flatten_verbs(session.workload.verbs):
        own = rank_memory.RankMemory()
        if isinstance(verb, Loop):
            own = _loop_needs(session, verb, batches)
        elif not null and isinstance(verb, Stage):
            own = rank_memory.RankMemory(COPY_CALL)
        elif not null and isinstance(verb, Prepare):
            own = _prepare_needs(session, verb)
        elif not null and isinstance(verb, Save):
            own = rank_memory.RankMemory(saving=_blocking_buffers(session, verb.checkpoint))
        elif not null and isinstance(verb, Restore):
            from dliosim.execute.checkpoints.restore import restore_buffer_bytes  # most workloads restore nothing

            own = rank_memory.RankMemory(
                restore_buffer_bytes(session.world, session.workload.checkpoint(verb.checkpoint), verb)
            )
        yield always + own


def _loop_needs(session: Session, loop: Loop, batches: dict[str, int]) -> rank_memory.RankMemory:
    workload, node = session.workload, session.world.node
    dataset, batch = workload.read_dataset(loop), batches[loop.name]
    steps = loop.arrivals.requests if loop.arrivals else steps_of_epoch(loop, dataset, session.world.size)
    need = rank_memory.loop_memory(loop, dataset, steps, batch)
    need = replace(need, buffers=rank_memory.rank_buffers(loop, batch, node.size, node.rank == 0))
    for evaluation in loop.evaluations:  # its buffers stay while those of the training loop are in use
        need += _loop_needs(session, evaluation.loop, batches)
    if session.options.null:
        return replace(need, cache=0)
    saved = {cadence.checkpoint for cadence in loop.checkpoints}
    return replace(need, saving=max((_blocking_buffers(session, name) for name in saved), default=0))


def _prepare_needs(session: Session, verb: Prepare) -> rank_memory.RankMemory:
    world, dataset = session.world, session.workload.dataset(verb.dataset)
    need = rank_memory.prepare_memory(bind(dataset), verb, world.rank)
    if isinstance(verb, Convert):
        need += rank_memory.convert_memory(session.workload.dataset(verb.source), dataset, world.rank)
    return need


def _background_memory(session: Session) -> rank_memory.RankMemory:
    """Return what saves in the background and drains of this rank have in memory at any time of the run."""
    staging = saving = 0
    for name in list_saved_checkpoints(session.workload.verbs):
        checkpoint, files = _checkpoint_files(session, name)
        if checkpoint.background is not None:
            staging += staging_bytes(files, session.world.rank, checkpoint.background)
            saving += write_buffer_bytes(files, session.world.rank)
        if checkpoint.drain is not None and files.file_names(session.world.rank):
            saving += drain_buffer_bytes(checkpoint)
    return rank_memory.RankMemory(staging=staging, saving=saving)


def _blocking_buffers(session: Session, name: str) -> int:
    """Return the bytes of this rank's buffers of a save that holds the ranks."""
    checkpoint, files = _checkpoint_files(session, name)
    return write_buffer_bytes(files, session.world.rank) if checkpoint.background is None else 0


def _checkpoint_files(session: Session, name: str) -> tuple[Checkpoint, StateFiles]:
    checkpoint = session.workload.checkpoint(name)
    return checkpoint, state_files(checkpoint, checkpoint.split(session.world.size))
