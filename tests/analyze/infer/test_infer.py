"""Patterns out of traces that were made by hand: each value, where it comes from, and when it unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.facts import list_settings, write_lines
from dliosim.analyze.infer.pattern import InferredPattern, explain_work, infer_pattern
from dliosim.analyze.read.darshan.counters import LogTrace
from dliosim.errors import TraceError
from dliosim.language.compile import compile_pattern
from dliosim.model import Convert, Job, Loop, Prepare, Restore, Workload
from dliosim.plan.forecast.forecast import loops_of
from tests.analyze.infer.test_sums import log_of
from tests.analyze.rows import MS, Row, compute, read, view, write


def infer(rows: Sequence[Row], **more: object) -> InferredPattern:
    return infer_pattern(view(rows, **more))  # type: ignore[arg-type]


def compiled(made: InferredPattern, place: Path) -> Workload:
    file = place / "made.dlio"
    file.write_text(write_lines(made.lines).replace("NAME", "made"))
    return compile_pattern(file, [], Job(made.ranks))[0]


def first_loop(made: InferredPattern, place: Path) -> Loop:
    return next(iter(loops_of(compiled(made, place).verbs)))


def line_of(made: InferredPattern, head: str) -> str:
    return next(line for line in write_lines(made.lines).splitlines() if line.split()[:1] == [head])


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
    assert "# batch: unknown: " in write_lines(made.lines)
    assert sum(not one.fact.is_sure for one in list_settings(made.lines)) >= 2


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
    assert "secret" not in write_lines(made.lines) and "someone" not in write_lines(made.lines)


def test_names_that_are_kept_are_in_comments(tmp_path: Path) -> None:
    rows = [read(number * MS, MS // 2, f"/d/a\n}}\x1b[1m{number:03d}.npz", 0, 9000 + number) for number in range(9)]
    made = infer_pattern(view(rows), keep_names=True)
    assert write_lines(made.lines).count("/d/a") == 2
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
    assert all(line.isprintable() for line in write_lines(made.lines).split("\n"))
    assert not any(line.startswith("q") for line in write_lines(made.lines).splitlines())


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


def images_and_labels(labels: int, size: int) -> list[Row]:
    """Return 32 steps that read an image and, until there are no more, a file of labels."""
    steps = [(at, at * 40 * MS) for at in range(32)]
    rows = [read(begin, MS, f"/d/{at}.jpg", 0, 9000) for at, begin in steps]
    rows += [read(begin + 2 * MS, MS, f"/l/{at}.npy", 0, size) for at, begin in steps[:labels]]
    return sorted([*rows, *(compute(begin + 5 * MS, 30 * MS) for _, begin in steps)], key=lambda row: row.begin)


@pytest.mark.parametrize("size", [500, 8])
def test_a_loop_reads_samples_of_the_same_numbers_of_two_data_sets(size: int, tmp_path: Path) -> None:
    made = infer(images_and_labels(32, size))
    loop = first_loop(made, tmp_path)
    assert str(loop.dataset) == "data, data2"
    assert (loop.batch, loop.compute.time.mean) == (1, 0.03)
    assert [one.samples for one in compiled(made, tmp_path).datasets] == [32, 32]


def test_a_size_that_stands_for_others_says_so() -> None:
    made = infer([read(at * 10 * MS, MS, f"/d/{at}.jpg", 0, 9000 + at // 199) for at in range(200)])
    assert line_of(made, "size").split()[1:4] == ["9", "kB", "#"] and "differ by 0.50 %" in line_of(made, "size")


def test_two_data_sets_of_other_numbers_do_not_compute_twice() -> None:
    made = infer(images_and_labels(16, 500))
    lines = write_lines(made.lines).splitlines()
    assert [line.split()[1] for line in lines if line.split()[:1] == ["compute"]] == ["30", "0"]
    assert "# ? read between the steps of the first loop" in write_lines(made.lines)


def test_data_sets_that_are_read_one_after_the_other_are_read_by_two_loops(tmp_path: Path) -> None:
    rows = [
        read((which * 40 + number) * 10 * MS, MS, f"/{'ab'[which]}/{number:02}.jpg", 0, 9000)
        for which in range(2)
        for number in range(40)
    ]
    loops = loops_of(compiled(infer(rows), tmp_path).verbs)
    assert [str(loop.dataset) for loop in loops] == ["data", "data2"]


def in_steps(reads: Sequence[Sequence[tuple[str, int, int]]]) -> list[Row]:
    """Return an epoch of a rank whose steps read some bytes at an offset of a file."""
    rows = [epoch(0, len(reads) * 100 * MS, epoch=1)]
    for step, some in enumerate(reads):
        begin, where = step * 100 * MS, {"epoch": 1, "step": step + 1}
        rows += [read(begin + at * MS, MS // 2, *one, **where) for at, one in enumerate(some)]
        rows.append(replace(compute(begin + 50 * MS, 40 * MS), **where))
    return rows


def test_labels_that_a_step_reads_by_one_call_are_as_many_as_its_samples(tmp_path: Path) -> None:
    order = np.random.default_rng(4).permutation(64).reshape(8, 8).tolist()
    made = infer(
        in_steps(
            [
                [*(("/d/all", one * 1000, 1000) for one in some), ("/l/all", at * 64, 64)]
                for at, some in enumerate(order)
            ]
        )
    )
    labels = compiled(made, tmp_path).datasets[1]
    assert (labels.samples, labels.size.mean) == (64, 8)
    assert str(first_loop(made, tmp_path).dataset) == "data, data2"
    assert line_of(made, "read").rpartition("#")[2].startswith(" ? ")


def test_a_mixture_has_the_shares_that_its_steps_read(tmp_path: Path) -> None:
    source = np.random.default_rng(3).permutation(np.repeat([0, 1], [75, 25]))
    place = np.where(source, np.cumsum(source) - 1, np.cumsum(1 - source) - 1) % np.array([75, 10])[source]
    reads = [
        (f"/{'ab'[which]}/all", at * 1000, 1000) for which, at in zip(source.tolist(), place.tolist(), strict=True)
    ]
    made = infer(in_steps([reads[first : first + 5] for first in range(0, 100, 5)]))
    loop = first_loop(made, tmp_path)
    assert str(loop.dataset) == "data 75 %, data2 25 %, until all end"
    assert (loop.batch, loop.steps) == (5, 20)
    assert [one.samples for one in compiled(made, tmp_path).datasets] == [75, 10]


def test_the_batch_is_a_guess_if_other_data_sets_are_read_in_the_same_epochs() -> None:
    rows = []
    for step in range(24):  # half of them train, half evaluate
        begin, folder = step * 40 * MS, "train" if step < 12 else "valid"
        rows += [
            read(begin + at * MS, MS // 2, f"/{folder}/{step % 12 * 4 + at:02}.npz", 0, 9000, thread=1)
            for at in range(4)
        ]
        rows.append(compute(begin + 5 * MS, 30 * MS))
    rows.append(epoch(0, 24 * 40 * MS))
    assert "# ? 2 samples for each step of a rank, and some steps" in line_of(infer(rows), "batch")


def test_copies_from_mapped_files_are_one_call_of_an_engine(tmp_path: Path) -> None:
    steps = [[(f"/{name}/all", step * 1000, 1000) for name in "ab"] for step in range(12)]
    rows = [replace(row, name="copies from a mapping") if row.kind == "read" else row for row in in_steps(steps)]
    begins = {row.step: row.begin for row in reversed(rows) if row.kind == "read"}
    made = infer([replace(row, begin=begins[row.step]) if row.kind == "read" else row for row in rows])
    assert first_loop(made, tmp_path).access.engine == "mmap"
    assert made.work.parts["loop"] == (24_000, 12)


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


@pytest.mark.parametrize(
    ("deleted", "file", "keep"), [((2, 4), "step{step}", 1), ((2,), "step{step}", 2), ((), "last", 1)]
)
def test_how_many_saves_are_kept(deleted: tuple[int, ...], file: str, keep: int, tmp_path: Path) -> None:
    rows = [
        *long_steps(1),
        *(row for step in (2, 4, 6) for row in save_at(step, (0,), file=f"/ckpt/{file}/{{rank}}.pt")),
    ]
    rows += [Row("metadata", 900 * MS + step, 1, name="unlink", file=f"/ckpt/step{step}/0.pt") for step in deleted]
    (kept,) = compiled(infer(rows), tmp_path).checkpoints
    assert kept.keep == keep


def test_saves_that_no_call_deletes_may_be_kept() -> None:
    made = infer([*long_steps(1), *(row for step in (2, 4, 6) for row in save_at(step, (0,)))])
    assert "# keep: unknown" in write_lines(made.lines)


def shuffled_files(ranks: int, epochs: int, files: int = 24) -> list[Row]:
    """Return reads of files in a new order each epoch, of 4 samples in 2 steps each; ranks get files in turn."""
    rows = []
    for number in range(epochs):
        order = np.random.default_rng(number).permutation(files)
        for rank in range(ranks):
            now, where = number * 1000 * MS, {"process": rank, "epoch": number + 1}
            for step, (file, sample) in enumerate((file, 2 * half) for file in order[rank::ranks] for half in range(2)):
                for place in sample, sample + 1:
                    rows.append(read(now, MS // 9, f"/d/{file:02d}", place * 1000, 1000, step=step + 1, **where))
                    now += MS // 5
                rows.append(compute(now, 5 * MS, rank, step=step + 1))
                now += 6 * MS
            rows.append(epoch(number * 1000 * MS, 900 * MS, rank, epoch=number + 1))
    return rows


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_files_in_any_order_whose_samples_are_in_theirs(ranks: int, tmp_path: Path) -> None:
    loop = first_loop(infer(shuffled_files(ranks, 3)), tmp_path)
    assert (loop.shuffle.files, loop.shuffle.samples) == ("globally", "off")
    assert loop.shard == ("by file" if ranks > 1 else "by sample")


def test_samples_that_all_ranks_read_in_different_epochs_are_shared_out(tmp_path: Path) -> None:
    orders = [np.random.default_rng(seed).permutation(48) for seed in range(12)]
    rows = []
    for number, order in enumerate(orders):
        later = steps_of([order[:24], order[24:]], 4)
        for row in later:
            row.begin += 1000 * MS * number
            row.epoch = number + 1 if row.epoch > 0 else row.epoch
        rows += later
    loop = first_loop(infer(rows), tmp_path)
    assert (loop.shard, loop.shuffle.samples, loop.epochs) == ("by sample", "globally", 12)


def test_a_data_set_that_is_written_while_another_is_read_is_a_conversion(tmp_path: Path) -> None:
    rows = [write(number, 1, f"/loose/{number:02d}", 0, 4000) for number in range(24)]
    for number in range(24):
        rows.append(read((number + 1) * MS, MS // 9, f"/loose/{number:02d}", 0, 4000))
        rows.append(write((number + 1) * MS + MS // 2, MS // 9, f"/packed/{number // 8}", number % 8 * 4000, 4000))
    for place, sample in enumerate(SHUFFLED[SHUFFLED < 24].tolist()):
        rows.append(read((30 + place) * MS, MS // 9, f"/packed/{sample // 8}", sample % 8 * 4000, 4000))
    workload = compiled(made := infer(rows), tmp_path)
    convert = next(verb for verb in workload.verbs if isinstance(verb, Convert))
    assert (convert.source, convert.dataset) == ("data", "data2")
    assert [verb.dataset for verb in workload.verbs if type(verb) is Prepare] == ["data"]
    assert explain_work(made.work, workload)["bytes"] == 1.0


@pytest.mark.parametrize(
    ("others", "everything", "doubt"), [(0, False, False), (10_000, False, True), (60_000, True, False)]
)
def test_how_much_of_a_save_each_rank_restores(others: int, everything: bool, doubt: bool, tmp_path: Path) -> None:
    rows = [*long_steps(2), *save_at(8, (0, 1))]
    for rank in range(2):
        for file in range(2):
            size = 30_000 if rank == file else others // 2
            rows += [read(2000 * MS, MS, f"/ckpt/step8/{file}.pt", 0, size, process=rank)] if size else []
    made = infer(rows)
    (restore,) = (verb for verb in compiled(made, tmp_path).verbs if isinstance(verb, Restore))
    assert (restore.everything, " were read: " in write_lines(made.lines)) == (everything, doubt)


def test_what_all_ranks_read_is_read_once_by_each(tmp_path: Path) -> None:
    made = infer(
        [read(step * MS, MS // 2, "/d/in", step * 900, 900, process=rank) for rank in range(3) for step in range(9)]
    )
    loop = first_loop(made, tmp_path)
    assert (loop.epochs, loop.shard) == (1, "off")
    assert min(explain_work(made.work, compiled(made, tmp_path)).values()) == 1.0


def test_files_that_are_written_after_the_reads_are_no_data(tmp_path: Path) -> None:
    rows = [read(step * MS, MS // 2, f"/d/{step}.h5", 0, 9000) for step in range(9)]
    made = infer([*rows, write(20 * MS, MS, "/d/result.h5", 0, 27_000)])
    assert compiled(made, tmp_path).datasets[0].samples == 9
    assert explain_work(made.work, compiled(made, tmp_path))["bytes"] == pytest.approx(0.75)


def test_a_small_file_of_settings_is_no_data(tmp_path: Path) -> None:
    rows = [read(step * MS, MS // 2, "/d/all", step * 90_000, 90_000) for step in range(30)]
    made = infer([read(0, 10, "/d/settings", 0, 70), *rows])
    (data,) = compiled(made, tmp_path).datasets
    assert (data.samples, data.layout.kind) == (30, "shared file")


def test_sizes_that_no_distribution_fits_are_a_guess() -> None:
    sizes = [9_000] * 20 + [90_000] * 20
    rows = [read(number * MS, MS // 2, f"/d/{number:03d}", 0, size) for number, size in enumerate(sizes)]
    assert "# ? the nearest distribution" in line_of(infer(rows), "size")


def test_calls_behind_what_was_written_show_that_others_are_missing() -> None:
    rows = [write(0, MS, "/d/all", 0, 25 * 4000)]
    rows += [read(step * MS, MS // 2, "/d/all", step * 4000, 4000) for step in range(2, 1002)]
    made = infer(rows, source="DFTracer")
    assert line_of(made, "samples").split()[1:4] == ["25", "#", "?"]
    assert line_of(made, "epochs").split()[1:4] == ["40", "#", "?"]


@pytest.mark.parametrize(
    ("layer", "calls", "said"),
    [
        ("mpi-io", 9, "api mpi-independent # 9 reads of MPI-IO"),
        ("mpi-io", 3, "api posix # ? as the file system sees them: 3 reads of MPI-IO, 0 of them collective"),
        ("mpi-io collective", 9, "api posix # ? as the file system sees them: 9 reads of MPI-IO, 9 of them"),
    ],
)
def test_calls_of_mpi_io_above_those_of_posix(layer: str, calls: int, said: str) -> None:
    below = [read(step * MS, MS // 2, "/d/all", step * 900, 900) for step in range(9)]
    above = [read(step * MS, MS // 2, "/d/all", step * 900, 8100 // calls, layer=layer) for step in range(calls)]
    assert said in " ".join(line_of(infer([*above, *below]), "api").split())


def test_a_batch_of_one_call_between_gaps_is_a_guess() -> None:
    rows, now = [], 0
    for step in range(60):
        rows.append(read(now, MS, "/d/all", step * 9000, 9000))
        now += 2 * MS if step % 30 == 5 else 90 * MS
    assert line_of(infer(rows), "batch").split()[1:5] == ["1", "per", "rank", "#"]
    assert "# ? 96 % of 57 groups" in line_of(infer(rows), "batch")


def test_fewer_samples_than_ranks_are_read_all_the_same(tmp_path: Path) -> None:
    made = infer([read(0, MS, f"/d/{rank}.bin", 0, 9000, process=rank) for rank in range(2)], ranks=5)
    assert min(explain_work(made.work, compiled(made, tmp_path)).values()) == 1.0


def test_refusals_name_what_the_trace_has_instead() -> None:
    with pytest.raises(TraceError, match=r"writes 10\.0 kB that are no checkpoint\n  = help: "):
        infer([write(0, MS, "/out/result.h5", 0, 10_000)])


@pytest.mark.parametrize(("every", "is_sure"), [(5, False), (20, True)])
def test_an_order_with_many_exceptions_is_a_guess(every: int, is_sure: bool) -> None:
    order = list(range(40))
    for number in range(0, 40, every):
        order[number : number + 2] = [number + 1, number]
    made = infer([read(at * MS, MS // 2, "/d/all", sample * 900, 900) for at, sample in enumerate(order)])
    assert line_of(made, "shuffle").split()[1] == "off"
    assert ("# ?" not in line_of(made, "shuffle")) == is_sure


def test_sizes_that_hardly_differ_are_sure() -> None:
    rows = [read(step * MS, MS // 2, f"/d/{step:03d}", 0, 90_000 + step % 2 * 900) for step in range(40)]
    assert "# the sizes differ by 1.0 % of their mean at most" in line_of(infer(rows), "size")


def infer_processes(rows: Sequence[Row], rank: int, ranks: int = 0, source: str = "DFTracer") -> InferredPattern:
    """Return the pattern of a trace whose processes all have one rank, or none."""
    made = view(rows, ranks, source=source).trace
    processes = tuple(replace(one, rank=rank) for one in made.events.processes)
    return infer_pattern(View(replace(made, events=replace(made.events, processes=processes))))


def worker_reads(workers: int, batches: int, begin: int = 0, first: int = 1, late: int = 0) -> list[Row]:
    """Return an epoch in which new processes each read batches of 4 in turn, two of them at once, ms each 30."""
    rows = []
    for worker in range(workers):
        for batch in range(batches):
            at = begin + worker * (3 + late) + (max(batch - 1, 0) * workers + worker) * 30 + batch % 2
            for file in range(4):
                name = f"/d/{(batch * workers + worker) * 4 + file:03d}.npz"
                rows.append(read((at * 100 + file * 20) * MS // 100, MS // 10, name, 0, 9000, process=first + worker))
    return rows


def test_a_process_that_a_rank_has_forked_is_a_reader() -> None:
    rows = [Row("other", 0, 1), *worker_reads(1, 12, 10), *worker_reads(1, 12, 1000, first=2)]
    line = line_of(infer_processes(rows, rank=0), "readers")
    assert line.split()[1] == "1" and "# ?" not in line


def test_workers_that_end_before_others_begin_are_readers_in_doubt() -> None:
    rows = [Row("other", 0, 1), *worker_reads(4, 3, 10, late=17), *worker_reads(4, 3, 1000, first=5, late=17)]
    line = line_of(infer_processes(rows, rank=0), "readers")
    assert line.split()[1] == "4" and "# ?" in line


@pytest.mark.parametrize(("ranks", "readers"), [(5, 2), (0, 0)])
def test_processes_without_ranks_are_readers_only_if_one_does_not_read(ranks: int, readers: int) -> None:
    first = 1 if ranks else 0
    rows = worker_reads(2, 12, 10, first=first)
    rows += worker_reads(2, 12, 1000, first=first + 2 if ranks else first)
    line = line_of(infer_processes(rows, -1, ranks, "Darshan DXT"), "readers")
    assert line.split()[1] == str(readers) and "# ?" in line


def test_a_log_without_threads_leaves_readers_in_doubt() -> None:
    assert "# ?" in line_of(infer(read_files(40, gap=20), source="Darshan DXT"), "readers")


def test_an_odd_pause_within_a_batch_does_not_hide_the_others() -> None:
    rows = read_files(80, gap=60)
    for row in rows[50:]:
        row.begin += 9 * MS
    line = line_of(infer(rows), "batch")
    assert line.split()[1] == "4" and "# ?" not in line


def test_few_groups_of_reads_make_a_batch_by_what_divides_them() -> None:
    rows = [Row("other", 0, 1), *worker_reads(8, 3, 10), *worker_reads(8, 3, 2000, first=9)]
    line = line_of(infer_processes(rows, rank=0), "batch")
    assert line.split()[1] == "4" and "# ?" in line


def stream_files(files: int, name: str, pause: int, many: int = 16, size: int = 10_000) -> list[Row]:
    """Return reads of files from begin to end, with a pause in ms within each."""
    rows, now = [], 0
    for file in range(files):
        for call in range(many):
            now += MS // 2 + (pause * MS if call == many // 2 else 0)
            rows.append(read(now, MS // 10, name.format(file), call * size, size))
    return rows


@pytest.mark.parametrize(("name", "pause"), [("/d/{}.shard", 30), ("/d/{}.tar", 0)])
def test_files_with_pauses_within_or_of_archives_may_have_several_samples(name: str, pause: int) -> None:
    made = infer(stream_files(12, name, pause))
    assert all("# ?" in line_of(made, head) for head in ("samples", "size", "layout"))
    made = infer(stream_files(12, "/d/{}.shard", 0))
    assert not any("# ?" in line_of(made, head) for head in ("samples", "size", "layout"))


def test_calls_of_a_buffer_leave_samples_in_doubt() -> None:
    rows = [read(call * MS, MS // 10, "/d/all", call * 65536, 65536) for call in range(40)]
    rows += [read(40 * MS + call * MS, MS // 10, "/d/all", call * 65536 + 3, 20_000) for call in range(10)]
    made = infer(rows)
    assert "# ?" in line_of(made, "samples") and "# ?" not in line_of(made, "layout")


def test_files_in_any_order_whose_samples_are_in_order(tmp_path: Path) -> None:
    order = np.random.default_rng(4).permutation(16).tolist()
    rows = [
        read((half * 200 + place * 10 + sample) * MS, MS // 2, f"/d/{file:02d}.h5", (half * 10 + sample) * 5000, 5000)
        for half in range(2)
        for place, file in enumerate(order)
        for sample in range(10)
    ]
    shuffle = first_loop(infer(rows), tmp_path).shuffle
    assert (shuffle.samples, shuffle.files) == ("off", "globally")


def test_workers_with_few_files_each_show_no_sure_order() -> None:
    rows = [Row("other", 0, 1)]
    rows += [
        read((file % 4 * 10 + file // 4 * 200) * MS, MS, f"/d/{file}.npz", 0, 9000, process=1 + file % 4)
        for file in range(8)
    ]
    assert "# ?" in line_of(infer_processes(rows, rank=0), "shuffle")


@pytest.mark.parametrize("end", [200_000, 52_000])  # the second as of a small array of numpy
def test_a_file_that_is_sought_beyond_its_reads_is_as_large_as_that_in_doubt(end: int) -> None:
    rows = read_files(40, gap=20)
    rows += [Row("seek", row.begin + MS, 1, file=row.file, offset=end) for row in rows if row.kind == "read"]
    line = line_of(infer(rows), "size")
    assert line.split()[1:3] == [f"{end // 1000}", "kB"] and "# ?" in line


def test_a_write_after_the_first_read_does_not_make_a_data_set(tmp_path: Path) -> None:
    rows = read_files(40, gap=20)
    rows += [write(row.begin + 2 * MS, 1, row.file, 500_000, 1) for row in rows if row.kind == "read"]
    (data,) = compiled(infer(rows), tmp_path).datasets
    assert (data.samples, data.layout.kind) == (40, "file per sample")


def test_a_file_that_streams_of_c_read_is_as_large_as_counted_in_doubt() -> None:
    rows = read_files(40, gap=20)
    counters = [{"file": row.file, "rank": 0, "BYTES_READ": 150_000, "MAX_BYTE_READ": 199_999} for row in rows[1::2]]
    made = view(rows, source="Darshan DXT").trace
    log = LogTrace("Darshan DXT", "log", made.events, made.duration, counters=log_of(counters, 1, "STDIO").counters)
    line = line_of(infer_pattern(View(log)), "size")
    assert line.split()[1:3] == ["200", "kB"] and "# ?" in line


@pytest.mark.parametrize(("samples", "last"), [(24, "drop"), (22, "keep")])
def test_a_smaller_batch_at_the_end_of_an_epoch_is_kept(samples: int, last: str, tmp_path: Path) -> None:
    rows = []
    for place, sample in enumerate(SHUFFLED[samples > SHUFFLED].tolist()):
        rows.append(read(place * MS, MS // 9, "/d/all", sample * 1000, 1000, step=place // 4 + 1, epoch=1))
    rows += [compute((place * 4 + 3) * MS + MS // 2, MS // 9, step=place + 1) for place in range(6)]
    loop = first_loop(infer([*rows, epoch(0, 30 * MS, epoch=1)]), tmp_path)
    assert (loop.batch, loop.last_batch) == (4, last)


def test_reads_before_the_first_epoch_are_of_no_order(tmp_path: Path) -> None:
    rows = steps_of([range(0, 96, 4), range(1, 96, 4), range(2, 96, 4), range(3, 96, 4)], 4)
    for row in rows:
        row.begin += 10 * MS
    warm = [read(0, MS, "/d/all", 7000 * rank, 1000, process=rank) for rank in range(4)]
    loop = first_loop(infer([*warm, *rows]), tmp_path)
    assert (loop.shard, loop.batch) == ("by sample", 4)


def test_whole_files_by_calls_without_offsets_are_marked() -> None:
    rows = [
        read((file * 100 + call) * MS, MS // 9, f"/d/{file}.npz", -1, 100_000, epoch=1, step=file + 1)
        for file in range(9)
        for call in range(10)
    ]
    line = line_of(infer(rows), "size")
    assert line.split()[1:3] == ["1", "MB"] and "# ?" in line


def test_evaluations_have_no_evaluations_of_their_own() -> None:
    rows = []
    for number in range(6):
        for place, (folder, many) in enumerate({"train": 20, "valid": 8, "test": 8}.items()):
            if folder == "test" and number % 2:
                continue
            begun = number * 1000 * MS + place * 300 * MS
            rows.append(epoch(begun, 250 * MS))
            for step in range(many):
                at = begun + step * 10 * MS
                rows += [read(at, MS, f"/{folder}/{step:03d}.npz", 0, 9000), compute(at + 2 * MS, 3 * MS)]
    made = infer(rows)
    assert len([line for line in write_lines(made.lines).splitlines() if line.startswith("    evaluate")]) == 2


@pytest.mark.parametrize(("steps", "is_sure"), [((3, 7, 8), False), ((2, 4, 6, 8), True)])
def test_saves_at_unequal_intervals_are_marked(steps: tuple[int, ...], is_sure: bool) -> None:
    rows = [*long_steps(2), *(row for step in steps for row in save_at(step, (0,)))]
    line = next(line for line in write_lines(infer(rows).lines).splitlines() if line.startswith("    checkpoint"))
    assert ("# ?" not in line) == is_sure


def test_an_order_backwards_is_a_guess() -> None:
    made = infer(steps_of([range(47, -1, -1)], 4, epochs=2))
    assert "# ?" in line_of(made, "shuffle") and "backwards" in write_lines(made.lines)


def test_files_that_are_read_in_turn_are_in_no_sure_order() -> None:
    rows = [
        read((row * 8 + file) * MS, MS // 9, f"/d/{file}", row * 1000, 1000, epoch=1, step=row + 1)
        for row in range(12)
        for file in range(8)
    ]
    assert "# ?" in line_of(infer(rows), "shuffle")


def test_more_steps_than_files_say_that_a_file_may_have_several_samples() -> None:
    rows = []
    for file in range(16):
        rows.append(read(file * 100 * MS, MS, f"/d/{file:02d}.h5", 0, 640_000, epoch=1))
        rows += [compute((file * 100 + 10 * step + 5) * MS, 5 * MS) for step in range(8)]
    made = infer([*rows, epoch(0, 1700 * MS)])
    assert all("# ?" in line_of(made, head) for head in ("samples", "size", "layout"))


def test_saves_while_a_rank_computes_are_in_the_background(tmp_path: Path) -> None:
    late = [write(100 * MS * step + 5 * MS, MS // 9, f"/ckpt/{step}/0.pt", 0, 30_000) for step in (2, 4, 6)]
    rows = [row for row in long_steps(1) if row.kind != "compute"]
    rows += [compute(100 * MS * step, 60 * MS) for step in range(8)]
    (kept,) = compiled(infer([*rows, *late]), tmp_path).checkpoints
    assert kept.background is not None


@pytest.mark.parametrize("part", ['"epochs 2 to 3"', "'steps 1 to 9, at most 1 GB'", "ranks 0 to 1"])
def test_a_part_of_a_run_is_not_its_job(part: str) -> None:
    with pytest.raises(TraceError, match="a part of a run"):
        infer(steps_of([range(24)], 4), source="dliosim", command=f"dliosim run job.dlio --trace {part} --output out")


def test_restores_of_several_saves_are_said() -> None:
    rows = [*long_steps(1), *(row for step in (2, 4) for row in save_at(step, (0,)))]
    rows += [read(2000 * MS * step, MS, f"/ckpt/step{step}/0.pt", 0, 30_000) for step in (2, 4)]
    assert "# ? files of several saves were read" in write_lines(infer(rows).lines)


def copies_of_tokens(steps: int, many: int = 2, stride: int = 2048, item: int = 2) -> list[Row]:
    """Return copies of `many` samples a step, from different places, of samples that share a token with the next."""
    rows = [Row("open", 0, 1, file="/d/all.bin"), write(1, 1, "/d/all.bin", 0, 64 * stride + item)]
    for step in range(steps):
        rows += [
            read((step + 1) * 10 * MS, MS, "/d/all.bin", step * 7 % 64 * stride, many * (stride + item), step=step + 1)
        ]
        rows += [compute((step + 1) * 10 * MS + 2 * MS, 5 * MS, step=step + 1)]
    return rows


def test_samples_that_share_a_token_with_the_next_one_are_counted_in_doubt(tmp_path: Path) -> None:
    made = infer(copies_of_tokens(12))
    (data,) = compiled(made, tmp_path).datasets
    assert (data.samples, data.constant_size, first_loop(made, tmp_path).batch) == (64, 2050, 2)
    assert all("# ?" in line_of(made, head) for head in ("samples", "size"))
    assert "# shuffle: unknown" in write_lines(made.lines)


def requests_of(ranks: int, samples: int, requests: int) -> list[Row]:
    """Return requests of one sample by ranks that share each pass over the data, the last step of a pass with fewer."""
    rows, steps = [epoch(0, requests * 20 * MS, rank, epoch=1) for rank in range(ranks)], -(-samples // ranks)
    for number in range(requests):
        order = np.random.default_rng(number // steps).permutation(samples)
        for rank in range(ranks):
            if (place := number % steps * ranks + rank) < samples:
                at = number * 20 * MS
                rows.append(read(at, MS, "/d/all", order[place] * 9000, 9000, process=rank, epoch=1, step=number + 1))
    return rows


def test_samples_that_are_read_again_before_all_are_answer_requests(tmp_path: Path) -> None:
    loop = first_loop(infer(requests_of(ranks=3, samples=16, requests=30)), tmp_path)
    assert loop.arrivals is not None
    assert (loop.arrivals.requests, loop.arrivals.gap.mean, loop.shard) == (30, pytest.approx(20e-3), "by sample")
    assert (loop.last_batch, loop.shuffle.samples) == ("keep", "globally")


def test_steps_of_different_batches_end_with_smaller_ones(tmp_path: Path) -> None:
    rows = [
        read(place * MS, MS // 9, "/d/all", place * 1000, 1000, step=place // 20 + 1, epoch=1) for place in range(35)
    ]
    loop = first_loop(infer([*rows, epoch(0, 40 * MS, epoch=1)]), tmp_path)
    assert (loop.batch, loop.last_batch) == (20, "keep")


def test_files_that_were_not_read_are_counted_in_doubt(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number:03d}.npz").write_bytes(b"1")
    (tmp_path / "notes.npz").write_bytes(b"1")
    rows = read_files(10, gap=20)
    for row in rows:
        row.file = row.file.replace("/d", str(tmp_path))
    made = infer(rows)
    line = line_of(made, "samples")
    assert line.split()[1] == "12" and "# ? 10 were read; 2 files next to them not read" in line
    assert "# ? 12 files" in line_of(made, "layout")


@pytest.mark.parametrize(("opened", "often"), [((1, 2, 3), "each epoch"), ((1,), "once")])
def test_a_file_that_is_opened_twice_at_a_time_is_opened_as_often(opened: Sequence[int], often: str) -> None:
    rows = steps_of([SHUFFLED], 4, epochs=3)
    for number in opened:
        begun = min(row.begin for row in rows if row.kind == "read" and row.epoch == number)
        rows += [Row("open", begun, 0, file="/d/all")] * 2
    assert line_of(infer(rows), "open").split("#")[0].split()[1:] == often.split()


def test_a_few_samples_next_to_each_other_are_no_sure_blocks() -> None:
    rows = steps_of([range(4), range(4, 8)], 4)
    assert "# ? each rank reads samples next to each other" in line_of(infer(rows), "shard")


def test_parts_of_a_file_end_with_a_smaller_call(tmp_path: Path) -> None:
    rows = long_steps(1)
    for step in (2, 4, 6):
        place = 0
        for size in (1000, *[1 << 20] * 2, 9000, *[1 << 20] * 5, 70):
            rows.append(write(100 * MS * step - 40 * MS + place // 1000, 10, f"/ckpt/{step}.pt", place, size))
            place += size
    made = infer(rows)
    (kept,) = compiled(made, tmp_path).checkpoints
    assert [part.size for part in kept.parts] == [1000, (2 << 20) + 9000, (5 << 20) + 70]
    assert explain_work(made.work, compiled(made, tmp_path))["calls"] == 1.0


def test_what_all_ranks_read_of_a_save_is_a_part_that_each_has(tmp_path: Path) -> None:
    rows = [row for rank in range(3) for row in save_at(2, (rank,), size=30_000)]
    for rank in range(3):
        rows += [read(900 * MS, MS, f"/ckpt/step2/{rank}.pt", 0, 30_000 - 8000, process=rank)]
        rows += [read(901 * MS, MS, f"/ckpt/step2/{one}.pt", 22_000, 8000, process=rank) for one in range(3)]
    workload = compiled(infer([*long_steps(3), *rows]), tmp_path)
    (kept,) = workload.checkpoints
    assert [(part.name, part.size) for part in kept.parts] == [("state", 66_000), ("shared", 24_000)]
    assert sum(1 for verb in workload.verbs if isinstance(verb, Restore)) == 1


def test_threads_that_read_samples_again_answer_no_requests(tmp_path: Path) -> None:
    rows = [replace(row, thread=row.step % 2) for row in requests_of(ranks=1, samples=8, requests=30)]
    assert first_loop(infer(rows), tmp_path).arrivals is None
