"""Answers about storage, on literal figures."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.measure.answers.advice import command_line
from dliosim.measure.answers.answer import answer_run
from dliosim.measure.answers.sources import epoch_source
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import FileSystem
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Advice, Answer, Reason, RunSummary
from dliosim.report.answer_sentences import plain_content, sentence
from dliosim.report.phase_titles import group_phases
from dliosim.report.reader.typed_json import read_object
from tests.report import sample

GB = 10**9


def epoch(alone: float | None, device: float | None, **changed: Any) -> EpochSummary:
    """An epoch that reads 16 GB, of these so much from the device; 15 GB of it in steps of 10 s without waits."""
    known = {
        "bytes": 16 * GB,
        "bytes_moved": 16 * GB,
        "steady_bytes": 15 * GB,
        "amplification": 1.0,
        "storage_amplification": device,
        "storage_utilization": alone,
        "storage_utilization_error": 0.0,
        "utilization": None if alone is None else alone * 0.9,
        "storage_step_seconds": 10.0 if alone is None else 10.0 / alone,
        "core_wait_seconds": sample.spread(0.0),
    }
    return sample.epoch(**(known | changed))


def answer(
    *epochs: EpochSummary, kind: str = "ext4", goal: float = 0.9, accepted: bool = True, **changed: Any
) -> Answer:
    """Answer for a loop of these epochs on a file system of a kind; results.json gives back what it says."""
    (train, *_) = sample.run().loops
    loop = replace(train, **({"epochs": epochs, "prefetch": 0} | changed))
    run, goals = on(kind, loop), {"train": goal}
    made, *_ = answer_run(run, group_phases([loop]), goals, lambda override: () if accepted else None)
    kept = read_object(Answer, json.loads(json.dumps(plain_content(made))))
    assert list(map(sentence, kept.reasons)) == list(map(sentence, made.reasons))
    assert list(map(sentence, kept.advice)) == list(map(sentence, made.advice))
    return made


def kinds(reasons: Sequence[Reason]) -> list[str]:
    return [one.kind for one in reasons]


def on(kind: str, *loops: Any) -> RunSummary:
    """A run of these loops with its data on a file system of a kind."""
    run = sample.run()
    places = (FileSystem("data", "/scratch", kind),)
    arguments = ("run", "a b.dlio", "--output", "out")
    return replace(run, environment=replace(run.environment, file_systems=places), phases=loops, arguments=arguments)


@pytest.mark.parametrize(
    ("device", "source"),
    [(1.0, "device"), (0.99, "device"), (0.98, "mixed"), (0.01, "mixed"), (0.009, "memory"), (None, "unknown")],
)
def test_an_epoch_is_storages_if_the_device_gave_its_bytes(device: float | None, source: str) -> None:
    assert epoch_source(epoch(0.5, device), began_cold=True) == source


def test_parts_of_pages_that_nobody_asked_for_do_not_stand_for_bytes_out_of_memory() -> None:
    # 3200 samples of 5 kB, each in two pages: 60 % of them from the device are as many bytes as all samples have.
    small = epoch(0.95, 0.6 * 8192 / 5000 + 0.01, samples=3200, bytes=16_000_000, bytes_moved=16_000_000)
    assert epoch_source(small) == "mixed"
    assert epoch_source(small, began_cold=True) == "device"
    assert answer(small, resident_share=0.4).verdict == "not a storage result"
    assert answer(small, resident_share=0.0).verdict == "feeds"
    assert answer(small, small, resident_share=0.0).epochs == (1,)
    assert answer(small, small, resident_share=0.0, cold_each_epoch=True).epochs == (1, 2)


def test_where_nothing_can_come_from_a_device_the_counter_does_not_matter() -> None:
    assert epoch_source(epoch(0.5, 1.0), in_memory=True) == "memory"
    assert epoch_source(epoch(0.5, 1.0, null=True)) == "null"
    assert epoch_source(epoch(0.5, 0.0, bytes_moved=0)) == "memory"


@pytest.mark.parametrize(
    ("alone", "verdict"),
    [
        ((0.95, 0.94, 0.95), "feeds"),
        ((0.95, 0.9), "too close to say"),  # two epochs so different say little of their mean
        ((0.85, 0.95), "too close to say"),
        ((0.89, *[0.95, 0.96] * 4), "feeds"),  # one epoch below the goal does not decide
        ((0.85, 0.84, 0.85), "does not feed"),
        ((0.9,), "feeds"),
        ((0.89,), "does not feed"),
    ],
)
def test_the_verdict_is_that_of_the_interval_of_the_mean_over_epochs_that_count(
    alone: tuple[float, ...], verdict: str
) -> None:
    assert answer(*(epoch(one, 1.0) for one in alone)).verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(0.014, "does not feed"), (0.016, "too close to say")])
def test_of_an_only_epoch_the_steps_say_how_sure_its_figure_is(error: float, verdict: str) -> None:
    found = answer(epoch(0.87, 1.0, storage_utilization_error=error))
    assert found.verdict == verdict
    assert found.storage_utilization is not None and found.storage_utilization.low == pytest.approx(0.87 - 2 * error)


@pytest.mark.parametrize("alone", [0.95, 0.5])
@pytest.mark.parametrize(
    ("known", "verdict"), [({"storage_step_seconds": 0.49}, "cannot say"), ({"steps": 10}, "cannot say"), ({}, "")]
)
def test_a_short_epoch_decides_nothing(alone: float, known: dict[str, Any], verdict: str) -> None:
    found = answer(epoch(alone, 1.0, **known))
    assert found.verdict == (verdict or ("feeds" if alone > 0.9 else "does not feed"))


def test_what_lasts_long_enough_is_advised_after_a_short_epoch() -> None:
    short = epoch(0.5, 1.0, storage_step_seconds=0.25)  # 1.5 x 0.5 s takes three times as long

    def advise(*epochs: EpochSummary, samples: dict[str, int] = {}, accepted: bool = True) -> Advice:  # noqa: B006
        loop = replace(sample.run().loops[0], epochs=epochs, prefetch=0)
        accepts = {True: (), False: None}[accepted]
        return answer_run(on("ext4", loop), [[loop]], {}, lambda override: accepts, {"train": samples})[0].advice[0]

    assert advise(replace(short, bytes=30 * GB, bytes_moved=30 * GB, device_bytes=30 * GB)).command.endswith(
        " -D train.epochs=3"
    )
    half = replace(short, storage_step_seconds=0.125)
    assert advise(half, half).command.endswith(" -D train.epochs=6")
    assert advise(short, samples={"d.samples": 100}).command.endswith(" -D d.samples=300")  # epoch 2 would be memory's
    warm = epoch(0.99, 0.0)
    assert advise(short, warm, samples={"d.samples": 100}).command.endswith(" -D d.samples=300")
    assert advise(short, warm, samples={"d.samples": 100}).values == {"amount": 48 * GB}
    assert advise(short, warm).command.endswith(" -D train.cache=off")  # files that are there have no more samples
    assert advise(short, warm, samples={"d.samples": 9}, accepted=False).command == ""


def test_more_epochs_are_advised_where_they_would_count() -> None:
    close = epoch(0.89, 1.0, storage_utilization_error=0.1)
    assert answer(close, cache="off").advice[0].command.endswith("-D train.epochs=8")
    # Epochs take as long as this one did, at first and later on.
    slow = epoch(0.89, 1.0, storage_utilization_error=0.1, seconds=15.0)
    assert answer(slow, cache="off").advice[0].values == {"epochs": 8, "time": 120.0}
    assert answer(close, epoch(0.99, 0.0)).advice[0].command.endswith("-D train.cache=off")
    near = epoch(0.85, 1.0, storage_utilization_error=0.06)  # 0.12 to either side is 2.4 times 0.05
    assert answer(near, cache="off").advice[0].command.endswith("-D train.epochs=6")


def test_an_interval_that_ends_at_all_of_the_time_is_not_narrow() -> None:
    found = answer(epoch(1.0, 1.0), epoch(0.985, 1.0))
    assert found.verdict == "too close to say" and found.storage_utilization is not None
    assert (found.storage_utilization.low, found.storage_utilization.high) == (pytest.approx(0.897, abs=1e-3), 1.0)
    assert found.advice[0].command.endswith("-D train.epochs=4")
    assert answer(epoch(1.0, 1.0), epoch(0.9, 1.0)).advice[0].command.endswith("-D train.epochs=16")


def test_a_short_wait_for_a_core_next_to_a_wide_interval_asks_for_more_epochs() -> None:
    waiting = {"loop_seconds": 1.0, "core_wait_seconds": sample.spread(0.03), "storage_utilization_error": 0.03}
    found = answer(epoch(0.83, 1.0, **waiting), cache="off")
    assert kinds(found.reasons) == ["core_wait"] and found.reasons[0].values["may_hide"]
    assert found.advice[0].command.endswith("-D train.epochs=2")
    assert answer(epoch(0.88, 1.0, **(waiting | {"storage_utilization_error": 0.0}))).advice[0].command == ""


def test_an_only_epoch_without_an_error_says_so() -> None:
    assert kinds(answer(epoch(0.95, 1.0, storage_utilization_error=None)).reasons) == ["error_unknown"]
    several = [epoch(one, 1.0, storage_utilization_error=None) for one in (0.95, 0.951, 0.949)]
    assert answer(*several).reasons == ()


def test_a_goal_that_is_just_reached_needs_no_more_epochs() -> None:
    (advice,) = answer(epoch(0.899, 1.0, storage_utilization_error=0.004)).advice
    assert (advice.kind, advice.command) == ("goal_reached", "")


@given(
    goal=st.floats(0.1, 0.99),
    away=st.floats(-0.05, 0.05),
    scatter=st.floats(0.0, 0.1),
    random=st.randoms(use_true_random=False),
)
def test_more_epochs_come_to_an_end(goal: float, away: float, scatter: float, random: Random) -> None:
    many = 1
    for _ in range(20):
        drawn = [min(max(random.gauss(goal + away, scatter), 0.01), 1.0) for _ in range(many)]
        found = answer(*(epoch(one, 1.0, storage_utilization_error=0.01) for one in drawn), goal=goal)
        more = re.search(r"epochs=(\d+)$", found.advice[0].command if found.advice else "")
        if not more:
            return
        assert found.verdict == "too close to say" and int(more[1]) >= 2 * many
        many = min(int(more[1]), 3000)
    pytest.fail("no end")


def test_epochs_out_of_memory_do_not_count() -> None:
    found = answer(epoch(0.6, 1.0), epoch(0.99, 0.0), epoch(0.99, 0.5))
    assert (found.verdict, found.source, found.epochs) == ("does not feed", "device", (1,))
    assert found.storage_utilization is not None and found.storage_utilization.high == 0.6


def test_what_it_got_and_needs_agree_with_its_utilization() -> None:
    found = answer(epoch(0.6, 1.0), goal=0.8)
    assert found.got_bytes_per_second is not None and found.needs_bytes_per_second is not None
    assert found.got_bytes_per_second.mean == pytest.approx(0.6 * 1.5 * GB)
    assert found.needs_bytes_per_second.mean == pytest.approx(0.8 * 1.5 * GB)


def test_with_compute_but_no_step_to_count_nothing_is_said() -> None:
    (reason,) = answer(epoch(None, 1.0, steps=1)).reasons
    assert reason.kind == "single_step"
    assert answer(epoch(None, 1.0, steps=1)).verdict == "not a storage result"


def test_requests_have_a_rate_and_no_verdict() -> None:
    found = answer(epoch(None, 1.0))
    assert (found.verdict, found.source) == ("not asked", "device")
    assert found.got_bytes_per_second is not None and kinds(found.reasons) == ["requests"]


def test_waits_that_no_kernel_counts_are_no_figure() -> None:
    crowded = replace(sample.run().environment, cores_per_node=3)
    run = replace(on("ext4"), environment=replace(on("ext4").environment, cores_per_node=crowded.cores_per_node))
    (train, *_) = sample.run().loops
    loop = replace(train, epochs=(epoch(0.95, 1.0, core_wait_seconds=None),), prefetch=0)
    (found,) = answer_run(replace(run, phases=(loop,)), group_phases([loop]), {}, lambda override: ())
    assert (found.verdict, kinds(found.reasons)) == ("feeds", ["core_wait_uncounted"])


def test_a_server_may_have_had_the_bytes_whatever_the_kernel_counts() -> None:
    found = answer(epoch(0.95, None), kind="lustre", cache="off")
    assert found.verdict == "feeds" and "server" in kinds(found.reasons)


def test_mixed_epochs_may_show_that_storage_is_too_slow_but_never_that_it_feeds() -> None:
    assert answer(epoch(0.5, 0.5)).verdict == "does not feed"
    assert answer(epoch(0.95, 0.5)).verdict == "not a storage result"
    assert answer(epoch(0.95, 0.5), epoch(0.5, 0.5)).verdict == "not a storage result"


def test_memory_is_never_storage() -> None:
    assert kinds(answer(epoch(0.5, 0.0)).reasons) == ["page_cache"]
    found = answer(epoch(0.99, 0.0), kind="tmpfs")
    assert (found.verdict, found.source) == ("not a storage result", "memory")
    assert kinds(found.reasons) == ["memory_file_system"]


def test_without_compute_a_rate_is_given_and_no_verdict() -> None:
    found = answer(epoch(None, 1.0, compute_seconds=sample.spread(0.0)))
    assert (found.verdict, found.needs_bytes_per_second) == ("not asked", None)
    assert found.got_bytes_per_second is not None


@pytest.mark.parametrize(
    ("kind", "known", "verdict", "epochs", "reason"),
    [
        ("lustre", {"resident_share": 0.0}, "feeds", (1,), "uncounted_cold"),
        ("lustre", {"resident_share": 0.0, "cold_each_epoch": True}, "feeds", (1, 2), "uncounted_cold"),
        ("lustre", {"resident_share": None, "cold_each_epoch": True}, "not a storage result", (1, 2), "uncounted"),
        ("lustre", {"cache": "off"}, "feeds", (1, 2), "uncounted_direct"),
        ("gpfs", {"cache": "off"}, "feeds", (1, 2), "uncounted_direct"),
        ("lustre", {}, "not a storage result", (1, 2), "uncounted"),
        ("lustre", {"resident_share": 0.5}, "not a storage result", (1, 2), "uncounted"),
        # What the page cache has says nothing of a cache that the file system itself has in this node's memory.
        ("gpfs", {"resident_share": 0.0}, "not a storage result", (1, 2), "uncounted"),
        ("fuse.bindfs", {"resident_share": 0.0}, "not a storage result", (1, 2), "uncounted"),
        ("fuse.bindfs", {"cache": "off"}, "not a storage result", (1, 2), "uncounted"),
    ],
)
def test_where_the_kernel_does_not_count_only_what_cannot_be_memory_feeds(
    kind: str, known: dict[str, Any], verdict: str, epochs: tuple[int, ...], reason: str
) -> None:
    found = answer(epoch(0.95, None), epoch(0.95, None), kind=kind, **({"resident_share": None} | known))
    assert (found.source, found.verdict, found.epochs) == ("unknown", verdict, epochs)
    assert found.reasons[0].kind == reason and not found.reasons[0].values["drains"]
    if reason == "uncounted":
        assert found.reasons[0].values["amount"] == 16 * GB


def test_what_may_be_memory_shows_that_storage_is_too_slow() -> None:
    assert answer(epoch(0.5, None), kind="fuse", resident_share=None).verdict == "does not feed"


def test_data_that_are_a_hundred_times_as_large_as_memory_are_storages() -> None:
    known = {"bytes": 3000 * GB, "bytes_moved": 3000 * GB}
    found = answer(epoch(0.95, None, **known), kind="fuse", resident_share=None)
    assert (found.verdict, kinds(found.reasons)) == ("feeds", ["uncounted_beyond_memory"])


def test_bytes_of_a_server_may_be_out_of_its_memory() -> None:
    found = answer(epoch(0.95, 1.0), kind="nfs4")
    assert (found.verdict, kinds(found.reasons)) == ("feeds", ["server"])


@pytest.mark.parametrize(
    ("kind", "counted", "drains"),
    [
        ("ext4", False, True),
        ("lustre", False, False),
        ("lustre", True, True),
    ],
)
def test_where_a_drain_hides_what_was_read_the_reason_says_so(kind: str, counted: bool, drains: bool) -> None:
    (train, *_), (save, *_) = sample.run().loops, sample.run().saves
    loop = replace(train, epochs=(epoch(0.95, None),), prefetch=0)
    other = replace(train, name="other", epochs=(epoch(0.95, 1.0 if counted else None),))
    drained = replace(save, verb=replace(save.verb, drain_bytes=1))
    answers = answer_run(on(kind, loop, other, drained), [[loop]], {}, lambda override: ())
    assert answers[0].reasons[0].values["drains"] == drains


@pytest.mark.parametrize(
    ("kind", "behind"),
    [("fuse", True), ("fuse.bindfs", True), ("fuse.glusterfs", False), ("fuse.mfs", False), ("zfs", False)],
)
def test_only_what_may_show_another_file_system_is_advised_to_it(kind: str, behind: bool) -> None:
    found, *_ = answer(epoch(0.95, None), kind=kind, root="data").advice
    assert (found.kind, found.values) == ("exceed_memory", {"is_stacked": behind})


@pytest.mark.parametrize(
    ("free", "device", "verdict"),
    [(0.09, 1.66, "cannot say"), (0.09, 1.1, "does not feed"), (0.5, 1.66, "does not feed")],
)
def test_what_is_read_again_as_memory_is_short_is_not_called_storage(free: float, device: float, verdict: str) -> None:
    loop = replace(sample.run().loops[0], epochs=(epoch(0.5, device),), prefetch=0, free_memory=round(free * 24 * GB))
    run = on("ext4", loop)
    run = replace(run, environment=replace(run.environment, whole_memory_per_node=24 * GB))
    (found,) = answer_run(run, group_phases(run.loops), {}, lambda override: ())
    assert (found.verdict, kinds(found.reasons)) == (verdict, ["memory_short"] * (verdict == "cannot say"))
    if verdict == "cannot say":
        assert sentence(found.reasons[0]) == "memory is short: 2.2 GB of 24 GB free, 26.6 GB read for 16.0 GB asked"
        assert (found.advice[0].kind, found.advice[0].values) == ("more_memory", {"ranks": 2})


@pytest.mark.parametrize(("resident", "source"), [(0.0, "device"), (0.5, "mixed"), (None, "mixed")])
def test_an_evaluation_over_cold_data_is_the_devices_however_small_its_samples_are(
    resident: float | None, source: str
) -> None:
    small = epoch(0.95, 1.0, samples=160_000)  # of 100 kB, and a page more each is 4 %
    assert answer(small, kind="ext4", resident_share=resident).source == source
    (train, *_) = sample.run().loops
    loop = replace(train, kind="evaluate", epochs=(small,), prefetch=0, resident_share=resident)
    assert answer_run(on("ext4", loop), [[loop]], {}, lambda override: ())[0].source == source


def test_waits_for_cores_take_no_more_than_all_of_a_loop() -> None:
    crowded = epoch(0.5, 1.0, loop_seconds=1.0, core_wait_seconds=sample.spread(1.02))
    assert answer(crowded).reasons[0].values["share"] == 1.0


def test_steps_that_were_all_read_ahead_say_nothing() -> None:
    found = answer(epoch(0.99, 1.0), prefetch=31)
    assert found.verdict == "not a storage result"
    assert kinds(found.reasons) == ["all_prefetched"]


def test_waiting_for_a_core_may_be_what_is_missing() -> None:
    waiting = {"loop_seconds": 1.0, "core_wait_seconds": sample.spread(0.2)}
    assert answer(epoch(0.8, 1.0, **waiting)).verdict == "cannot say"
    most = {"loop_seconds": 1.0, "core_wait_seconds": sample.spread(0.5)}
    assert answer(epoch(0.05, 1.0, **most)).verdict == "cannot say"
    loaded = answer(epoch(0.5, 1.0, **waiting))
    (fed,) = answer(epoch(0.95, 1.0, **waiting)).reasons
    assert sentence(fed) == "ranks waited 20 % of the loop for a core"
    assert (loaded.verdict, loaded.reasons) == ("does not feed", (fed.extend(is_too_small=True),))


@pytest.mark.parametrize(("alone", "verdict"), [(0.8, "cannot say"), (0.5, "does not feed")])
def test_on_a_machine_that_was_busy_a_quiet_one_is_advised_first(alone: float, verdict: str) -> None:
    waiting = epoch(alone, 1.0, loop_seconds=1.0, core_wait_seconds=sample.spread(0.2))
    run = on("ext4", replace(sample.run().loops[0], epochs=(waiting,), prefetch=0))
    environment = replace(run.environment, cores_per_node=2, load_average=9.25)
    (found,) = answer_run(replace(run, environment=environment), group_phases(run.loops), {}, lambda override: ())
    assert found.verdict == verdict and found.reasons[0].values["load"] == 9.25
    assert found.advice == (Advice("wait_for_quiet"),)


def advise(ranks: int, cores: int, readers: int, alone: float, waited: float) -> Advice:
    """Return the first advice for a run of one node whose ranks waited for cores for a share of the loop."""
    (train, *_) = sample.run().loops
    waiting = epoch(alone, 1.0, loop_seconds=1.0, core_wait_seconds=sample.spread(waited))
    run = on("ext4", replace(train, epochs=(waiting,), prefetch=0, readers=readers))
    environment = replace(run.environment, cores_per_node=cores, ranks_per_node=ranks)
    run = replace(run, environment=environment, ranks=ranks, nodes=1)
    return answer_run(run, group_phases(run.loops), {}, lambda override: ())[0].advice[0]


#: Storage-limited utilization: waits for cores may be what is missing of the goal, or more is missing.
CLOSE, FAR = 0.8, 0.5


@pytest.mark.parametrize(
    ("cores", "readers", "command"),
    [
        (8, 4, "mpiexec -n 4 dliosim run 'a b.dlio' -D train.readers=1"),
        (2, 4, "dliosim run 'a b.dlio' -D train.readers=1"),
        (2, 0, "mpiexec -n 2 dliosim run 'a b.dlio'"),
        (2, 1, "dliosim run 'a b.dlio'"),
        (16, 1, ""),
    ],
)
def test_ranks_that_waited_for_cores_get_a_command_line_that_leaves_each_its_own(
    cores: int, readers: int, command: str
) -> None:
    assert advise(4, cores, readers, CLOSE, 0.2).command == command
    if readers == 4:
        assert advise(4, cores, readers, CLOSE, 0.2).values["ranks_per_node"] == 1


def test_where_the_goal_is_within_the_spread_more_epochs_that_count_are_advised() -> None:
    waits = {"loop_seconds": 1.0, "core_wait_seconds": sample.spread(0.2)}
    unsure = epoch(0.88, 1.0, storage_utilization_error=0.02, **waits)
    assert answer(unsure, epoch(0.99, 0.0)).advice[0].command.endswith(" -D train.cache=off")
    (refused,) = answer(unsure, epoch(0.99, 0.0), accepted=False).advice
    assert (refused.kind, refused.command) == ("more_counted_epochs", "")
    assert answer(unsure, cache="off").advice[0].command.endswith(" -D train.epochs=4")


def test_steps_that_were_all_read_ahead_are_advised_against_wherever_their_bytes_came_from() -> None:
    assert answer(epoch(0.99, 0.5), prefetch=31).advice[0].kind == "prefetch_less"


def test_processes_are_advised_where_readers_are_processes() -> None:
    loop = LoopPhase("train", "train", 1.0, readers=2, reader_processes=True)
    assert [loop.write_readers(number) for number in (0, 1, 4)] == ["0", "1 processes", "4 processes"]
    assert replace(loop, reader_processes=False).write_readers(4) == "4"


@pytest.mark.parametrize(
    ("ranks", "cores", "readers", "waited", "expected"),
    [
        (1, 2, 0, 0.0, "dliosim run 'a b.dlio' -D train.readers=4"),
        (1, 2, 4, 0.2, "faster_storage_or_cores"),
        (1, 2, 16, 0.0, "faster_storage"),
        (2, 8, 1, 0.2, "mpiexec -n 2 dliosim run 'a b.dlio' -D train.readers=2"),
        (4, 2, 0, 0.2, "mpiexec -n 4 dliosim run 'a b.dlio' -D train.readers=1"),
        (4, 2, 4, 0.2, "dliosim run 'a b.dlio' -D train.readers=1"),
        (4, 2, 4, 0.0, "mpiexec -n 2 dliosim run 'a b.dlio'"),
    ],
)
def test_storage_that_does_not_feed_is_asked_for_more_where_cores_allow_it(
    ranks: int, cores: int, readers: int, waited: float, expected: str
) -> None:
    advice = advise(ranks, cores, readers, FAR, waited)
    assert (advice.command or advice.kind) == expected


@given(
    ranks=st.integers(1, 9),
    cores=st.integers(1, 64),
    readers=st.integers(0, 16),
    outcomes=st.lists(st.tuples(st.sampled_from([CLOSE, FAR]), st.sampled_from([0.0, 0.2])), min_size=24, max_size=24),
)
def test_following_the_advice_does_not_go_in_a_circle(
    ranks: int, cores: int, readers: int, outcomes: list[tuple[float, float]]
) -> None:
    seen = set()
    for alone, waited in outcomes:
        if (alone, waited) == (CLOSE, 0.0):  # more is missing than waits for cores
            alone = FAR
        command = advise(ranks, cores, readers, alone, waited).command
        number, more = re.search(r"-n (\d+)", command), re.search(r"readers=(\d+)", command)
        after = (int(number[1]) if number else 1, int(more[1]) if more else readers)
        if not command or after == (ranks, readers):
            return
        seen.add((ranks, readers))
        assert after not in seen
        ranks, readers = after
    pytest.fail("no end")


@pytest.mark.parametrize(("prefetch", "kind"), [(2, "prefetch_more"), (4, "find_ranks")])
def test_readers_that_may_not_all_read_get_more_batches_first(prefetch: int, kind: str) -> None:
    found, *_ = answer(epoch(FAR, 1.0), readers=4, prefetch=prefetch, cache="off").advice
    assert found.kind == kind
    assert found.command.endswith("-D 'train.prefetch=4 batches'") is (prefetch == 2)


def test_advice_names_the_program_as_it_was_typed() -> None:
    run = replace(on("ext4"), program="env/bin/dliosim", ranks=1)
    assert command_line(run) == "env/bin/dliosim run 'a b.dlio'"


def test_advice_is_a_command_line_with_its_own_results() -> None:
    found, *_ = answer(epoch(0.5, 0.0)).advice
    assert found.command == "mpiexec -n 4 dliosim run 'a b.dlio' -D train.cache=off"


@pytest.mark.parametrize(("readers", "override"), [(0, "train.readers=1"), (1, "train.api=posix")])
def test_by_mpi_io_one_reader_is_advised_as_more_would_not_read_at_the_same_time(readers: int, override: str) -> None:
    found, *_ = answer(epoch(0.5, 1.0), api="mpi-independent", readers=readers).advice
    assert found.command.endswith(f" -D {override}")


def test_advice_replaces_what_was_given_before() -> None:
    run = replace(
        on("ext4"),
        arguments=("run", "a.dlio", "-D", "train.readers=0", "-Dfiles=8", "--verify", "--output", "o"),
        ranks=1,
    )
    expected = "dliosim run a.dlio -Dfiles=8 -D train.readers=4"
    assert command_line(run, "train.readers=4") == expected


def test_a_mixed_epoch_says_how_much_came_out_of_memory() -> None:
    found = answer(epoch(0.95, 0.024), epoch(0.95, 0.0))
    assert (found.source, found.epochs) == ("mixed", (1,))
    assert list(map(sentence, found.reasons)) == ["the page cache delivered 98 % of the bytes, or may have"]
    assert answer(epoch(0.95, 0.1), epoch(0.95, 0.4)).reasons[0].values == {"least": 0.6, "most": 0.9}


def test_what_says_nothing_next_to_an_advised_override_goes_and_the_answer_is_a_screen() -> None:
    given = ("run", "a.dlio", "-D", "api=mpi-independent", "-Dfiles=8", "--json")
    loop = replace(sample.run().loops[0], epochs=(epoch(0.5, 1.0),), prefetch=0, api="mpi-independent", readers=1)
    run = replace(on("ext4", loop), arguments=given, ranks=1)
    (found,) = answer_run(run, [[loop]], {}, lambda override: ["api"])
    assert found.advice[0].command == "dliosim run a.dlio -Dfiles=8 -D train.api=posix"


def test_data_in_memory_are_advised_to_a_disk_that_is_known() -> None:
    loop = replace(sample.run().loops[0], epochs=(epoch(0.5, 0.0),), prefetch=0, root="data")
    run = replace(on("tmpfs", loop), arguments=("run", "a.dlio", "--dir=/dev/shm/me"), ranks=1)

    def advise(disk: str) -> str:
        return answer_run(run, [[loop]], {}, lambda override: (), disk=disk)[0].advice[0].command

    assert advise("dliosim-data") == "dliosim run a.dlio --dir dliosim-data"
    assert advise("") == ""


def test_the_launcher_next_to_a_program_with_a_path_is_advised(tmp_path: Path) -> None:
    run = replace(on("ext4"), program=str(tmp_path / "dliosim"))
    assert command_line(run).startswith("mpiexec -n 4 ")
    (tmp_path / "mpiexec").touch()
    assert command_line(run).startswith(f"{tmp_path}/mpiexec -n 4 {tmp_path}/dliosim ")


def test_a_change_that_the_pattern_does_not_take_is_not_advised() -> None:
    (found,) = answer(epoch(0.5, 0.0), accepted=False).advice
    assert (found.kind, found.command) == ("exceed_memory_or_drop", "")


def test_a_failure_rate_is_repeated() -> None:
    loop = LoopPhase("train", "train", 1.0, epochs=(epoch(0.5, 0.0),))
    words = ("run", "a.dlio", "--mtbf", "4 h", "--restart-time=9s")
    run = replace(on("ext4", loop), arguments=words, ranks=1, mtbf=14_400.0)
    (one,) = answer_run(run, [[loop]], {}, lambda _: ())
    assert one.advice[0].command == "dliosim run a.dlio --mtbf '4 h' --restart-time=9s -D train.cache=off"
