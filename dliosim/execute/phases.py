"""Running a workload: its verbs from top to bottom, each of which becomes a phase of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter_ns

import numpy as np

from dliosim.execute.backends import require_backends
from dliosim.execute.checkpointing import save
from dliosim.execute.compute import sleep_until, wake_on_time
from dliosim.execute.loops import run_loop
from dliosim.execute.preparing import prepare
from dliosim.execute.residency import drop_caches
from dliosim.execute.restoring import restore
from dliosim.execute.room import require_room
from dliosim.execute.session import Phase, Session
from dliosim.execute.totals import share_totals
from dliosim.execute.verbs import verb_phase
from dliosim.measure.figures import PhaseSummary, with_null
from dliosim.model import Barrier, DropCaches, Loop, Pause, Prepare, Repeat, Restore, Save, Verb
from dliosim.plan.streams import draw, key

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
    return list(_run(session, session.workload.verbs, _Counters()))


def run_with_null(session: Session) -> list[Phase]:
    """As `run_workload`, then every loop once more without I/O, which gives each its slowdown."""
    phases = run_workload(session)
    null = replace(session, options=replace(session.options, null=True))
    kinds = ("train", "evaluate", "infer")
    loops = _run(null, tuple(_loops(session.workload.verbs)), _Counters())
    without = iter([phase.summary for phase in loops if phase.summary.kind in kinds])
    return [
        replace(phase, summary=with_null(phase.summary, next(without))) if phase.summary.kind in kinds else phase
        for phase in phases
    ]


def _loops(verbs: Sequence[Verb]) -> Iterator[Verb]:
    """The loops alone, in the order and as often as they run."""
    for verb in verbs:
        if isinstance(verb, Loop):
            yield verb
        elif isinstance(verb, Repeat):
            for _ in range(verb.count):
                yield from _loops(verb.body)


def _run(session: Session, verbs: Sequence[Verb], counters: _Counters) -> Iterator[Phase]:
    for verb in verbs:
        if isinstance(verb, Repeat):
            for _ in range(verb.count):
                yield from _run(session, verb.body, counters)
        elif isinstance(verb, Loop):
            ordinal = next(counters.loops)
            yield from run_loop(session, verb, ordinal, timed=ordinal < _TIMELINES)
        else:
            yield _perform(session, verb, counters)


def _perform(session: Session, verb: Verb, counters: _Counters) -> Phase:
    world, workload = session.world, session.workload
    world.barrier()
    begun = perf_counter_ns()
    if isinstance(verb, Prepare):
        dataset = workload.dataset(verb.dataset)
        record, notes = prepare(session, verb, dataset)
        return verb_phase(session, dataset.name, "prepare", record, verb.access, notes)
    if isinstance(verb, Save):
        checkpoint = workload.checkpoint(verb.checkpoint)
        return verb_phase(session, checkpoint.name, "save", save(session, checkpoint), checkpoint.access)
    if isinstance(verb, Restore):
        checkpoint = workload.checkpoint(verb.checkpoint)
        record, notes = restore(session, checkpoint, verb)
        return verb_phase(session, checkpoint.name, "restore", record, checkpoint.access, notes)
    if isinstance(verb, DropCaches):
        return verb_phase(session, "", "drop caches", drop_caches(session), None)
    if isinstance(verb, Pause):
        pause = draw(verb.time, key(workload.seed, "pause"), np.array([next(counters.pauses)]))
        sleep_until(begun + round(max(float(pause[0]), 0.0) * 1e9), not world.polite)
        return Phase(PhaseSummary("", "pause", (perf_counter_ns() - begun) * 1e-9))
    if isinstance(verb, Barrier):
        world.barrier()
        return Phase(PhaseSummary("", "barrier", (perf_counter_ns() - begun) * 1e-9))
    raise TypeError(f"no such verb: {verb!r}")
