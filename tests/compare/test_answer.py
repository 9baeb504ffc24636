"""Answers of comparisons, on literal figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dliosim.compare.answer import answer_comparison
from dliosim.compare.experiment import ExcludedVariant
from dliosim.compare.result import ComparisonAnswer, Outcome
from dliosim.measure.results.run_summary import Reason
from dliosim.report.compare.tables import comparison_report
from tests.compare.sample import COLD, answered, cold, with_figures
from tests.compare.stall_sample import saves, stalled
from tests.compare.synthetic import passes


def answer(found: Outcome, accepted: bool = True) -> ComparisonAnswer:
    return answered(found, accepted)[1]


def on(kind: str, found: Outcome) -> Outcome:
    """The same comparison on another file system."""
    (place,) = found.environment.file_systems
    return replace(found, environment=replace(found.environment, file_systems=(replace(place, kind=kind),)))


def test_the_fastest_is_to_be_used_and_held_against_the_first() -> None:
    found = answer(cold(1.0, 1.3, 0.8))
    assert (found.verdict, found.use, found.against, found.source) == ("use", "api=c", "api=a", "device")
    assert found.ratio == pytest.approx(1.23, abs=0.02) and found.reasons == found.tied == ()
    assert found.ratio_low is not None and found.ratio_high is not None
    assert 1.15 < found.ratio_low < found.ratio < found.ratio_high < 1.35


def test_the_first_is_held_against_the_best_of_the_others() -> None:
    found = answer(cold(1.0, 3.0, 2.0))
    assert (found.use, found.against) == ("api=a", "api=c")
    assert found.ratio == pytest.approx(2.0, abs=0.05)
    assert found.ratio_low is not None and found.ratio_low > 1.9


def test_what_does_not_differ_from_it_is_named_the_fastest_first() -> None:
    found = answer(cold(1.0, 0.7, 0.702, 2.0))
    assert found.use in ("api=b", "api=c") and len(found.tied) == 1 and found.tied[0] in ("api=b", "api=c")


def test_the_first_is_kept_where_none_is_shown_to_be_better() -> None:
    """A noisy variant is ahead of both others by its mean, and is not shown to differ from either."""
    times = passes(8, (1.0, 1.03, 0.95), noise=(0.005, 0.005, 0.1), drift=0.0, outliers=0.0, blocks=9)
    made = cold(1.0, 1.03, 0.95)
    noisy = tuple(
        replace(one, passes=tuple(with_figures(each, seconds=times[each.block, number]) for each in one.passes))
        for number, one in enumerate(made.measured)
    )
    found = answer(replace(made, measured=noisy))
    assert (found.use, found.against, found.tied) == ("api=a", "api=b", ("api=c",))


def test_nothing_is_chosen_where_nothing_differs() -> None:
    found = answer(cold(1.0, 1.0, 1.0))
    assert (found.verdict, found.use, found.ratio) == ("no difference shown", None, None)
    assert found.reasons[0].values == {"repetitions": 8, "smallest": pytest.approx(1.05, abs=0.05)}
    assert "--repeat 32" in found.advice[0].command


def test_any_is_to_be_used_where_no_difference_of_some_size_is_left() -> None:
    made = cold(1.0, 1.0)
    found = answer(made)
    assert (found.verdict, found.use, found.advice) == ("use any", None, ())
    assert found.reasons[0].values == {"share": pytest.approx(0.02, abs=0.01), "label": "api=a"}
    in_memory = answer(on("tmpfs", made))
    assert in_memory.verdict == "not a storage result"


def test_any_is_to_be_used_where_a_difference_is_shown_that_is_too_small_to_matter() -> None:
    made = cold(1.0, 1.01, blocks=60)
    assert made.comparisons[0].high < 1
    assert (answer(made).verdict, answer(made).use) == ("use any", None)


def test_a_variant_that_cannot_run_is_named() -> None:
    made = replace(cold(1.0, 2.0, blocks=4), not_run=(ExcludedVariant("api=c", "it needs one file"),))
    found = answer(made)
    assert found.limits[0] == Reason("not_run", {"label": "api=c", "error": "it needs one file"})
    assert "LIMIT    api=c not run: it needs one file" in comparison_report(made, found)


def test_limits_without_room_in_the_first_lines_are_below_them_and_no_limit_is_there_twice() -> None:
    reasons = [f"reason {number} of a length that fills a line of the first lines" for number in range(6)]
    gone = tuple(ExcludedVariant(f"api={number}", reason) for number, reason in enumerate(reasons))
    made = replace(cold(1.0, 2.0, blocks=4), not_run=gone)
    report = comparison_report(made, answer(made))
    first, below, *_ = report.split("\n\n")
    assert len(first.splitlines()) <= 8 and below.startswith("LIMIT    ")
    limits = " ".join(f"{first}\n{below}".split())
    assert [limits.count(reason) for reason in reasons] == [1] * 6
    short = replace(made, not_run=())
    assert comparison_report(short, answer(short)).count("LIMIT") == 0


def test_few_repetitions_say_nothing() -> None:
    found = answer(cold(1.0, 3.0, blocks=4))
    assert (found.verdict, found.use) == ("not judged", None)
    assert found.reasons == (Reason("few_repetitions", {"repetitions": 4, "least": 6}),)
    assert found.advice[0].command.endswith("dliosim compare cosmoflow.dlio --repeat 8")


@pytest.mark.parametrize(
    ("share", "source", "reason"),
    [
        (0.0, "memory", Reason("page_cache")),
        (0.2, "mixed", Reason("partly_from_device", {"least": 0.2, "label": "api=a"})),
        (1.0, "device", None),
    ],
)
def test_bytes_from_memory_are_never_storage(share: float | None, source: str, reason: Reason | None) -> None:
    found = answer(cold(1.0, 2.0, device_share=share))
    assert (found.source, found.use) == (source, "api=a")
    assert (found.verdict, found.reasons) == (("not a storage result", (reason,)) if reason else ("use", ()))


def test_a_file_system_in_memory_is_no_storage() -> None:
    found = answer(on("tmpfs", cold(1.0, 2.0)))
    assert (found.verdict, found.source) == ("not a storage result", "memory")
    assert found.reasons == (Reason("memory_file_system"),)
    assert [one.command for one in found.advice] == [""]


@pytest.mark.parametrize("made", [cold(1.0, 3.0, blocks=3), cold(1.0, 1.0, 1.0), cold(1.0, 1.0), cold(1.0, 2.0)])
def test_data_in_memory_are_said_first_and_what_to_type_about_them(made: Outcome) -> None:
    made = replace(on("tmpfs", made), arguments=("compare", "x.dlio", "--dir", "/dev/shm/x", "--repeat", "3"))
    made = replace(made, measured=tuple(replace(one, root="data") for one in made.measured))
    found = answer_comparison(made, lambda override: True, disk="dliosim-data")
    assert (found.verdict, found.reasons[0]) == ("not a storage result", Reason("memory_file_system"))
    assert found.reasons.count(found.reasons[0]) == 1
    command = "mpiexec -n 4 dliosim compare x.dlio --repeat 3 --dir dliosim-data"
    assert [one.command for one in found.advice] == [command]


@pytest.mark.parametrize(
    ("cache", "epochs", "resident", "verdict"),
    [
        ("page", 1, 0.0, "use"),
        ("page", 2, 0.0, "not a storage result"),
        ("page", 1, 0.5, "not a storage result"),
        ("page", 1, None, "not a storage result"),
        ("off", 5, None, "use"),
    ],
)
def test_where_the_kernel_does_not_count_passes_must_be_cold(
    cache: str, epochs: int, resident: float | None, verdict: str
) -> None:
    made = cold(1.0, 2.0, resident_share=resident, device_share=None)
    variants = tuple(replace(one, cache=cache, epochs=epochs) for one in made.measured)
    found = answer(replace(made, measured=variants))
    assert (found.source, found.verdict) == ("unknown", verdict)


def test_one_epoch_a_pass_is_advised_where_the_variants_take_it() -> None:
    made = cold(1.0, 2.0, device_share=0.2)
    made = replace(made, measured=tuple(replace(one, epochs=5) for one in made.measured))
    (advice,) = answer(made).advice
    assert advice.command == "mpiexec -n 4 dliosim compare cosmoflow.dlio -D train.epochs=1 --caches cold"
    assert answer(made, accepted=False).advice == ()
    warm = replace(made, caches="warm", arguments=("compare", "x.dlio", "--caches", "warm", "--repeat=9"))
    assert answer(warm, accepted=False).advice[0].command.endswith("compare x.dlio --repeat=9 --caches cold")


@pytest.mark.parametrize(("lead", "verdict"), [(1.03, "cannot say"), (1.5, "use")])
def test_a_difference_that_waiting_for_cores_may_make_is_none(lead: float, verdict: str) -> None:
    found = answer(cold(lead, 1.0, core_wait_share=0.1))
    assert (found.verdict, found.use) == (verdict, "api=b")
    assert found.reasons == ((Reason("core_wait_difference", {"share": 0.1}),) * (lead < 1.1))


def test_more_ranks_than_cores_are_no_finding_where_waits_for_them_are_not_known() -> None:
    made = cold(1.0, 2.0)
    crowded = replace(made, environment=replace(made.environment, ranks_per_node=32))
    assert answer(crowded).verdict == "cannot say"
    known = cold(1.0, 2.0, core_wait_share=0.01)
    assert answer(replace(known, environment=crowded.environment)).verdict == "use"


def test_one_node_cannot_show_what_collective_buffering_is_for() -> None:
    made = cold(1.0, 2.0)
    collective = replace(made, measured=(made.measured[0], replace(made.measured[1], api="mpi-collective")))
    assert answer(collective).limits[1:] == (Reason("one_node_collective", {"is_local": True}),)
    assert answer(on("nfs4", collective)).limits[1:] == (Reason("one_node_collective", {"is_local": False}),)
    assert answer(replace(collective, nodes=2)).limits[1:] == answer(made).limits[1:] == ()


def test_raw_reads_of_hdf5_are_not_h5py() -> None:
    made = cold(1.0, 2.0)
    raw = replace(made, measured=(replace(made.measured[0], raw_format="hdf5"), made.measured[1]))
    assert answer(raw).limits[1].kind == "without_h5py"
    assert answer(raw).verdict == "use"
    other = replace(made, measured=(replace(made.measured[0], raw_format="tfrecord"), made.measured[1]))
    assert answer(other).limits[1:] == ()


def test_a_library_that_decompresses_does_other_work_than_reads_of_compressed_bytes() -> None:
    made = cold(1.0, 2.0)
    left = replace(made.measured[0], raw_format="hdf5", is_left_compressed=True)
    found = answer(replace(made, measured=(left, made.measured[1])))
    assert (found.verdict, found.advice[0].kind) == ("not judged", "decompress_all")
    assert found.advice[0].command.endswith(" -D train.decode=on")
    both = replace(made, measured=(left, replace(made.measured[1], raw_format="hdf5")))
    assert answer(both).verdict == "use"


def test_the_save_that_stalls_least_is_to_be_used() -> None:
    found = answer(saves(stalled((1.8, 2.0, 1.0))))
    assert (found.verdict, found.use, found.source) == ("use", "writers=rank 0", "device")
    assert found.ratio == pytest.approx(1.8, abs=0.06)


def test_saves_that_end_before_their_data_are_on_storage_are_no_storage_result() -> None:
    found = answer(saves(stalled((2.0, 1.0), file_sync_seconds=0.0)))
    assert (found.verdict, found.use) == ("not a storage result", "writers=all ranks into shared file")
    label = "writers=all ranks into shared file"
    assert found.reasons == (Reason("unsynced", {"labels": (label,)}),)
    restores = replace(saves(stalled((2.0, 1.0), **COLD)), what="restore state", caches="cold")
    assert answer(restores).verdict == "not a storage result"  # those of the first variant came from memory


def test_waits_for_cores_are_a_limit_of_any_answer_and_the_next_command_gives_each_rank_one() -> None:
    made = cold(1.0, 3.0, core_wait_share=0.3)
    crowded = replace(made, environment=replace(made.environment, ranks_per_node=4, cores_per_node=2))
    found = answer(crowded)
    assert (found.verdict, found.use) == ("use", "api=a")
    assert found.limits[1:] == (Reason("core_wait_included", {"share": 0.3}),)
    assert found.advice[0].command == "mpiexec -n 2 dliosim compare cosmoflow.dlio"
    assert answer(cold(1.0, 3.0, core_wait_share=0.04)).limits[1:] == ()
    # Other work had the cores, and the answer is clear nevertheless.
    assert answer(cold(1.0, 3.0, core_wait_share=0.3, reader_core_wait_share=None)).advice == ()
    readers = answer(cold(1.0, 3.0, core_wait_share=0.0, reader_core_wait_share=0.2))
    assert readers.limits[1].values == {"share": 0.2} and readers.advice[0].values == {"has_readers": True}


def test_what_is_ahead_of_the_one_to_use_by_its_mean_alone_is_named() -> None:
    times = passes(8, (1.0, 3.0, 0.95), noise=(0.005, 0.005, 0.1), drift=0.0, outliers=0.0, blocks=9)
    made = cold(1.0, 3.0, 0.98)
    noisy = tuple(
        replace(one, passes=tuple(with_figures(each, seconds=times[each.block, number]) for each in one.passes))
        for number, one in enumerate(made.measured)
    )
    found = answer(replace(made, measured=noisy))
    assert (found.use, found.tied, found.ahead) == ("api=a", ("api=c",), ("api=c",))


def test_the_quotient_of_two_rates_is_the_ratio_of_the_verdict() -> None:
    made = cold(1.0, 1.3, 0.8)
    first, *others = (one.mean("samples_per_second") or 0.0 for one in made.measured)
    assert [other / first for other in others] == pytest.approx([one.ratio for one in made.comparisons])


def test_what_else_helps_is_advised_where_cold_passes_of_one_epoch_are_not_counted() -> None:
    made = cold(1.0, 1.0, 1.0, device_share=None)
    assert answer(made).advice[0].command.endswith("--repeat 32")
    crowded = replace(made, environment=replace(made.environment, ranks_per_node=16, cores_per_node=8))
    waiting = cold(1.0, 3.0, device_share=None, core_wait_share=0.4)
    assert answer(replace(waiting, environment=crowded.environment)).advice[0].command.startswith("mpiexec -n 8 ")
