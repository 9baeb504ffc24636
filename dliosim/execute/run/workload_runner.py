"""Run a workload: its verbs from top to bottom; each becomes a phase of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from time import perf_counter_ns

import numpy as np

from dliosim.execute.backends.registry import require_backends
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession, make_save_phase
from dliosim.execute.checkpoints.save_steps import CheckpointSave as Saved
from dliosim.execute.datasets.open_dataset import open_known_datasets
from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.loop.convert import convert
from dliosim.execute.loop.loop_runner import run_loop
from dliosim.execute.node.compute import set_timer_slack, sleep_until
from dliosim.execute.phases.context import Phase, PhaseLog, Session, verb_phase
from dliosim.execute.run.memory_check import require_memory_at_once, verb_title
from dliosim.execute.run.page_cache_residency import drop_caches
from dliosim.execute.run.staging import NodeCopy, Staging
from dliosim.measure.rank.records import LoggedCheckpoint
from dliosim.measure.results.phase import LoopPhase, PhaseSummary, add_null_times
from dliosim.model import (
    Barrier,
    Convert,
    DropCaches,
    Loop,
    Pause,
    Prepare,
    Repeat,
    Restore,
    Save,
    Stage,
    Verb,
    Workload,
)
from dliosim.model.counter_rng import draw, key
from dliosim.model.verbs import list_saved_checkpoints
from dliosim.plan.checkpoints.layout import state_files
from dliosim.trace.recorder import pause_recording, recorder

#: Loops of a run, with their evaluations, that get a timeline: rank 0 keeps 26 MB for each at 512 ranks.
_TIMELINES = 8


def run_workload(session: Session) -> list[Phase]:
    """Run every verb; return the phases, with figures on rank 0 only. Collective. Raises DliosimError on every rank."""
    require_all([session])
    if not session.options.null:
        session.world.run_on_rank_0("lock the checkpoints", session.lock_checkpoints)
    return run_verbs(session, session.workload.verbs)


def require_all(sessions: Sequence[Session], at_once: bool = True) -> None:
    """Check, before anything is written, that the sessions can run: backends, indexes of files, room. Collective.

    There must be room for the data of all sessions (`at_once`), or for those of each session alone. Raises DliosimError
    on every rank.
    """
    world, null = sessions[0].world, sessions[0].options.null
    set_timer_slack()
    if not null:
        world.run_on_all(lambda: require_backends([session.workload for session in sessions]))
    open_known_datasets(sessions)
    for together in [] if null else [sessions] if at_once else [[session] for session in sessions]:
        world.run_on_rank_0("look for room", partial(_require_room, together))
    for session in sessions:
        require_memory_at_once(session)


def _require_room(sessions: Sequence[Session]) -> None:
    from dliosim.execute.run.capacity_check import require_room  # for rank 0 alone

    require_room(sessions)


def run_with_null(session: Session) -> list[Phase]:
    """Run the workload as `run_workload`, then every loop once more without I/O, and add its slowdown to each loop."""
    phases = run_workload(session)
    null = replace(session, options=replace(session.options, null=True), modelled=None, log=None, finished=PhaseLog())
    # In a trace they would be epochs of the same loops, in which nothing is read.
    with pause_recording():
        loops = run_verbs(null, tuple(verb for verb in _unroll(session.workload.verbs) if isinstance(verb, Loop)))
    without = iter([phase.summary for phase in loops if isinstance(phase.summary, LoopPhase)])
    return [
        replace(phase, summary=add_null_times(phase.summary, next(without)))
        if isinstance(phase.summary, LoopPhase)
        else phase
        for phase in phases
    ]


def run_verbs(session: Session, verbs: tuple[Verb, ...], timelines: int = _TIMELINES) -> list[Phase]:
    """Run verbs and return all phases of the session, in the order of the verbs. Collective.

    The first `timelines` loops leave a timeline.
    The phase of a save is made when the save is over on all ranks. This is checked after each verb, not at the end, so
    that records of many saves, 66 kB each, are not kept.
    """
    if session.modelled is not None:
        from dliosim.execute.checkpoints.modelled_state import require_modelled_states  # most runs need none of it
        from dliosim.plan.predict.prediction import refuse_copies

        refuse_copies(session.workload)
        require_modelled_states(session.workload, verbs, session.modelled.model)
    phases = session.finished.phases
    open_saves: dict[int, Saved] = {}
    copies: dict[int, NodeCopy] = {}

    def close_saves(count: int) -> None:
        for place in list(open_saves)[:count]:
            phases[place] = make_save_phase(session, open_saves.pop(place))

    checkpoints = map(session.workload.checkpoint, list_saved_checkpoints(verbs))
    with CheckpointSession(session, checkpoints) as saves, Staging(session) as staging:
        for each in _run_verbs(session, saves, staging, verbs, timelines):
            if isinstance(each, Saved):
                open_saves[len(phases)] = each
            if isinstance(each, NodeCopy):
                copies[len(phases)] = each
            phases.append(each if isinstance(each, Phase) else None)
            if open_saves:
                close_saves(saves.count_complete(open_saves.values()))
        saves.finish()
        close_saves(len(open_saves))
        staging.finish()
        for place, copy in copies.items():
            phases[place] = copy.make_phase()
    return [phase for phase in phases if phase is not None]


def _unroll(verbs: Sequence[Verb]) -> Iterator[Verb]:
    """Yield the verbs in the order and as often as they run."""
    for verb in verbs:
        if isinstance(verb, Repeat):
            for _ in range(verb.count):
                yield from _unroll(verb.body)
        else:
            yield verb


def _run_verbs(
    session: Session, saves: CheckpointSession, staging: Staging, verbs: Sequence[Verb], timelines: int
) -> Iterator[Phase | Saved | NodeCopy]:
    # The numbers of loops and pauses make the random draws and hashes of each different.
    loops, pauses = count(), count()
    for verb in _unroll(verbs):
        trace, begun = recorder(), perf_counter_ns()
        if isinstance(verb, (DropCaches, Prepare)):
            staging.finish()
        if isinstance(verb, Loop):
            ordinal = next(loops)
            saves.settle(mpi=verb.access.is_mpi)
            yield from run_loop(session, saves, verb, ordinal, timed=ordinal < timelines)
        elif isinstance(verb, Stage):
            session.world.barrier()
            yield staging.stage(verb)
        elif isinstance(verb, Restore) and verb.each:
            yield from _restore_each(session, saves, verb, pauses)
        else:
            yield _run_verb(session, saves, verb, pauses)
        if trace is not None:
            kind = "save" if isinstance(verb, Save) else "restore" if isinstance(verb, Restore) else "phase"
            trace.add_span(kind, verb_title(verb), begun, perf_counter_ns())
        session.finished.end_verb()


def _restore_each(
    session: Session, saves: CheckpointSession, verb: Restore, pauses: Iterator[int]
) -> Iterator[Phase | Saved]:
    from dliosim.execute.checkpoints.restore import list_each  # most workloads restore nothing

    _wait_for_saves(saves, session.workload, verb)
    for number in list_each(session, session.workload.checkpoint(verb.checkpoint), verb):
        if verb.pause is not None:
            yield _run_verb(session, saves, Pause(verb.pause), pauses)
        yield _run_verb(session, saves, verb, pauses, number)


def _run_verb(
    session: Session, saves: CheckpointSession, verb: Verb, pauses: Iterator[int], number: int | None = None
) -> Phase | Saved:
    """Run a verb; a restore reads the checkpoint of this number, or the newest."""
    world, workload = session.world, session.workload
    if isinstance(verb, Restore):
        from dliosim.execute.checkpoints.restore import restore  # before the clock runs
    _wait_for_saves(saves, workload, verb)
    world.barrier()
    begun = perf_counter_ns()
    if isinstance(verb, Prepare):
        dataset = workload.dataset(verb.dataset)
        is_read = isinstance(verb, Convert)
        record, notes = convert(session, verb) if isinstance(verb, Convert) else prepare(session, verb, dataset)
        record.root = session.place_name(dataset.root, session.files(dataset).path(0))
        return verb_phase(session, dataset.name, "convert" if is_read else "prepare", record, verb.access, notes)
    if isinstance(verb, Save):
        return saves.save(workload.checkpoint(verb.checkpoint))
    if isinstance(verb, Restore):
        checkpoint = workload.checkpoint(verb.checkpoint)
        drained = saves.count_drained_bytes()
        record, notes = restore(session, checkpoint, verb, number)
        if saves.count_drained_bytes() > drained:
            # The kernel's counts include what was read at the same time to drain saves.
            record.rchar = record.read_bytes = -1
        if session.log is not None and not session.reads_nothing:
            held = world.allreduce_number(record.wall_ns, "max")
            whole = state_files(checkpoint, verb.written_by or checkpoint.split(world.size)).total()
            session.log.checkpoints.append(LoggedCheckpoint("restore", begun, begun + held, whole))
        access, how = checkpoint.access, verb.option_text
        return verb_phase(session, checkpoint.name, "restore", record, access, notes, how=how)
    if isinstance(verb, DropCaches):
        record, notes = drop_caches(session)
        return verb_phase(session, "", "drop caches", record, None, notes)
    if isinstance(verb, Pause):
        pause = draw(verb.time, key(workload.seed, "pause"), np.array([next(pauses)]))
        sleep_until(begun + round(max(float(pause[0]), 0.0) * 1e9), not world.polite)
        return Phase(PhaseSummary("", "pause", (perf_counter_ns() - begun) * 1e-9))
    if isinstance(verb, Barrier):
        world.barrier()
        return Phase(PhaseSummary("", "barrier", (perf_counter_ns() - begun) * 1e-9))
    raise TypeError(f"no such verb: {verb!r}")


def _wait_for_saves(saves: CheckpointSession, workload: Workload, verb: Verb) -> None:
    """Wait for saves in flight that a verb needs, or must not overlap. Collective."""
    if isinstance(verb, DropCaches):
        saves.finish()
    elif isinstance(verb, Restore):
        saves.settle([verb.checkpoint], workload.checkpoint(verb.checkpoint).access.is_mpi)
    elif isinstance(verb, Prepare):
        saves.settle(mpi=verb.access.is_mpi)
