"""One loop alone, over and over: what a comparison of its variants needs of a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dliosim.errors import ExecutionError
from dliosim.execute.loops import run_loop
from dliosim.execute.preparing import prepare
from dliosim.execute.residency import drop_caches, warm_caches
from dliosim.execute.saves import Saves
from dliosim.execute.session import Phase, Session
from dliosim.execute.verbs import verb_phase
from dliosim.model import Loop, Prepare, Repeat, Verb


def prepare_data(session: Session, prepared: set[str]) -> Iterator[Phase]:
    """Prepare the data sets that the workload prepares, but those whose digests are in `prepared`; adds theirs.

    Collective. Raises ExecutionError on every rank.
    """
    for verb in _prepares(session.workload.verbs):
        dataset = session.workload.dataset(verb.dataset)
        if dataset.digest() in prepared:
            continue
        prepared.add(dataset.digest())
        session.world.barrier()
        record, notes = prepare(session, verb, dataset)
        yield verb_phase(session, dataset.name, "prepare", record, verb.access, notes)


def run_pass(session: Session, loop: Loop, cold: bool) -> Phase:
    """A whole pass of a loop, with everything inside it, from caches that are cold or warm; its own phase.

    The same samples, draws and saves each time. Collective. Raises DliosimError on every rank.
    """
    if cold:
        drop_caches(session)
    else:
        warm_caches(session, session.workload.dataset(loop.dataset))
    session.world.barrier()
    saved = [session.workload.checkpoint(cadence.checkpoint) for cadence in loop.checkpoints]
    with Saves(session, saved) as saves:
        phases = [each for each in run_loop(session, saves, loop, 0, timed=False) if isinstance(each, Phase)]
    if not phases:
        raise ExecutionError(f"`{loop.name}` gave no figures")
    return phases[0]


def _prepares(verbs: Sequence[Verb]) -> Iterator[Prepare]:
    for verb in verbs:
        if isinstance(verb, Prepare):
            yield verb
        elif isinstance(verb, Repeat):
            yield from _prepares(verb.body)
