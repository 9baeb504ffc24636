"""Patterns out of traces that were made by hand: each value, where it comes from, and when it unknown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.analyze.infer.facts import Setting
from dliosim.analyze.infer.pattern import InferredPattern, explain_work, infer_pattern
from dliosim.errors import TraceError
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Loop, Workload
from dliosim.plan.forecast.forecast import loops_of
from tests.analyze.rows import MS, Row, compute, read, view, write


def infer(rows: Sequence[Row], **more: object) -> InferredPattern:
    return infer_pattern(view(rows, **more))  # type: ignore[arg-type]


def compiled(made: InferredPattern, place: Path) -> Workload:
    file = place / "made.dlio"
    file.write_text(made.text.replace("NAME", "made"))
    return compile_pattern(file, [], Job(made.ranks))[0]


def first_loop(made: InferredPattern, place: Path) -> Loop:
    return next(iter(loops_of(compiled(made, place).verbs)))


def line_of(made: InferredPattern, head: str) -> str:
    return next(line for line in made.text.splitlines() if line.split()[:1] == [head])


def epoch(begin: int, duration: int, process: int = 0, **more: object) -> Row:
    return Row("epoch", begin, duration, process, "application", **more)  # type: ignore[arg-type]


def steps_of(
    order: Sequence[Sequence[int]], batch: int, epochs: int = 1, size: int = 1000, compute_ms: int = 5
) -> list[Row]:
    """Return the steps of ranks that read samples of a shared file; `order` has those of each rank in an epoch."""
    rows = []
    for rank, samples in enumerate(order):
        now = 0
        for number in range(epochs):
            begun = now
            for step in range(len(samples) // batch):
                for sample in samples[step * batch : (step + 1) * batch]:
                    rows.append(read(now, MS // 10, "/d/all", sample * size, size, process=rank, epoch=number + 1))
                    now += MS // 5
                rows.append(compute(now, compute_ms * MS, rank))
                now += compute_ms * MS
            rows.append(epoch(begun, now - begun, rank, epoch=number + 1))
            now += MS
    return rows


SHUFFLED = np.random.default_rng(1).permutation(48)


def test_a_shuffled_loop_over_a_shared_file(tmp_path: Path) -> None:
    made = infer(steps_of([SHUFFLED[:24], SHUFFLED[24:]], 4, epochs=3))
    workload = compiled(made, tmp_path)
    loop = first_loop(made, tmp_path)
    (data,) = workload.datasets
    assert (made.ranks, data.samples, data.constant_size, data.layout.kind) == (2, 48, 1000, "shared file")
    assert (loop.epochs, loop.batch, loop.compute.time.mean, loop.access.readers) == (3, 4, 5e-3, 0)
    assert loop.shuffle.samples == "within shard"
    assert explain_work(made.work, workload) == {"bytes": 1.0, "calls": 1.0, "files": 1.0}


def test_ranks_that_get_other_samples_in_each_epoch_shuffle_globally(tmp_path: Path) -> None:
    again = np.random.default_rng(2).permutation(48)
    rows = steps_of([SHUFFLED[:24], SHUFFLED[24:]], 4)
    later = steps_of([again[:24], again[24:]], 4)
    for row in later:
        row.begin += 1000 * MS
        row.epoch = 2 if row.epoch > 0 else row.epoch
    assert first_loop(infer([*rows, *later]), tmp_path).shuffle.samples == "globally"


@pytest.mark.parametrize(
    ("order", "shard"),
    [
        ([range(0, 48, 2), range(1, 48, 2)], "by sample"),
        ([range(24), range(24, 48)], "by block"),
        ([range(24), range(24)], "off"),
    ],
)
def test_the_order_of_the_file_and_how_ranks_share_it(order: list[range], shard: str, tmp_path: Path) -> None:
    loop = first_loop(infer(steps_of(order, 4)), tmp_path)
    assert (loop.shuffle.samples, loop.shard) == ("off", shard)


def test_a_call_that_may_be_several_samples_is_a_guess() -> None:
    rows = steps_of([range(24)], 1)
    for row in rows:
        row.step = 1 if row.kind != "read" else row.offset // 1000 + 1
    assert "# ? 1 call a step" in line_of(infer(rows), "batch")


def test_calls_of_several_samples_are_divided_if_a_smaller_one_shows_their_size(tmp_path: Path) -> None:
    rows, place = [], 0
    for step, many in enumerate([4, 4, 4, 3, 4, 4, 4, 1], 1):
        rows += [read(step * 10 * MS, MS, "/d/all", place * 5000, many * 5000, step=step, epoch=1)]
        rows += [compute(step * 10 * MS + 2 * MS, 5 * MS)]
        place += many
    made = infer([*rows, epoch(0, 200 * MS)])
    (data,) = compiled(made, tmp_path).datasets
    assert (data.samples, data.constant_size) == (28, 5000)
    assert first_loop(made, tmp_path).batch == 4


def test_pieces_of_a_sample_are_put_together(tmp_path: Path) -> None:
    rows, now = [], 0
    for sample in np.random.default_rng(3).permutation(12).tolist():
        for piece, size in enumerate((8192, 8192, 3000)):
            rows.append(read(now, MS // 10, "/d/all", sample * 19384 + piece * 8192, size))
            now += MS // 5
        rows.append(compute(now, 5 * MS))
        now += 6 * MS
    made = infer(rows)
    (data,) = compiled(made, tmp_path).datasets
    assert (data.samples, data.constant_size) == (12, 19384)
    assert first_loop(made, tmp_path).access.transfer == 8192


def read_files(number: int, gap: int, batch: int = 4) -> list[Row]:
    """Return the reads of whole files, with a gap behind each batch, in ms."""
    rows, now = [], 0
    for file in range(number):
        rows += [Row("open", now, MS // 100, file=f"/d/{file:03d}.npz")]
        rows += [read(now + MS // 50, MS, f"/d/{file:03d}.npz", 0, 50_000 + file)]
        now += MS + MS // 10 + (gap * MS if file % batch == batch - 1 else 0)
    return rows


def test_gaps_between_batches_show_them_without_steps(tmp_path: Path) -> None:
    made = infer(read_files(40, gap=20))
    loop = first_loop(made, tmp_path)
    assert (loop.batch, loop.access.open) == (4, "each sample")
    assert loop.compute.time.mean == pytest.approx(20e-3, rel=0.05)
    assert compiled(made, tmp_path).datasets[0].layout.kind == "file per sample"


def test_without_steps_and_gaps_the_batch_is_unknown() -> None:
    made = infer(read_files(40, gap=0))
    assert "# batch: unknown: " in made.text
    assert sum(isinstance(line, Setting) and not line.fact.is_sure for line in made.lines) >= 2


def test_threads_that_read_at_a_time_are_readers(tmp_path: Path) -> None:
    rows = [
        read(
            step * 10 * MS + thread * MS,
            8 * MS,
            f"/d/{step * 3 + thread:03d}",
            0,
            5000,
            thread=thread + 1,
            step=step + 1,
        )
        for step in range(10)
        for thread in range(3)
    ]
    rows += [compute(step * 10 * MS, 5 * MS, step=step + 1) for step in range(10)]
    loop = first_loop(infer(rows), tmp_path)
    assert (loop.access.readers, loop.batch) == (3, 3)


def test_a_loop_between_the_epochs_of_another_is_an_evaluation(tmp_path: Path) -> None:
    rows = []
    for number in range(4):
        begun = number * 1000 * MS
        rows.append(epoch(begun, 400 * MS))
        for step in range(8):
            rows += [
                read(begun + step * 40 * MS, MS, f"/train/{step:03d}.npz", 0, 9000),
                compute(begun + step * 40 * MS, 9 * MS),
            ]
        if number % 2:
            rows.append(epoch(begun + 500 * MS, 100 * MS))
            for step in range(2):
                at = begun + 500 * MS + step * 40 * MS
                rows += [read(at, MS, f"/valid/{step:03d}.npz", 0, 9000), compute(at, 3 * MS)]
        rows.append(write(begun + 700 * MS, MS, f"/ckpt/{number}/0.pt", 0, 5000))
    loop = first_loop(infer(rows), tmp_path)
    (inner,) = loop.evaluations
    assert (loop.epochs, inner.every, inner.loop.kind) == (4, 2, "evaluate")
    assert inner.loop.compute.time.mean == pytest.approx(3e-3)
    (saved,) = loop.checkpoints
    assert (saved.unit, saved.every) == ("epochs", 1)


def save_at(step: int, ranks: Sequence[int], size: int = 30_000, file: str = "/ckpt/step{step}/{rank}.pt") -> list[Row]:
    begin = 100 * MS * step - 40 * MS
    return [
        row
        for rank in ranks
        for row in (
            write(begin, MS, file.format(step=step, rank=rank), 0, size, process=rank),
            Row("fsync", begin + 2 * MS, MS, rank, file=file.format(step=step, rank=rank)),
        )
    ]


def long_steps(ranks: int, steps: int = 8) -> list[Row]:
    rows = [epoch(0, 100 * MS * steps + MS, rank) for rank in range(ranks)]
    for rank in range(ranks):
        for step in range(steps):
            sample = rank + ranks * step
            rows += [
                read(100 * MS * step, MS, f"/d/{sample:03d}.npz", 0, 9000, process=rank, epoch=1, step=step + 1),
                compute(100 * MS * step + 2 * MS, 50 * MS, rank, epoch=1, step=step + 1),
            ]
    return rows


@pytest.mark.parametrize(
    ("steps", "ranks", "cadence", "writers"),
    [
        ((2, 4, 6), (0, 1, 2), ("steps", 2), "file per rank"),
        ((8,), (0,), ("end", 1), "rank"),
        ((3, 6), (1,), ("steps", 3), "rank"),
    ],
)
def test_when_and_by_whom_checkpoints_are_saved(
    steps: tuple[int, ...], ranks: tuple[int, ...], cadence: tuple[str, int], writers: str, tmp_path: Path
) -> None:
    made = infer([*long_steps(3), *(row for step in steps for row in save_at(step, ranks))])
    (kept,) = compiled(made, tmp_path).checkpoints
    (found,) = first_loop(made, tmp_path).checkpoints
    assert (found.unit, kept.writers.kind) == (cadence[0], writers)
    assert found.unit == "end" or found.every == cadence[1]
    assert kept.fsync
    assert f"{len(steps)} save" in line_of(made, "part")


def test_files_that_are_written_in_a_loop_are_saves_by_any_name(tmp_path: Path) -> None:
    made = infer(
        [
            *long_steps(2),
            *save_at(4, (0,), file="/out/weights{step}.bin"),
            *save_at(8, (0,), file="/out/weights{step}.bin"),
        ]
    )
    (found,) = first_loop(made, tmp_path).checkpoints
    assert (found.unit, found.every) == ("steps", 4)


def test_what_belongs_to_neither_data_nor_saves_is_not_explained(tmp_path: Path) -> None:
    others = [read(200 * MS * number, MS, f"/usr/lib/python3/{number}.py", 0, 9000) for number in range(24)]
    made = infer([*long_steps(3), *others])
    assert explain_work(made.work, compiled(made, tmp_path)) == {"bytes": 0.5, "calls": 0.5, "files": 0.5}


def test_what_a_pattern_does_less_often_is_not_explained(tmp_path: Path) -> None:
    rows = [read(step * MS, MS // 2, f"/d/{step:02d}.npz", 0, 9000, process=step % 3) for step in range(10)]
    made = infer(rows)
    shares = explain_work(made.work, compiled(made, tmp_path))
    assert shares["calls"] == pytest.approx(0.9)  # ten samples on three ranks: the last batch is dropped


def test_data_that_would_last_longer_end_with_the_steps_of_the_trace(tmp_path: Path) -> None:
    prepared = [write(number, 1, f"/d/{number:03d}.npz", 0, 9000) for number in range(48)]
    rows = long_steps(2)
    for row in rows:
        row.begin += MS
    made = infer([*prepared, *rows])
    (data,) = compiled(made, tmp_path).datasets
    assert (data.samples, first_loop(made, tmp_path).steps) == (48, 8)


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ([read(0, MS)], {"incomplete": ("lines lost: 3",)}, "incomplete"),
        ([], {}, "no reads of data and no saves"),
        ([compute(0, MS)], {}, "no reads of data and no saves"),
    ],
)
def test_a_trace_that_does_not_tell_its_job_is_refused(rows: list[Row], more: dict[str, object], said: str) -> None:
    with pytest.raises(TraceError, match=said):
        infer(rows, **more)


def test_no_name_of_a_file_is_in_a_pattern() -> None:
    made = infer([*long_steps(3), *save_at(4, (0,), file="/home/someone/secret{step}/w.pt")])
    assert "secret" not in made.text and "someone" not in made.text


def test_names_that_are_kept_are_in_comments(tmp_path: Path) -> None:
    rows = [read(number * MS, MS // 2, f"/d/a\n}}\x1b[1m{number:03d}.npz", 0, 9000 + number) for number in range(9)]
    made = infer_pattern(view(rows), keep_names=True)
    assert made.text.count("# /d/a") == 2
    compiled(made, tmp_path)


PATHS = st.sampled_from(
    [
        "/d/a.npz",
        "/d/b.npz",
        "/d/c/x",
        "",
        "/ckpt/1/0.pt",
        "/ckpt/2/0.pt",
        "/t/n01/a.JPEG",
        "/usr/lib/x.so",
        "/d/a.\x1b[1m\nq",
    ]
)
ROWS = st.builds(
    Row,
    st.sampled_from(["read", "read", "write", "open", "close", "fsync", "seek", "compute", "epoch", "sync", "save"]),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 30),
    process=st.integers(0, 2),
    layer=st.sampled_from(["posix", "stdio", "mpi-io", "application"]),
    file=PATHS,
    offset=st.one_of(st.just(-1), st.integers(0, 1 << 50)),
    moved=st.one_of(st.just(-1), st.integers(0, 1 << 40)),
    epoch=st.integers(-1, 3),
    step=st.integers(-1, 4),
    thread=st.integers(0, 3),
)


@given(st.lists(ROWS, min_size=1, max_size=40))
def test_any_calls_give_a_pattern_or_a_refusal(rows: list[Row]) -> None:
    try:
        made = infer(rows)
    except TraceError:
        return
    assert all(line.isprintable() for line in made.text.split("\n"))
    assert not any(line.startswith("q") for line in made.text.splitlines())


def images(classes: int, each: int) -> list[Row]:
    places = [f"/in/train/n{number:05d}/{file}.JPEG" for number in range(classes) for file in range(each)]
    order = np.random.default_rng(5).permutation(len(places)).tolist()
    return [read(at * MS, MS // 2, places[file], 0, 9000 + file) for at, file in enumerate(order)]


def test_folders_of_classes_are_one_data_set(tmp_path: Path) -> None:
    (data,) = compiled(infer(images(200, 4)), tmp_path).datasets
    assert (data.layout.kind, data.samples, data.layout.folders) == ("file per sample", 800, 200)


def test_a_rest_at_the_end_of_a_file_is_no_divisor(tmp_path: Path) -> None:
    rows = [read(number * MS, MS // 2, "/d/all", number * 10_000, 10_000) for number in range(199)]
    made = infer([*rows, read(199 * MS, MS // 2, "/d/all", 1_990_000, 7331)])
    assert compiled(made, tmp_path).datasets[0].samples == 200


def test_two_data_sets_that_are_read_in_turn_do_not_compute_twice() -> None:
    rows = [
        row
        for step in range(32)
        for row in (
            read(step * 40 * MS, MS, f"/d/{step}.jpg", 0, 9000),
            read(step * 40 * MS + 2 * MS, MS, f"/l/{step}.npy", 0, 500),
            compute(step * 40 * MS + 5 * MS, 30 * MS),
        )
    ]
    made = infer(rows)
    assert [line.split()[1] for line in made.text.splitlines() if line.split()[:1] == ["compute"]] == ["30", "0"]
    assert "# ? read between the steps of the first loop" in made.text


def test_workers_that_read_in_order_do_not_shuffle(tmp_path: Path) -> None:
    rows = []
    for rank in range(2):
        for batch in range(12):
            for file in range(4):
                number = (batch * 2 + rank) * 4 + file
                at = (batch // 2) * 50 * MS + (batch % 2) * MS // 3 + file * 2 * MS
                rows.append(read(at, MS, f"/d/{number:03d}.npz", 0, 9000, process=rank, thread=1 + batch % 2))
    assert first_loop(infer(rows), tmp_path).shuffle.samples == "off"


@pytest.mark.parametrize("name", ["/ckpt/{step}/default/{rank}.pt", "/ckpt/rank{rank}/step{step}.pt"])
def test_checkpoints_are_numbered_in_any_part_of_their_path(name: str, tmp_path: Path) -> None:
    made = infer([*long_steps(2), *(row for step in (2, 4, 6, 8) for row in save_at(step, (0, 1), file=name))])
    (kept,) = compiled(made, tmp_path).checkpoints
    (found,) = first_loop(made, tmp_path).checkpoints
    assert (found.unit, found.every, kept.writers.kind) == ("steps", 2, "file per rank")
    assert "4 saves" in line_of(made, "part")


def test_a_flush_to_the_kernel_is_no_fsync() -> None:
    rows = [row for row in save_at(4, (0,)) if row.kind == "write"]
    flushes = [Row("fsync", 399 * MS, MS, file="/ckpt/step4/0.pt", name="fflush")]
    assert line_of(infer([*long_steps(1), *rows, *flushes]), "fsync").split()[1] == "off"


def test_a_batch_of_one_call_is_a_guess_by_steps_without_numbers() -> None:
    rows = [
        row
        for step in range(20)
        for row in (read(step * 9 * MS, MS, "/d/a", step * 4000, 4000), compute(step * 9 * MS + MS, 7 * MS))
    ]
    assert "# ?" in line_of(infer(rows), "batch")
