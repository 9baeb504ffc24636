"""The first lines of a run's report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dliosim.measure.results.run_summary import Advice, Answer, Reason, RestorePhase, RunSummary, SavePhase, Spread
from dliosim.report.phase_titles import name_epochs
from dliosim.report.run.answer_lines import answer_lines
from dliosim.report.run.checkpoint_costs import interval_section
from tests.report.sample import change, flushed, run, saved, spread


def flat(value: float) -> Spread:
    return Spread(value, value, value)


def because(words: int = 1) -> Reason:
    """A reason with this many words after `epoch not run:`."""
    return Reason("not_run", {"label": "epoch", "error": "because " * words})


def answered(**changed: object) -> Answer:
    """An answer about the first epoch of five."""
    answer = Answer(
        "train",
        "does not feed",
        (),
        "device",
        True,
        (1,),
        0.9,
        flat(0.55),
        flat(0.612),
        flat(2.91e9),
        flat(1.97e9),
        (Advice("bypass_cache", {}, "dliosim run cosmoflow.dlio -D train.cache=off" + " -D files=20_000" * 3),),
    )
    return replace(answer, **changed)  # type: ignore[arg-type]


def lines_of(*answers: Answer, **changed: object) -> list[str]:
    found: RunSummary = replace(run(**{"mtbf": None, **changed}), answers=answers)
    return answer_lines(found).splitlines()


def test_the_answer_is_on_the_second_line_and_how_it_is_known_below() -> None:
    lines = lines_of(answered())
    assert lines[1] == "ANSWER   does not feed: accelerators busy 61 % (only storage counted), goal 90 %"
    assert lines[2] == "STORAGE  loop needs 2.91 GB/s, got 1.97 GB/s from the device (epoch 1)"
    assert lines[3] == "MEMORY   the page cache delivered some or all of epochs 2 to 5: not counted"
    assert lines[4].startswith("LOOP     ")


def test_it_is_eight_lines_of_80_columns_and_a_command_that_can_be_pasted() -> None:
    lines = lines_of(answered(reasons=(because(30),)), answered(loop="l" * 99))
    assert len(lines) <= 8
    *others, command = lines
    assert command == answered().advice[0].command
    assert max(map(len, others)) <= 80


def test_what_came_out_of_memory_is_never_called_storage() -> None:
    memory = {"verdict": "not a storage result", "source": "memory", "from_storage": False}
    lines = lines_of(answered(**memory, reasons=(Reason("page_cache"),)))
    assert lines[1:3] == ["ANSWER   not a storage result", "WHY      all bytes came from the page cache"]
    assert lines[3] == "MEMORY   loop got 1.97 GB/s from memory, not storage (epoch 1)"


def test_the_rate_of_a_loop_without_compute_is_that_of_its_reads_alone() -> None:
    lines = lines_of(answered(storage_utilization=None, needs_bytes_per_second=None))
    assert lines[2] == "STORAGE  reads alone got 1.97 GB/s from the device (epoch 1)"


@pytest.mark.parametrize("source", ["unknown", "mixed"])
def test_what_memory_may_have_given_is_a_bound_of_what_storage_gave(source: str) -> None:
    lines = lines_of(answered(source=source, from_storage=False))
    assert lines[2] == "STORAGE  loop needs 2.91 GB/s, got at most 1.97 GB/s (epoch 1)"


def test_the_shares_of_a_loop_have_one_whole_and_name_it() -> None:
    def loop_of(*epochs: int) -> str:
        (line,) = (one for one in lines_of(answered(epochs=epochs)) if one.startswith("LOOP"))
        return line

    assert loop_of(1) == "LOOP     busy 49 %, storage 50 % of epoch 1"
    assert loop_of(1, 2, 3, 4, 5).endswith(" of the loop")


def test_what_other_waits_hide_of_storage_is_named_so_that_shares_agree_with_storage_alone() -> None:
    (loop, *_) = run().loops
    # A rank waits 20 ms for its data and 60 ms for another one that reads; steps are held by reads for 80 ms.
    times = {"data_wait_seconds": spread(0.02), "sync_wait_seconds": spread(0.06), "compute_seconds": spread(0.12)}
    times |= {"clear_steps": 60, "clear_data_wait_seconds": 4 * 0.02 / 60}
    held = {"storage_utilization": 0.6, "storage_step_seconds": 0.2, "tool_seconds": spread(0.0)}
    epochs = tuple(replace(one, **times, **held, oversleep_share=0.0) for one in loop.epochs)
    text = lines_of(answered(epochs=(1,)), phases=(replace(loop, epochs=epochs),))
    assert "LOOP     busy 60 %, storage 10 % (+ 30 % hidden), sync 30 % of epoch 1" in text
    own = {"data_wait_seconds": spread(0.08), "clear_data_wait_seconds": 4 * 0.08 / 60}
    even = tuple(replace(one, **own, sync_wait_seconds=spread(0.0)) for one in epochs)
    text = lines_of(answered(epochs=(1,)), phases=(replace(loop, epochs=even),))
    assert "LOOP     busy 60 %, storage 40 % of epoch 1" in text


def test_all_large_shares_are_there_where_there_is_room_and_else_what_fits_in_one_line() -> None:
    (loop, *_) = run().loops
    long = {"checkpoint_seconds": spread(0.05), "sync_wait_seconds": spread(0.05), "storage_utilization": 0.1}
    epochs = tuple(replace(one, **long, storage_step_seconds=0.5) for one in loop.epochs)
    loops = (replace(loop, epochs=epochs),)
    text = "\n".join(lines_of(answered(epochs=(1,)), phases=loops))
    assert " ".join(text.split("LOOP ")[1].split("TRY")[0].split()).endswith("sync 6.7 %, saves 6.7 % of epoch 1")
    lines = lines_of(answered(epochs=(1,), reasons=(because(),)), phases=(*loops, *run().saves))
    (row,) = (line for line in lines if line.startswith("LOOP"))
    assert row.endswith("sync 6.7 % of epoch 1") and len(row) <= 80 and len(lines) == 8
    late = tuple(replace(one, sync_wait_seconds=spread(0.0), oversleep_share=0.5) for one in epochs)
    (row,) = (line for line in lines_of(answered(epochs=(1,)), phases=(replace(loop, epochs=late),)) if "LOOP" in line)
    assert "rest " in row or "late wake-ups" in row


def test_a_loop_that_storage_feeds_reads_what_it_asks_for() -> None:
    lines = lines_of(answered(verdict="feeds"))
    assert lines[2] == "STORAGE  loop needs 2.91 GB/s, asked for 1.97 GB/s from the device (epoch 1)"


def test_what_the_ranks_waited_for_stays_where_there_is_no_room_for_all() -> None:
    lines = lines_of(answered(verdict="cannot say", reasons=(because(12),)))
    names = [line.split()[0] for line in lines]
    assert "LOOP" in names and "MEMORY" not in names and len(lines) <= 9


def test_the_accelerator_whose_compute_it_is_has_its_name() -> None:
    environment = replace(run().environment, details=(("accelerator", "h100"),))
    lines = lines_of(answered(), environment=environment)
    assert lines[1] == "ANSWER   does not feed: h100 busy 61 % (only storage counted), goal 90 %"


@pytest.mark.parametrize(("alone", "busy"), [(0.612, "61 %"), (0.896, "89.6 %"), (0.9, "90.0 %"), (0.004, "0.40 %")])
def test_the_figure_of_the_answer_is_not_rounded_to_its_goal(alone: float, busy: str) -> None:
    lines = lines_of(answered(storage_utilization=Spread(alone, alone, alone)))
    assert f"accelerators busy {busy} (only" in lines[1]


def test_saves_that_took_much_of_a_loop_have_their_row_however_long_the_run_was() -> None:
    (loop, *_) = run().loops
    busy = tuple(replace(one, checkpoint_seconds=spread(0.5)) for one in loop.epochs)
    more = {"reasons": (because(),), "epochs": (1,)}
    rows = {
        part: [line.split()[0] for line in lines_of(answered(**more), phases=(some, *run().saves), seconds=100.0)]
        for part, some in (("few", loop), ("many", replace(loop, epochs=busy)))
    }
    assert ("SAVES" in rows["few"], "SAVES" in rows["many"]) == (False, True)


def test_other_loops_have_their_answer_next_to_the_first_however_many_there_are() -> None:
    lines = lines_of(answered(reasons=(because(),)), answered(loop="check", verdict="feeds"))
    assert lines[2].startswith("ALSO     check: feeds: busy 61 %, goal 90 %")
    lines = lines_of(answered(), *(answered(loop=name, verdict="feeds") for name in "abc"))
    assert lines[2] == "ALSO     a: feeds; b: feeds; c: feeds"


def test_what_cache_memory_kept_did_not_come_from_the_page_cache() -> None:
    (loop, *_) = run().loops
    kept = tuple(change(one, bytes_moved=0, amplification=0.0) for one in loop.epochs[1:])
    lines = lines_of(answered(), phases=(replace(loop, epochs=(loop.epochs[0], *kept)),))
    assert "MEMORY   `cache memory` delivered epochs 2 to 5: not counted" in lines


def test_saves_in_memory_are_called_so() -> None:
    (disk,) = run().environment.file_systems
    environment = replace(run().environment, file_systems=(disk, replace(disk, root="fast", kind="tmpfs")))
    saves = tuple(replace(one, root="fast") for one in run().saves)
    (line,) = lines_of(phases=saves, environment=environment)[1:]
    assert " to memory, held " in line


@pytest.mark.parametrize(("flushes", "how"), [((0.0, 0.0), ""), ((0.0, 0.5), " partly async"), ((0.5, 0.5), " async")])
def test_saves_in_the_background_are_called_async(flushes: tuple[float, ...], how: str) -> None:
    saves = [SavePhase("c", "save", 0.5, verb=flushed(0.02, 0.48) if one else saved(0.5)) for one in flushes]
    (line,) = [one for one in lines_of(phases=tuple(saves)) if one.startswith("SAVES")]
    assert line.startswith(f"SAVES    2 x 500 ms{how}, 200 MB/s, held ")


def test_a_run_without_loops_has_its_saves_and_restores() -> None:
    saves = run().saves
    assert [line.split()[0] for line in lines_of(phases=tuple(saves))] == ["cosmoflow", "SAVES"]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), ""),
        ((3,), "epoch 3"),
        ((1, 2), "epochs 1 and 2"),
        ((1, 3), "epochs 1 and 3"),
        ((2, 3, 4, 5), "epochs 2 to 5"),
    ],
)
def test_epochs_are_named(numbers: tuple[int, ...], text: str) -> None:
    assert name_epochs(numbers) == text


def test_a_restore_whose_reads_are_not_counted_gave_at_most_its_rate() -> None:
    (save, *_) = run().saves

    def line_of(device: int | None) -> str:
        (disk,) = run().environment.file_systems
        environment = replace(run().environment, file_systems=(replace(disk, kind="ext4"),))
        verb = replace(save.verb, device_bytes=device)
        return lines_of(phases=(RestorePhase("model", "restore", 0.24, verb=verb),), environment=environment)[1]

    assert line_of(None) == "RESTORES 1 x 240 ms, at most 417 MB/s, held 4.6 % of the run"
    assert line_of(50_000_000) == "RESTORES 1 x 240 ms, 417 MB/s (50 % from the device), held 4.6 % of the run"


def test_the_title_has_the_file_system_of_the_loop() -> None:
    (disk,) = run().environment.file_systems
    environment = replace(
        run().environment, file_systems=(disk, replace(disk, root="fast", kind="xfs", directory="/x"))
    )
    (loop, *_) = run().loops
    assert lines_of(environment=environment, phases=(replace(loop, root="fast"),))[0].endswith("  xfs  posix  /x")


def test_reads_out_of_memory_are_not_called_storage() -> None:
    shown = {answer.source: answer_lines(replace(run(), answers=(answer,))) for answer in SOURCED}
    assert "reads 50 %" in shown["memory"] and "storage 50 %" not in shown["memory"]
    assert "storage 50 %" in shown["device"]


SOURCED = [
    replace(run().answers[0], source=source, verdict=verdict)
    for source, verdict in (("memory", "not a storage result"), ("device", "does not feed"))
]


def test_how_often_to_save_is_said_or_why_it_is_unknown() -> None:
    save = SavePhase("model", "save", 2.0, verb=saved(2.0))
    verb = saved(2.0, bytes=2**30)
    half = replace(save, name="half", part_of="1/2 of the bytes of m", whole_times=2.0, verb=verb)
    loops = run().loops
    text = lines_of(answered(advice=()), phases=(*loops, save, half), mtbf=14_400.0)
    # After the verdict, as it is what was asked.
    assert [line[:9].strip() for line in text[1:4]] == ["ANSWER", "INTERVAL", "INTERVAL"]
    assert text[2] == "INTERVAL model 3.98 min (1.67 % lost in all): best, as the job fails every 4 h"
    assert " ".join(" ".join(text[3:5]).split()) == (
        "INTERVAL half 5.6 min (2.4 % lost in all) if the job fails every 4 h: an estimate for all 2.15 GB, if storage "
        "keeps the 537 MB/s of this part"
    )
    tiny = replace(half, verb=saved(2.0), part_of="1/1000 of the bytes of m")
    lines = lines_of(phases=(tiny,), mtbf=14_400.0, arguments=("run", "a.dlio", "--mtbf", "4 h"))
    part = lines.index("INTERVAL half: unknown: 25 MB per rank is too little for a rate; save more:")
    assert lines[part + 1] == "mpiexec -n 4 dliosim run a.dlio --mtbf '4 h' -D m.scale=300"
    unscaled = replace(tiny, part_of="2 of 4 ranks")
    text = " ".join(" ".join(lines_of(phases=(unscaled,), mtbf=14_400.0)).split())
    assert "of this part, a low guess from 25 MB per rank" in text
    assert "INTERVAL unknown, as nothing was saved" in lines_of(answered(), phases=tuple(loops), mtbf=14_400.0)
    assert not any(line.startswith("INTERVAL") for line in lines_of(answered(), phases=(*loops, save)))


def test_saves_that_differ_are_repeated_and_failures_that_come_too_often_leave_no_interval() -> None:
    saves = [SavePhase("model", "save", each, verb=saved(each)) for each in (1.0, 2.5)]

    def every(mtbf: float, *phases: SavePhase) -> str:
        rows = " ".join(" ".join(lines_of(phases=phases, mtbf=mtbf)).split())
        return rows.partition("INTERVAL ")[2].partition(" SAVES")[0]

    text = every(14_400.0, *saves)
    assert text.endswith("fails every 4 h; saves of model took 1.0 s to 2.5 s: repeat it")
    assert "repeat" not in every(14_400.0, saves[0], saves[0])
    assert every(0.1, saves[0]).startswith("model at no interval (over 99 % lost)")


def test_saves_in_memory_say_nothing_about_how_often_to_save_nor_do_those_of_a_run_without_io() -> None:
    save = SavePhase("model", "save", 2.0, verb=saved(2.0))
    place = replace(run().environment.file_systems[0], kind="tmpfs")
    tmpfs = replace(run().environment, file_systems=(place,))
    for part in ("", "1/2 of the bytes of m"):
        phases = (replace(save, part_of=part),)
        made = {"phases": phases, "mtbf": 14_400.0}
        text = "\n".join(lines_of(environment=tmpfs, **made))
        assert "INTERVAL model: unknown, as saves in memory say nothing about storage" in text
        assert "--bandwidth" not in text
        section = interval_section(run(environment=tmpfs, **made))
        assert section == "how often to save model is unknown: saves in memory say nothing about storage"
        assert "INTERVAL unknown, as nothing was saved (--null)" in lines_of(null=True, **made)
        assert interval_section(run(null=True, **made)) == ""
