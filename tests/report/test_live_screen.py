"""The screen of `run --live`, drawn from figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dliosim.measure.progress.live import LiveFigures
from dliosim.report.progress.live_screen import duration, live_line, live_screen

TRAIN = LiveFigures(
    "train, epoch 2 of 5", "train", 12.0, 40, 100, "step", (38, 41), 0, 0, 24_000_000_000, 2.13e9, 2e9, 0.0123, 40,
    (0, 1, 2), (3,), 3.4, "pread64(/data/d/000000007.raw at 131072)", (3, 61, 120), 18.0, 78.0,
)  # fmt: skip

SAVE = LiveFigures(
    "save c", "save c", 2.0, 0, 0, "step", (0, 0), 1_000_000, 4_000_000, 3_000_000, 1.5e6, 1.5e6, None, 0,
    (), (), 0.0, "", None, 6.0, 6.0,
)  # fmt: skip

#: Nothing is known yet.
FIRST = replace(SAVE, done=0, total=0, moved=0, now=None, mean=None, left=None, left_of_all=None)

WIDE = """\
unet3d on 4 ranks, 3 min 20 s so far
phase     train, epoch 2 of 5
step      40 of 100, [############..................], ranks at 38 to 41
time left 18 s of this epoch, 1 min 18 s of train
bandwidth 2.13 GB/s now, 2.00 GB/s mean, 24.0 GB so far
p99 wait  12.3 ms, last 40 batches of rank 0
waiting   ranks 0-2 wait for rank 3, no progress for 3.4 s
slowest   rank 3, waited for in 61 of 120 looks"""

NARROW = """\
unet3d on 4 ranks, 3 min 20 s so far
phase     train, epoch 2 of 5
step      40 of 100
time left 18 s of this epoch
bandwidth 2.13 GB/s now, 2.00 GB/s mean
p99 wait  12.3 ms
waiting   ranks 0-2 wait for rank 3
slowest   rank 3"""

BYTES = """\
unet3d on 4 ranks, 3 min 20 s so far
phase     save c
bytes     1.00 MB of 4.00 MB of rank 0, [#######.......................]
time left 6.0 s
bandwidth 1.50 MB/s now, 1.50 MB/s mean, 3.00 MB so far
p99 wait  -
waiting   no rank waits for another
slowest   -"""


def screen(figures: LiveFigures, columns: int, lines: int = 24) -> list[str]:
    return live_screen("unet3d on 4 ranks", 200.0, figures, columns, lines)


@pytest.mark.parametrize(
    ("figures", "columns", "expected"), [(TRAIN, 80, WIDE), (TRAIN, 40, NARROW), (SAVE, 80, BYTES)]
)
def test_a_screen_has_its_figures_in_any_width(figures: LiveFigures, columns: int, expected: str) -> None:
    assert "\n".join(screen(figures, columns)) == expected


def test_a_wide_screen_names_the_call_that_a_late_rank_is_in() -> None:
    assert screen(TRAIN, 120)[6].endswith("no progress for 3.4 s, pread64(/data/d/000000007.raw at 131072)")


@pytest.mark.parametrize("columns", [1, 2, 5, 12, 30, 79, 300])
@pytest.mark.parametrize("lines", [1, 2, 3, 9, 10, 24])
@pytest.mark.parametrize("figures", [TRAIN, SAVE, FIRST], ids=lambda one: one.label)
def test_no_line_wraps_and_no_screen_scrolls(figures: LiveFigures, columns: int, lines: int) -> None:
    shown = live_screen("caf\u00e9 \u6587\u5b57", 1e6, figures, columns, lines)
    assert 1 <= len(shown) <= max(lines - 2, 1)
    assert all(len(line) < columns and line.isascii() for line in shown)


def test_many_ranks_are_counted_not_listed() -> None:
    odd = replace(TRAIN, waiting=tuple(range(1, 512, 2)), late=tuple(range(0, 512, 2)), quiet=0.0, call="")
    assert screen(odd, 80)[6] == "waiting   256 ranks wait for 256 ranks"


def test_a_node_whose_ranks_all_wait_waits_for_others() -> None:
    all_wait = replace(TRAIN, waiting=(0, 1, 2, 3), late=(), quiet=0.0, call="")
    assert screen(all_wait, 80)[6] == "waiting   ranks 0-3 wait for other nodes"


def test_a_line_says_the_same_without_a_bar() -> None:
    assert live_line(TRAIN) == (
        "live: train, epoch 2 of 5, step 40 of 100, 2.13 GB/s now, 2.00 GB/s mean, 24.0 GB so far, p99 of batch waits "
        "12.3 ms, ranks 0-2 wait for rank 3, slowest rank 3, 18 s of this epoch left"
    )
    assert live_line(FIRST) == "live: save c"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0 s"), (59.4, "59 s"), (59.9, "60 s"), (60.0, "1 min 0 s"), (3599.6, "1 h 0 min"), (7500.0, "2 h 5 min")],
)
def test_durations_are_in_units_of_people(value: float, expected: str) -> None:
    assert duration(value) == expected
