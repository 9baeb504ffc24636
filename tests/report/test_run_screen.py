"""The text that a run prints, below its answer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import FilePhase, Reason, RestorePhase
from dliosim.report.run.loops import latencies_by_loop
from dliosim.report.run.screen import _tells, run_report, run_screen
from tests.report.sample import epoch, run, spread, verb

GOLDEN = Path(__file__).with_name("screen.txt")


def on(kind: str, **changed: object) -> str:
    place = replace(run().environment.file_systems[0], kind=kind)
    return run_screen(run(environment=replace(run().environment, file_systems=(place,)), **changed))


def row_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))


def test_a_run_prints_the_golden_text() -> None:
    assert run_screen(run()) == GOLDEN.read_text()


def test_it_fits_80_columns_with_long_names() -> None:
    name = "a_loop_over_the_whole_universe_of_a_cosmology_simulation"
    read = verb(98_765.4, bytes=10**18, files=10**9, device_bytes=987_654_321_098_765_432)
    loop = LoopPhase(name, "evaluate", 1.0, epochs=tuple(epoch(i, 100) for i in range(12)))
    text = on("ext4", phases=(loop, RestorePhase(name, "restore", 98_765.4, verb=read, root="data")))
    assert max(len(line) for line in text.splitlines() if not line.startswith("mpiexec ")) <= 80


def test_bytes_from_the_device_are_next_to_those_asked_where_they_are_counted() -> None:
    counted, uncounted = (
        on(
            "ext4",
            phases=(
                LoopPhase("train", "train", 1.0, epochs=(epoch(0, storage_amplification=share),)),
                RestorePhase("c", "restore", 1.0, verb=verb(1.0, bytes=100_000_000, device_bytes=device)),
            ),
        )
        for share, device in ((0.25, 7_000_000), (None, None))
    )
    assert re.search(r" 362 MB +90\.5 MB ", row_of(counted, "train 1 "))
    assert re.search(r" 100 MB +7\.00 MB ", row_of(counted, "restore c "))
    assert ["from the" in text.split("loops: ")[1] for text in (counted, uncounted)] == [True, False]


def test_how_a_restore_reads_is_named_where_there_is_another_one() -> None:
    restores = [RestorePhase("state", "restore", 1.0, verb=verb(1.0), how=how) for how in ("oldest first", "once")]
    alone = on("ext4", phases=(restores[0],)).split("files: ")[1]
    assert "restore state  " in alone and "oldest" not in alone
    both = on("ext4", phases=tuple(restores)).split("files: ")[1]
    assert "restore state once" in both and "dest first" in both


def test_loops_that_changed_to_copies_of_the_nodes_say_when_and_other_notes_wait_for_all_tables() -> None:
    note = "epochs from 2 on read the copies of the nodes on root local; a step waited 2 ms for data before"
    loop = LoopPhase("train", "train", 1.0, epochs=(epoch(0), epoch(1)), notes=("reads ahead", note))
    staged = FilePhase("d", "stage", 1.0, verb=verb(1.0), root="local")
    text = " ".join(run_screen(run(phases=(staged, loop))).split())
    assert f"train: {note}" in text and "reads ahead" not in text
    assert note not in run_screen(run(phases=(loop,)))


def test_drains_have_their_time_next_to_saves() -> None:
    (save, *_) = run().saves
    drained = replace(save, verb=replace(save.verb, drain_bytes=100_000_000, drain_seconds=spread(2.0)))
    assert re.search(r" +2\.20 s +417 MB/s", row_of(run_screen(run(phases=(drained,))), "save model "))
    assert "drained" not in run_screen(run(phases=(save,)))
    assert "; then 2.20 s to drain" in run_screen(run(phases=(drained,))).split("\n\n")[0]


def test_of_many_epochs_the_first_and_the_last_have_rows() -> None:
    text = run_screen(run(phases=(LoopPhase("train", "train", 1.0, epochs=tuple(map(epoch, range(40)))),)))
    rows = [line.split("  ")[0] for line in text.splitlines() if line.startswith("train ") and "warning" not in line]
    assert rows == ["train 1", "train 2", "train 3", "train 4", "train 40 last"]


def test_a_line_that_was_held_is_left_out_and_one_that_was_missed_is_there() -> None:
    text = run_screen(run())
    assert "MISSED: expect utilization of train" in text and "held: expect" not in text


def test_epochs_that_do_not_count_have_what_gave_their_bytes_for_a_utilization_of_storage() -> None:
    (train, *_) = run().loops
    shares = ((0, 1.0), (1, 0.0))
    cold, warm = (epoch(number, storage_amplification=share, storage_utilization=0.7) for number, share in shares)
    (answer, *_) = run().answers
    mine = replace(answer, loop=train.name, source="device", epochs=(1,))
    text = run_screen(replace(run(), phases=(replace(train, epochs=(cold, warm)),), answers=(mine,)))
    assert " memory " not in row_of(text, "train 1")
    assert " memory " in row_of(text, "train 2")


def test_all_tables_have_no_utilization_of_storage_for_epochs_out_of_memory() -> None:
    (train, *_) = run().loops
    shares = ((0, 1.0), (1, 0.0), (2, 0.0))
    epochs = tuple(epoch(number, storage_amplification=share, storage_utilization=0.71) for number, share in shares)
    mine = replace(run().answers[0], loop=train.name, source="device", epochs=(1,))
    found = replace(run(), phases=(replace(train, epochs=epochs),), answers=(mine,))
    text = run_report(found, latencies_by_loop(found))
    rows = text.split("limited %")[1].splitlines()
    alone = [row.split()[5] for row in rows if row[:1].isdecimal()][:4]
    assert alone[:3] == ["71.00", "memory", "memory"]


def test_an_expectation_points_at_why_only_if_that_has_its_values() -> None:
    shown = Reason("too_short", {"steps": 7, "time": 0.013, "more": True})
    assert _tells(shown, Reason("too_short", {"steps": 7, "time": 0.013}))
    assert not _tells(shown, Reason("too_short", {"steps": 2, "time": 0.004}))
    assert not _tells(shown, Reason("single_step"))
    assert not _tells(None, Reason("single_step"))
