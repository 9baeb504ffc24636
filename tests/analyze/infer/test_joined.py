"""Loops over several data sets out of traces that were made by hand: the patterns compile, and do what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dliosim.analyze.infer.pattern import explain_work
from dliosim.model import Sources
from tests.analyze.infer.test_infer import compiled, first_loop, in_steps, infer, line_of
from tests.analyze.rows import MS, Row, read


def mixture(held: Sequence[int], drawn: Sequence[int], batch: int = 10, **more: object) -> list[Row]:
    """Return an epoch that draws samples of data sets, each in an order of its own, again after its last one."""
    rng = np.random.default_rng(1)
    source, again = rng.permutation(np.repeat(np.arange(len(held)), drawn)).tolist(), [0] * len(held)
    orders, reads = [rng.permutation(many).tolist() for many in held], []
    for one in source:
        reads.append((f"/{'abc'[one]}/all", orders[one][again[one] % held[one]] * 1000, 1000))
        again[one] += 1
    rows = in_steps([reads[first : first + batch] for first in range(0, len(reads), batch)])
    return [replace(row, **more) if row.kind == "read" else row for row in rows]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("held", "drawn", "is_repeated", "has_requests"),
    [
        ([150, 149], [150, 149], True, False),  # exact shares of 0.1 % need more samples than there are
        ([20, 40, 140], [20, 40, 140], False, False),
        ([20, 2500], [1500, 2500], True, False),  # read again in shares, so no requests
        ([20, 20], [140, 60], True, True),
    ],
)
def test_a_mixture_lasts_for_its_steps(
    held: list[int], drawn: list[int], is_repeated: bool, has_requests: bool, tmp_path: Path
) -> None:
    made = infer(mixture(held, drawn))
    loop, workload = first_loop(made, tmp_path), compiled(made, tmp_path)
    assert isinstance(loop.dataset, Sources)
    assert (loop.dataset.repeated, loop.arrivals is not None, loop.batch) == (is_repeated, has_requests, 10)
    assert explain_work(made.work, workload) == {"bytes": 1.0, "calls": 1.0, "files": 1.0}


def test_ranks_that_all_read_the_same_mixture_do_not_share_it(tmp_path: Path) -> None:
    one = mixture([140, 60], [140, 60])
    made = infer([*one, *(replace(row, process=1) for row in one)])
    assert str(first_loop(made, tmp_path).dataset) == "data 70 %, data2 30 %, until first ends"
    assert first_loop(made, tmp_path).shard == "off"
    assert explain_work(made.work, compiled(made, tmp_path))["bytes"] == 1.0


def test_a_mixture_next_to_pairs_loses_no_data_set(tmp_path: Path) -> None:
    rows = mixture([75, 25], [75, 25])
    masks = [replace(row, begin=row.begin + MS // 4, file="/m/all") for row in rows if row.file == "/a/all"]
    assert len(compiled(infer([*rows, *masks]), tmp_path).datasets) == 3


def test_loops_over_several_data_sets_have_no_mpi_io(tmp_path: Path) -> None:
    made = infer(mixture([75, 25], [75, 25], layer="mpi-io"))
    assert first_loop(made, tmp_path).access.api == "posix"
    assert "# ? " in line_of(made, "api")


def images_and_labels(ranks: int, epochs: int, last: int) -> list[Row]:
    """Return a loop that opens a file for each image; labels are in one file, without those of the last images."""
    rows = []
    for rank in range(ranks):
        rows.append(Row("open", 0, MS, rank, file="/l/all", name="open"))
        for at in range(epochs * 20):
            image, begin = (at % 20) * ranks + rank, (at + 1) * 10 * MS
            rows.append(Row("open", begin, MS, rank, file=f"/d/{image:03}", name="open"))
            rows.append(read(begin + MS, MS, f"/d/{image:03}", 0, 9000, process=rank))
            if at < epochs * 20 - last:
                rows.append(read(begin + 2 * MS, MS, "/l/all", image * 500, 500, process=rank))
    return rows


def test_opens_that_differ_between_data_sets_are_a_guess(tmp_path: Path) -> None:
    made = infer(images_and_labels(1, 1, 0))
    assert str(first_loop(made, tmp_path).dataset) == "data, data2"
    assert "each sample" in line_of(made, "open")
    assert line_of(made, "open").endswith("# ? 20 opens for 20 reads of samples; once for others")


def test_labels_that_are_not_read_in_the_last_epoch_are_of_the_same_samples(tmp_path: Path) -> None:
    made = infer(images_and_labels(2, 20, 20))
    assert str(first_loop(made, tmp_path).dataset) == "data, data2"
