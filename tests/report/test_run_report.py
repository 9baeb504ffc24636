import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.cli import main
from dliosim.measure.figures.declaration import BoundShares, TimeSpread
from dliosim.measure.rank.histogram import LIMIT_NS, Histogram
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import ExpectationResult, FilePhase, Reason, RestorePhase, SavePhase
from dliosim.report.files.results import results_content
from dliosim.report.run import warnings
from dliosim.report.run.loops import latencies_by_loop
from dliosim.report.run.screen import expectation_line
from dliosim.report.run.screen import run_report as all_tables
from tests.report.sample import change, epoch, run, spread, verb

GOLDEN = Path(__file__).parent / "run.txt"


def run_report(found):
    return all_tables(found, latencies_by_loop(found))


def report_of(*epochs, runs=1, **changed):
    phases = tuple(LoopPhase("train", "train", 1.0, epochs=epochs) for _ in range(runs))
    return run_report(run(phases=phases, **changed))


def test_a_run_prints_the_golden_text():
    assert run_report(run()) == GOLDEN.read_text()


def test_saved_results_print_the_same_text_in_full(tmp_path, capsys):
    (tmp_path / "results.json").write_text(json.dumps(results_content(run())))
    assert main(["report", str(tmp_path), "--full"]) == 0
    assert capsys.readouterr().out == GOLDEN.read_text()


def widest(text):
    return max(map(len, text.splitlines()))


def test_the_options_of_a_restore_have_as_many_lines_as_they_take():
    ways = ("everything by file then broadcast through mmap", "rotated by rank through mmap")
    restores = [RestorePhase("state", "restore", 1.0, verb=verb(1.0), how=how) for how in ways]
    text = run_report(run(phases=(*restores, SavePhase("s" * 300, "save", 1.0, verb=verb(1.0)))))
    for table in text.split("\n\nfiles: ")[1:]:
        assert re.search(r"^restore state everything by file  .*\n  then broadcast through mmap\n", table, re.M)
        assert re.search(r"^restore state rotated by rank .*\n  through mmap\n", table, re.M)
        assert re.search(r"^save s+  .*\n(  s+\n){2}  \.\.\.$", table, re.M)
    assert widest(text) <= 120


def test_nothing_is_wider_than_a_terminal_of_120_columns():
    crowded = epoch(
        0,
        null_seconds=0.1,
        view_seconds=spread(0.1),
        checkpoint_seconds=spread(0.1),
        arrival_wait_seconds=spread(0.1),
        decode_seconds=spread(0.1),
        preprocess_seconds=spread(0.1),
        request_latency=Histogram([10_500_000, 123_456_789]),
    )
    text = report_of(crowded, replace(crowded, epoch=1), replace(crowded, epoch=2))
    assert widest(text) <= 120
    assert widest(run_report(run())) <= 120


def huge(index):
    """An epoch of 1024 ranks whose every figure is long, and none is left out."""
    long = spread(98_765.4321)
    return epoch(
        index,
        ranks=1024,
        samples=9_876_543_210_123,
        bytes=9_876_543_210_123_456,
        seconds=123_456.7,
        loop_seconds=0.123,
        null_seconds=0.1,
        utilization=0.98765,
        **{f"{name}_seconds": long for name in ("data_wait", "io_busy", "open", "view", "compute", "sync_wait")},
        **{f"{name}_seconds": long for name in ("arrival_wait", "checkpoint", "processing", "tool")},
        **{f"{name}_seconds": long for name in ("decode", "preprocess", "core_wait", "reader_core_wait")},
        **{f"{name}_latency": Histogram([98_765_432, 10**15]) for name in ("batch", "call", "request")},
        bound_by=BoundShares(0.12345, 0.12345, 0.12345, 0.12345, 0.5062),
        slowest_rank=1023,
        oversleep_share=0.12345,
        amplification=1234.5,
        storage_amplification=1234.5,
        dlio_au=0.98765,
        dlio_samples_per_second=9_876_543_210.0,
    )


def test_not_even_with_1024_ranks_long_names_and_every_optional_column():
    name = "a_loop_over_the_whole_universe_of_a_cosmology_simulation_at_full_resolution"
    parts = ("call", "content", "encode", "serialize", "send", "broadcast", "open", "view", "file_sync")
    completing = ("plan", "commit", "directory_sync", "manifest", "rename", "delete")
    times = {f"{part}_seconds": spread(98_765.4) for part in (*parts, *completing)}
    written = verb(98_765.4, bytes=10**18, files=10**9, **times)
    amounts = {f"{kind}_bytes": 987_654_321_098_765_432 for kind in ("distinct", "read_call", "device")}
    hints = tuple((f"a_rather_long_hint_{number}", "with a value") for number in range(20))
    phases = (
        FilePhase(name, "prepare", 98_765.4, verb=written, hints_asked=hints, hints_granted=hints, api="posix"),
        RestorePhase(
            name,
            "restore",
            98_765.4,
            verb=replace(written, **amounts),
            resident_share=0.123,
            notes=("passed over " * 20,),
        ),
        LoopPhase(name, "train", 98_765.4, epochs=tuple(map(huge, range(20))), hints_asked=hints, api="posix"),
        LoopPhase(name, "infer", 98_765.4, epochs=(huge(0), huge(1)), resident_share=0.5),
    )
    crowded = replace(run().environment, ranks_per_node=1024, cores_per_node=2)
    assert widest(run_report(run(phases=phases, ranks=1024, environment=crowded))) <= 120


def test_latencies_of_requests_have_a_table_of_their_own_where_the_others_leave_no_room():
    spread_out = Histogram([10**3] * 500 + [10**6] * 400 + [10**7] * 95 + [10**8] * 4 + [123_456_789])
    text = report_of(epoch(0, **{f"{kind}_latency": spread_out for kind in ("batch", "call", "request")}))
    block = text[text.index("train: latencies") :]
    block = block[: block.index("train: bound by")]
    assert block.count("epoch ") == 2
    assert "123 ms" in block


def test_utilization_is_marked_with_more_ranks_than_cores_where_no_kernel_counts_their_waits():
    assert "?" not in report_of(epoch(0))
    crowded = replace(run().environment, ranks_per_node=4, cores_per_node=2)
    uncounted = {"core_wait_seconds": None}
    text = report_of(epoch(0, **uncounted), environment=crowded)
    assert "warning: 4 ranks on 2 cores: utilization is not to be trusted" in " ".join(text.split())
    assert "48.90?" in report_of(epoch(0, 2.5, **uncounted), environment=crowded)


#: The environment of the run, with its data in memory, where answers judge nothing.
TMPFS = replace(run().environment, file_systems=(replace(run().environment.file_systems[0], kind="tmpfs"),))


def waiting(share, **changed):
    """Two epochs whose ranks waited for a core for such a share of their time."""
    times = {"loop_seconds": 0.5, "core_wait_seconds": spread(share * 0.5)} | changed
    return [epoch(0, **times), epoch(1, **times)]


def test_waiting_for_cores_is_said_where_it_is_so_and_not_where_there_are_more_ranks_than_cores():
    crowded = replace(TMPFS, ranks_per_node=16, cores_per_node=2)
    text = report_of(*waiting(0.049), environment=crowded)
    assert "?" not in text
    assert "; 4.90 % of it was waits for a core" in " ".join(text.split())
    text = " ".join(report_of(*waiting(0.123), environment=crowded).split())
    assert "warning: train: ranks waited 12 % of the loop for a core, spread over data wait," in text
    assert "(16 ranks on 2 cores: use fewer ranks, or give each a core of its own)" in text
    assert "?" in text
    quiet = " ".join(report_of(*waiting(0.123), environment=TMPFS).split())
    assert "(other work had the cores: repeat this when the machine is quiet)" in quiet


def test_waiting_for_cores_is_said_where_the_answer_gives_another_reason():
    half_cached = {"storage_amplification": 0.5, "storage_utilization": 0.95}
    text = " ".join(report_of(*waiting(0.123, **half_cached)).split())
    assert "ANSWER not a storage result" in text
    assert "warning: train: ranks waited 12 % of the loop for a core" in text


def test_readers_that_wait_for_cores_are_distinguished():
    epochs = waiting(0.01, reader_core_wait_seconds=spread(0.3))
    phase = LoopPhase("train", "train", 1.0, epochs=tuple(epochs), readers=4)
    text = " ".join(run_report(run(phases=(phase,), environment=TMPFS)).split())
    assert "warning: train: readers waited 15 % of the loop for a core" in text
    assert "(4 ranks on 8 cores, 4 readers each: use fewer of either, or give each a core of its own)" in text


def test_more_ranks_than_cores_are_named_next_to_saves_whose_waits_are_not_counted():
    crowded = replace(run().environment, ranks_per_node=16, cores_per_node=2)
    text = " ".join(run_report(run(environment=crowded, phases=run().phases[:3])).split())
    assert "warning: 16 ranks on 2 cores: saves and restores include waits for a core, which are only" in text


@pytest.mark.parametrize(("share", "warned"), [(0.0099, False), (0.0101, True)])
def test_utilization_is_marked_where_compute_overshot_by_over_one_per_cent(share, warned):
    text = report_of(epoch(0, oversleep_share=share))
    assert ("longer than asked" in text) == warned
    assert ("?" in text) == warned


def test_a_hint_that_was_dropped_or_changed_is_reported_loudly():
    phase = LoopPhase(
        "train",
        "train",
        1.0,
        epochs=(epoch(0),),
        api="mpi-independent",
        hints_asked=(("a", "1"), ("b", "2"), ("c", "3")),
        hints_granted=(("a", "1"), ("c", "4")),
    )
    text = run_report(run(phases=(phase,)))
    assert 'train: HINT NOT GRANTED: "b" = "2" was dropped by the MPI library' in text
    assert 'train: HINT NOT GRANTED: "c" = "3" became "4"' in text
    assert '"a" = "1"' not in text


def test_many_epochs_are_abridged():
    lines = report_of(*(epoch(i) for i in range(40))).splitlines()
    numbers = [line.split()[0] for line in lines if line[:1].isdigit() or line.startswith("...")]
    assert numbers[:13] == [*map(str, range(1, 11)), "...", "40", "1"]


def test_runs_of_the_same_loop_share_their_tables_and_count_on():
    text = report_of(epoch(0), runs=3)
    assert text.count("train: latencies") == 1
    assert "3 epochs of 32 steps in 3.000 s (3 runs)" in text
    assert "\n1 to 3 " in text


def test_different_numbers_of_steps_show():
    assert "1 epoch of 15 to 32 steps" in report_of(epoch(0, fewest_steps=15))


def test_a_latency_beyond_the_buckets_is_infinite_and_its_maximum_is_not():
    text = report_of(epoch(0, batch_latency=Histogram([2 * LIMIT_NS])))
    assert "inf" in text
    assert "17592 s" in text


def test_a_run_without_loops_has_no_hashes():
    assert "hash" not in run_report(run(phases=run().phases[:3]))


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "unknown: the kernel"),
        (0.0, "cold, 0 %"),
        (0.5, "partly warm, 50.0 %"),
        (1.0, "warm, 100 %"),
        (0.011, "partly"),
    ],
)
def test_cold_and_warm_are_said_with_the_share_that_was_resident(share, text):
    lines = run_report(run(phases=(LoopPhase("train", "train", 1.0, epochs=(epoch(0),), resident_share=share),)))
    assert re.search(rf"^page cache +train: {text}", lines, re.MULTILINE)


@pytest.mark.parametrize(("measured", "text"), [(0.689, "68.90 %, epoch 2"), (None, "epoch 2")])
def test_an_expectation_that_is_not_judged_says_why(measured, text):
    result = ExpectationResult("it", measured, "ratio", False, (2,), Reason("read_data"))
    assert expectation_line(result) == f"not judged: expect it ({text}): read the data"


@pytest.mark.parametrize(
    ("measured", "unit", "held", "text"),
    [
        (0.689, "ratio", False, "MISSED: expect it (68.90 %, epoch 1)"),
        (0.0312, "s", True, "held: expect it (31.20 ms, epoch 1)"),
        (1.5e9, "B/s", True, "held: expect it (1.500 GB/s, epoch 1)"),
        (1234.0, "samples/s", True, "held: expect it (1234 samples/s, epoch 1)"),
        (None, "s", False, "MISSED: expect it (nothing was measured, epoch 1)"),
        (math.inf, "s", False, "MISSED: expect it (inf, epoch 1)"),
    ],
)
def test_an_expectation_says_what_was_measured(measured, unit, held, text):
    assert expectation_line(ExpectationResult("it", measured, unit, held, (1,))) == text


def phase_of(*epochs, kind="train", **changed):
    return LoopPhase(kind, kind, 1.0, epochs=epochs, **changed)


def file_phase_of(kind, verb, **changed):
    return {"save": SavePhase, "restore": RestorePhase}.get(kind, FilePhase)(kind, kind, 1.0, verb=verb, **changed)


def warnings_of(*phases, **changed):
    unanswered = replace(run(phases=phases, expectations=(), **changed), answers=())
    return [line for line in warnings.warnings_of(unanswered) if "is in memory" not in line]


ON_DISK = run().environment


def test_a_good_run_has_no_warnings():
    assert "warning" not in run_report(run(phases=(phase_of(epoch(0, 2.0), epoch(1, 2.0)),), environment=ON_DISK))


def test_past_the_page_cache_nothing_is_cold_or_warm():
    text = run_report(run(phases=(phase_of(epoch(0), cache="off", resident_share=1.0),)))
    assert re.search(r"^page cache +train: past the page cache \(cache off\)$", text, re.MULTILINE)
    assert "warm" not in text


def test_without_io_one_warning_says_so_and_there_is_no_bandwidth():
    null = run(phases=(phase_of(epoch(0, null=True), api="null"),), null=True, expectations=())
    (found,) = warnings.warnings_of(replace(null, answers=()))
    assert found.startswith("nothing was read or written (--null)")
    text = run_report(null)
    assert "warning" not in text and "nothing was read (--null)" in text, "the answer says it"
    row = next(line for line in text.splitlines() if line.startswith("1 "))
    assert row.split()[2] == "-"


def test_what_verify_checked_is_said_and_that_its_times_are_not_to_be_quoted():
    restored = file_phase_of("restore", verb(1.0, bytes=1_000_000))
    kept = epoch(1, bytes_moved=7)
    text = run_report(run(phases=(phase_of(epoch(0, bytes=5_000, bytes_moved=8_192), kept), restored), verify=True))
    assert re.search(r"^verified +1 005 007 bytes, all as prepared$", text, re.MULTILINE)
    said = "warning: steps also checked what they read (--verify), which counts as tool time: do not quote"
    assert said in " ".join(text.split())
    assert "?" in text


@pytest.mark.parametrize(("prefetch", "warned"), [(30, False), (31, True)])
def test_steps_that_were_all_read_during_the_first_are_warned_about(prefetch, warned):
    phase = phase_of(epoch(0), prefetch=prefetch)
    assert any("31 steps after the first, and 31 batches are" in line for line in warnings_of(phase)) == warned
    assert ("?" in run_report(run(phases=(phase,)))) == warned


@pytest.mark.parametrize(("share", "warned"), [(0.09, False), (0.12, True)])
def test_a_sync_that_is_slow_in_itself_is_distinguished_from_waiting_for_others(share, warned):
    wall = epoch(1).loop_seconds
    waits = {"least_sync_wait_seconds": share * wall, "sync_wait_seconds": spread(0.5 * wall)}
    found = warnings_of(phase_of(epoch(0, **waits), epoch(1, **waits)))
    said = "train: even the last rank of each step waited in its sync, for 12 % of the loop's time"
    assert any(line.startswith(said) for line in found) == warned


@pytest.mark.parametrize(
    ("waited", "why", "noted"),
    [
        (0.04, "that is the cost of the sync itself, not of", "the cost of the sync itself"),
        (0.06, "the sync itself, or a wait for a core; not", "the sync itself, or a wait for a core"),
    ],
)
def test_a_slow_sync_is_not_blamed_alone_where_ranks_waited_for_cores(waited, why, noted):
    phase = phase_of(*waiting(waited, least_sync_wait_seconds=0.34, sync_wait_seconds=spread(0.4)))
    said = f"train: even the last rank of each step waited in its sync, for 68 % of the loop's time: {why} storage"
    assert said in warnings_of(phase)
    assert f"train: sync wait was 47 % of the loop's time: 47 % {noted} " in " ".join(
        run_report(run(phases=(phase,))).split()
    )


@pytest.mark.parametrize(
    ("api", "cache", "word"),
    [
        ("mpi-independent", "page", "romio_ds_read and romio_cb_read"),
        ("mpi-collective", "page", "romio_cb_read and romio_ds_read"),
        ("posix", "off", "whole pages of 4 KiB"),
    ],
)
def test_reading_over_twice_what_was_asked_is_warned_about_with_what_to_look_at(api, cache, word):
    assert warnings_of(phase_of(epoch(0, amplification=1.99), api=api, cache=cache)) == []
    (found,) = warnings_of(phase_of(epoch(0), epoch(1, amplification=3.456), api=api, cache=cache))
    assert found.startswith("train: read calls moved 3.46 bytes for each byte asked: ")
    assert word in found


def test_unknown_bytes_are_not_said_to_be_verified():
    some, units = epoch(0, bytes=5_000, bytes_moved=5_000), epoch(1, bytes=1_000, bytes_moved=16_000)
    known = (replace(some, unchecked_bytes=700), replace(units, unchecked_bytes=16_000))
    text = run_report(run(phases=(phase_of(*known),), verify=True))
    assert re.search(
        r"^verified +4 300 of 6 000 bytes, as prepared; what the others should be is unknown", text, re.MULTILINE
    )


def test_what_a_library_or_whole_units_read_besides_is_not_put_down_to_somebody_else():
    more = epoch(1, amplification=3.456)
    (found,) = warnings_of(phase_of(epoch(0), more, api="posix", through="library"))
    assert found.endswith("the format's library reads more than samples (indexes, whole chunks or row groups)")
    whole = replace(more, bytes_moved=3 * more.bytes)
    (found,) = warnings_of(phase_of(epoch(0), whole, api="posix", cache="page"))
    assert found.endswith("each sample takes a whole unit of its format (chunk, row group) to read")
    masks = epoch(0, samples=64, bytes=16, bytes_moved=2048, amplification=None)
    (found,) = warnings_of(phase_of(masks, api="posix", cache="page"))
    assert found.startswith("train: read calls moved 128 bytes for each byte asked: ")
    assert found.endswith("(chunk, row group) to read, for 0.25 B that a sample has of it")
    (found,) = warnings_of(phase_of(replace(masks, bytes=0), api="posix", cache="page"))
    assert found.startswith("train: read calls moved 2.048 kB for 0 B asked: ")
    (found,) = warnings_of(phase_of(epoch(0), more, api="posix", cache="page"))
    assert found.endswith("something else in these processes read the rest")


def test_a_loop_that_a_library_reads_says_so():
    assert "posix by the format's library; means over ranks" in text_of(
        epoch(0), epoch(1), api="posix", through="library"
    )


def test_a_restore_from_the_page_cache_is_warned_about_with_how_many_runs_did():
    shares = (0.1, 0.51, 1.0)
    read = verb(1.0, content_seconds=spread(0.0))
    phases = [file_phase_of("restore", read, resident_share=share) for share in shares]
    (found,) = warnings_of(*phases, environment=ON_DISK)
    assert found.startswith("restore (2 of 3 runs): most of what it read was in the page cache")
    assert warnings_of(*phases, environment=TMPFS) == []  # there all of it is memory


@pytest.mark.parametrize(
    ("kind", "share", "said"),
    [
        ("save", 0.11, "save: generating contents took more than 10 % of its own time, outside the clock: storage may"),
        ("restore", 0.11, "restore: checking contents took more than 10 % of its own time, outside the clock"),
        ("save", 0.09, None),
        ("prepare", 0.11, None),
    ],
)
def test_contents_that_gave_storage_time_are_warned_about(kind, share, said):
    made = verb(2.0, content_seconds=TimeSpread(0.0, 0.0, 2.0 * share))
    found = warnings_of(file_phase_of(kind, made), environment=ON_DISK)
    assert [line.startswith(said) for line in found] == ([True] if said else [])


def test_saves_that_a_crash_would_lose_or_tear_are_warned_about():
    made = verb(2.0, content_seconds=spread(0.0))
    unsafe = file_phase_of("save", made, fsync=False, commit="none")
    late, torn = warnings_of(unsafe, environment=ON_DISK)
    assert late.startswith("save: `fsync off`: its times end when the data are in the page cache")
    assert torn.startswith("save: `commit none`: nothing tells a complete checkpoint from one that a crash cut short")
    assert warnings_of(replace(unsafe, fsync=True, commit="rename"), environment=ON_DISK) == []


@pytest.mark.parametrize(
    ("cold", "said"),
    [((), "epochs 1 to 4"), ((0, 3), "epochs 2 and 3"), ((1,), "epochs 1, 3 and 4"), ((0, 1, 2), "epoch 4")],
)
def test_epochs_that_came_from_the_cache_are_named(cold, said):
    epochs = [epoch(i, storage_amplification=1.0 if i in cold else 0.2) for i in range(4)]
    (found,) = warnings_of(phase_of(*epochs), environment=ON_DISK)
    assert found.startswith(f"train: {said} read less than half")


def test_ranks_that_ask_for_the_same_bytes_are_warned_about_where_the_device_gave_exactly_half():
    whole = epoch(0)
    half = {"distinct_bytes": whole.bytes // 2, "storage_amplification": 0.5}
    phases = phase_of(change(whole, **half), change(whole, epoch=2, **half))
    (found,) = warnings_of(phases, environment=ON_DISK)
    different = (
        "ranks asked for 362.0 MB, but only 181.0 MB are distinct bytes: the page cache or another rank delivered"
    )
    assert found.startswith(f"train: in epochs 1 and 2 {different}")
    assert re.search(r"^1 +\S+ +\S+ +0\.5000 ", report_of(*phases.epochs, environment=ON_DISK), re.MULTILINE)
    warm = change(whole, distinct_bytes=whole.bytes // 2, storage_amplification=0.24)
    assert [" read less than half of" in line for line in warnings_of(phase_of(warm), environment=ON_DISK)] == [
        True,
        False,
    ]
    for alone in (change(whole, storage_amplification=1.0), change(whole, **half | {"storage_amplification": 1.0})):
        assert warnings_of(phase_of(alone), environment=ON_DISK) == [], "with O_DIRECT the device gives all"
    read = verb(1.0, content_seconds=spread(0.0), distinct_bytes=90_511_552, device_bytes=90_511_552)
    restored = file_phase_of("restore", read)
    (found,) = warnings_of(restored, environment=ON_DISK)
    assert found.startswith("restore: ranks asked for 181.0 MB, but only 90.51 MB are distinct bytes: ")
    row = next(line for line in run_report(run(phases=(restored,))).splitlines() if line.startswith("restore"))
    assert row.split()[5:12] == ["181.0", "MB", "90.51", "MB", "90.51", "MB", "0.09051"]


def test_another_root_in_memory_silences_no_warning_of_a_disk():
    disk, memory = (replace(run().environment.file_systems[0], root=kind, kind=kind) for kind in ("ext4", "tmpfs"))
    both = replace(run().environment, file_systems=(disk, memory))
    cached = phase_of(epoch(0, storage_amplification=0.2))
    for root, said in (("ext4", 1), ("tmpfs", 0)):
        assert len(warnings_of(replace(cached, root=root), environment=both)) == said
        read = file_phase_of("restore", verb(1.0, content_seconds=spread(0.0)), resident_share=1.0, root=root)
        assert len(warnings_of(read, environment=both)) == said


def test_waiting_for_data_is_reported_where_no_step_is_put_down_to_storage():
    said = "train: data wait took 29 % of the time although no step was bound by reads"
    elsewhere = BoundShares(0.0, 0.9, 0.1, 0.0, 0.0)
    assert said in report_of(*(epoch(one, bound_by=elsewhere) for one in range(2)))
    assert said not in report_of(epoch(0, bound_by=elsewhere), epoch(1))
    little = {"bound_by": elsewhere, "data_wait_seconds": spread(0.005)}
    assert said not in report_of(*(epoch(one, **little) for one in range(2)))


def test_of_several_saves_the_shortest_and_the_longest_are_shown():
    runs = [SavePhase("c", "save", seconds, verb=verb(seconds)) for seconds in (1.0, 2.0, 6.0)]
    assert re.search(r"^save c +3 +3\.000 s +1\.000 s +6\.000 s ", run_report(run(phases=tuple(runs))), re.MULTILINE)
    assert "least" not in run_report(run(phases=tuple(runs[:1]), expectations=()))


def test_restores_that_differ_have_rows_of_their_own():
    restores = [RestorePhase("c", "restore", 1.0, verb=verb(1.0), how=how) for how in ("", "everything once", "")]
    text = run_report(run(phases=tuple(restores)))
    assert re.search(r"^restore c +2 ", text, re.MULTILINE)
    assert re.search(r"^restore c everything once +1 ", text, re.MULTILINE)


def decoded(index, decode, preprocess=0.0, **changed):
    """An epoch whose readers, or steps, decode so long; reading takes 184 ms, compute 320 ms and waiting 131 ms."""
    return epoch(index, decode_seconds=spread(decode), preprocess_seconds=spread(preprocess), **changed)


def text_of(first, later, **changed):
    return " ".join(run_report(run(phases=(phase_of(first, later, **changed),))).split())


def test_readers_that_mostly_decode_are_blamed_and_not_storage():
    one_reader = {"readers": 1, "prefetch": 2}
    decoding = text_of(decoded(0, 0.24), decoded(1, 0.24), **one_reader)
    spent = "readers spent 57 % of their busy time decoding, not reading"
    assert f"train: {spent}: data waits, and steps bound by reads, wait for that" in decoding
    assert "not reading" not in text_of(decoded(0, 0.1), decoded(1, 0.1), **one_reader)
    both = text_of(decoded(0, 0.1, 0.14), decoded(1, 0.1, 0.14), **one_reader)
    assert "57 % of their busy time decoding and preprocessing, not reading" in both


def test_reading_of_several_readers_counts_for_as_many_as_read_at_a_time():
    several = decoded(1, 0.24, depth=3.5)
    assert "not reading" not in text_of(several, several, readers=4, prefetch=4)
    # A queue of calls keeps one reader no longer than it takes.
    assert "57 % of their busy time decoding" in text_of(several, several, readers=1, prefetch=4)


def test_decoding_has_columns_only_where_something_was_decoded():
    plain = re.sub(r"`[^`]*`", "", report_of(epoch(0), epoch(1)))  # without what a note says to type
    assert not any(word in plain for word in ("decode", "process", "encoding"))
    some = decoded(1, 0.0123, processing_seconds=spread(0.0248), bound_by=BoundShares(0.5, 0.0, 0.0, 0.0, 0.5))
    text = report_of(epoch(0), some)
    assert re.search(r"busy +close +decode +compute", text)
    assert "pre-" not in text
    assert re.search(
        r"train: where the time without saves went in epochs 1 and 2: .*processing 2", " ".join(text.split())
    )
    assert re.search(r"reads +compute +tool +decode", text)
    assert re.search(r"pre- +sync.*\n.*close +process +compute", report_of(decoded(0, 0.0, 0.01)))


def test_encoding_has_a_column_next_to_making_data_where_there_was_any():
    phase = FilePhase("d", "prepare", 1.0, verb=verb(1.0, encode_seconds=spread(0.321)))
    text = run_report(run(phases=(phase,)))
    assert re.search(r"calls +data +encoding", text)
    assert "321 ms" in text


def test_what_memory_kept_is_none_of_the_storage():
    first = epoch(0, storage_amplification=1.0)
    kept = [epoch(number, bytes_moved=0, storage_amplification=0.0) for number in (1, 2)]
    assert warnings_of(phase_of(first, *kept), environment=ON_DISK) == []
    half = [change(each, bytes_moved=each.bytes // 2, storage_amplification=0.4) for each in kept]
    assert warnings_of(phase_of(first, *half), environment=ON_DISK) == []


def test_a_slowdown_that_cannot_be_is_reported():
    usual, odd = (epoch(1, null_seconds=times * epoch(1).seconds, storage_amplification=1.0) for times in (1.0, 2.0))
    assert warnings_of(phase_of(usual), environment=ON_DISK) == []
    (found,) = warnings_of(phase_of(usual, odd), environment=ON_DISK)
    assert found.startswith("train: an epoch took 0.500 times as long with I/O as without")
