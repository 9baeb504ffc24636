"""Train, evaluate and infer: epochs of steps over a data set, with checkpoints and evaluations between them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.checkpoints.save_steps import CheckpointSave
from dliosim.execute.loop.loop_runner import LoopRunner
from dliosim.execute.phases.context import Phase, Session
from dliosim.model import Loop


def run_loop(
    session: Session, saves: CheckpointSession, loop: Loop, ordinal: int, timed: bool
) -> Iterator[Phase | CheckpointSave]:
    """Run a loop with its evaluations; yield their phases, then each save, complete but perhaps not drained.

    Collective. `ordinal` distinguishes this loop from the others of the run in hashes and random draws. With `timed`
    the loop leaves a timeline, which rank 0 gathers from all ranks: 26 MB from 512 ranks.
    """
    outer = LoopRunner(session, saves, loop, ordinal, timed)
    inner = [
        # No outer loop has the salt of an evaluation: theirs are below 2^32.
        (evaluation.every, LoopRunner(session, saves, evaluation.loop, (number + 1 << 32) + ordinal, timed))
        for number, evaluation in enumerate(loop.evaluations)
    ]
    everyone = [outer, *(other for _, other in inner)]
    evaluations = [other.make_view(None if loop.seconds else loop.epochs // every) for every, other in inner]
    session.finished.begin_loops((outer.make_view(1), *evaluations))
    failed = True
    gc.collect()
    gc.disable()
    try:
        for epoch, stop in outer.run_epochs():
            for every, other in inner:
                if (epoch + 1) % every == 0:
                    for _ in other.run_epochs():
                        pass
            if stop:
                break
        outer.saves.save_at_end()
        failed = False
    finally:
        gc.enable()
        session.progress.end()
        for each in everyone:
            each.close(failed)
    for each in everyone:
        yield each.make_phase()
    yield from outer.saves.begun
