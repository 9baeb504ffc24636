"""The steps of one epoch of one rank: wait for data, compute, sync, save."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns

from dliosim.errors import DliosimError
from dliosim.execute.loop.epoch_plan import EpochSource
from dliosim.execute.loop.loop_saves import LoopSaves
from dliosim.execute.loop.step_sync import StepSync
from dliosim.execute.node.compute import keep_core_busy, sleep_until
from dliosim.execute.phases.context import Progress
from dliosim.measure.rank.step_times import ROW, PlannedSteps, StepAccount


@dataclass(frozen=True, slots=True)
class StepSettings:
    """Settings of the steps of an epoch."""

    #: the sync of the loop
    syncer: StepSync
    #: compute keeps the core busy; otherwise it sleeps
    busy: bool
    #: a wait may spin for its last microseconds: there is a core for each rank
    may_spin: bool
    #: read calls are collected after this many steps: each time costs microseconds, once an epoch much memory
    collect_every: int


def run_steps(
    plan: PlannedSteps,
    settings: StepSettings,
    source: EpochSource,
    saves: LoopSaves,
    account: StepAccount,
    progress: Progress,
) -> bool:
    """Run the steps of an epoch; return whether the loop's time is up. Collective.

    If a rank fails, every rank raises its DliosimError at the next sync; where no sync follows, the job ends (see
    `StepSync.fail_all_ranks`).
    """
    # All that a step uses is a local name or an int: looking up attributes, or numpy for one number, would add to the
    # tool's own time in each step. No time is worked out here: readings of the clock are stored for `account`.
    clock, wait, check, tick, store = perf_counter_ns, source.wait, source.check, progress.tick, ROW.pack_into
    arrival, done_bytes, every = plan.arrival, plan.done_bytes, plan.every
    syncer, collect_every, may_spin = settings.syncer, settings.collect_every, settings.may_spin
    timed, deadline, save_steps = saves.timed, saves.deadline, saves.steps
    rows, place, width, full = account.rows, 0, ROW.size, len(account.rows)
    stop, step, started = False, -1, clock()
    account.start(started)
    try:
        # After the clock started: the reads that are ahead of the first step are part of the epoch.
        source.start()
        for step, nominal in enumerate(plan.compute):
            # A new clock reading: between the end of the last step and now were bookkeeping and the progress line,
            # which are the tool's own time.
            came = begun = clock()
            if arrival and (due := started + arrival[step]) > came:
                sleep_until(due, may_spin)
                begun = clock()
            wait(step)
            fetched = asked = computed = clock()
            called, decoded, processed = source.called, source.decoded, source.processed
            check(step)
            if nominal:
                asked = clock()
                if settings.busy:
                    keep_core_busy(nominal)
                else:
                    sleep_until(asked + nominal, may_spin)
                computed = clock()
            if every and (step + 1) % every == 0:
                arrived = clock()
                if timed:
                    saves.mark_due(arrived)
                # `stop` and what is due come from the sync, not from this rank's clock: all ranks must stop and save
                # after the same step, or some would wait forever in the next sync.
                stop = syncer.sync_step(arrived >= deadline)
                ended = after = clock()
            else:
                arrived = ended = after = clock()
                stop = not every and ended >= deadline
            content = 0
            if step in save_steps or (timed and syncer.due.any()):
                syncer.sync_before_save()
                ended = clock()  # waiting for the last rank is no time of storage
                held = saves.save_after_step(step)
                after, deadline = clock(), saves.deadline
                # A training program has its state in memory, so making the contents takes none of the loop's time.
                content = max(after - ended - held, 0)
            store(
                rows,
                place,
                came,
                begun,
                fetched,
                called,
                decoded,
                processed,
                asked,
                computed,
                arrived,
                ended,
                after,
                content,
            )
            place += width
            if place == full:
                account.work_out(full // width)
                place = 0
            if (step + 1) % collect_every == 0:
                # Readers take no lock: this thread collects their clock readings, between two steps.
                source.collect()
            tick(after, step + 1, done_bytes[step])
            if stop:
                break
    except DliosimError as error:
        syncer.fail_all_ranks(error, step, len(plan.compute), save_steps)
    account.work_out(place // width)
    return stop
