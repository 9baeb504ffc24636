"""Running a workload: its verbs from top to bottom, each of which becomes a phase of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter_ns

import numpy as np

from dliosim.execute.backends.registry import require_backends
from dliosim.execute.checkpoints.checkpoint_manager import Save as Saved
from dliosim.execute.checkpoints.checkpoint_manager import Saves, save_phase, saved_checkpoints
from dliosim.execute.checkpoints.restore import restore
from dliosim.execute.context import Finished, Phase, Session
from dliosim.execute.datasets.offset_tables import share_totals
from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.loop.training_loop import run_loop
from dliosim.execute.node.compute import sleep_until, wake_on_time
from dliosim.execute.phase_summary import verb_phase
from dliosim.execute.run.capacity_check import require_room
from dliosim.execute.run.page_cache_residency import drop_caches
from dliosim.measure.phase import PhaseSummary, with_null
from dliosim.model import Barrier, DropCaches, Loop, Pause, Prepare, Repeat, Restore, Save, Verb, Workload
from dliosim.model.counter_rng import draw, key

#: So many loops of a run, each with its evaluations, leave a timeline: rank 0 keeps 26 MB of each at 512 ranks.
_TIMELINES = 8


@dataclass(slots=True)
class _Counters:
    """How many loops and pauses a run has met: what random draws and hashes are told apart by."""

    loops: Iterator[int] = field(default_factory=count)
    pauses: Iterator[int] = field(default_factory=count)


def run_workload(session: Session) -> list[Phase]:
    """Run every verb; the phases, with figures on rank 0 only. Collective. Raises DliosimError on every rank."""
    wake_on_time()
    if not session.options.null:
        session.world.together(lambda: require_backends([session.workload]))
    share_totals([session])
    if not session.options.null:
        session.world.on_rank_0("look for room", lambda: require_room([session]))
        session.world.on_rank_0("lock the checkpoints", session.lock_checkpoints)
    with Saves(session, saved_checkpoints(session.workload)) as saves:
        return _gathered(session, saves, session.workload.verbs)


def run_with_null(session: Session) -> list[Phase]:
    """As `run_workload`, then every loop once more without I/O, which gives each its slowdown."""
    phases = run_workload(session)
    null = replace(session, options=replace(session.options, null=True), finished=Finished())
    kinds = ("train", "evaluate", "infer")
    with Saves(null, ()) as saves:
        loops = _gathered(null, saves, tuple(_loops(session.workload.verbs)))
    without = iter([phase.summary for phase in loops if phase.summary.kind in kinds])
    return [
        replace(phase, summary=with_null(phase.summary, next(without))) if phase.summary.kind in kinds else phase
        for phase in phases
    ]


def _gathered(session: Session, saves: Saves, verbs: Sequence[Verb]) -> list[Phase]:
    """Run verbs; their phases, in the order of the verbs. Those of saves are made when these are over, on all ranks.

    That is when a verb ends, not later, so that records of many saves, of 66 kB each, are not kept.
    """
    phases = session.finished.phases
    open_saves: dict[int, Saved] = {}

    def close(count: int) -> None:
        for place in list(open_saves)[:count]:
            phases[place] = save_phase(session, open_saves.pop(place))

    for each in _run(session, saves, verbs, _Counters()):
        if isinstance(each, Saved):
            open_saves[len(phases)] = each
        phases.append(None if isinstance(each, Saved) else each)
        if open_saves:
            close(saves.count_over(open_saves.values()))
    saves.finish()
    close(len(open_saves))
    return [phase for phase in phases if phase is not None]


def _loops(verbs: Sequence[Verb]) -> Iterator[Verb]:
    """The loops alone, in the order and as often as they run."""
    for verb in verbs:
        if isinstance(verb, Loop):
            yield verb
        elif isinstance(verb, Repeat):
            for _ in range(verb.count):
                yield from _loops(verb.body)


def _run(session: Session, saves: Saves, verbs: Sequence[Verb], counters: _Counters) -> Iterator[Phase | Saved]:
    for verb in verbs:
        if isinstance(verb, Repeat):
            for _ in range(verb.count):
                yield from _run(session, saves, verb.body, counters)
        elif isinstance(verb, Loop):
            ordinal = next(counters.loops)
            if verb.access.is_mpi:
                saves.settle_mpi()
            yield from run_loop(session, saves, verb, ordinal, timed=ordinal < _TIMELINES)
            session.finished.verb_over()
        else:
            yield _perform(session, saves, verb, counters)
            session.finished.verb_over()


def _perform(session: Session, saves: Saves, verb: Verb, counters: _Counters) -> Phase | Saved:
    world, workload = session.world, session.workload
    _settle(saves, workload, verb)
    world.barrier()
    begun = perf_counter_ns()
    if isinstance(verb, Prepare):
        dataset = workload.dataset(verb.dataset)
        record, notes = prepare(session, verb, dataset)
        record.root = dataset.root
        return verb_phase(session, dataset.name, "prepare", record, verb.access, notes)
    if isinstance(verb, Save):
        return saves.save(workload.checkpoint(verb.checkpoint))
    if isinstance(verb, Restore):
        checkpoint = workload.checkpoint(verb.checkpoint)
        drained = saves.drained_bytes()
        record, notes = restore(session, checkpoint, verb)
        if saves.drained_bytes() > drained:
            # The kernel's counts have what was read meanwhile to drain saves, too.
            record.rchar = record.read_bytes = -1
        phase = verb_phase(session, checkpoint.name, "restore", record, checkpoint.access, notes)
        return replace(phase, summary=replace(phase.summary, how=verb.how))
    if isinstance(verb, DropCaches):
        record, notes = drop_caches(session)
        return verb_phase(session, "", "drop caches", record, None, notes)
    if isinstance(verb, Pause):
        pause = draw(verb.time, key(workload.seed, "pause"), np.array([next(counters.pauses)]))
        sleep_until(begun + round(max(float(pause[0]), 0.0) * 1e9), not world.polite)
        return Phase(PhaseSummary("", "pause", (perf_counter_ns() - begun) * 1e-9))
    if isinstance(verb, Barrier):
        world.barrier()
        return Phase(PhaseSummary("", "barrier", (perf_counter_ns() - begun) * 1e-9))
    raise TypeError(f"no such verb: {verb!r}")


def _settle(saves: Saves, workload: Workload, verb: Verb) -> None:
    """Wait for saves in flight that a verb needs, or may not meet. Collective."""
    if isinstance(verb, DropCaches):
        saves.finish()
    elif isinstance(verb, Restore):
        saves.settle([verb.checkpoint])
        if workload.checkpoint(verb.checkpoint).access.is_mpi:
            saves.settle_mpi()
    elif isinstance(verb, Prepare) and verb.access.is_mpi:
        saves.settle_mpi()
