import io
from time import perf_counter_ns, sleep

import pytest

from dliosim.report.progress.progress_line import EVERY_NS, ProgressLine, show_elapsed


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_phase_shorter_than_two_seconds_shows_nothing():
    terminal = Terminal()
    progress = ProgressLine(terminal)
    progress.start("train", 1, 5, 100)
    progress.tick(perf_counter_ns() + 1_900_000_000, 50, 1000)
    progress.end()
    assert terminal.getvalue() == ""


def test_a_long_phase_shows_epoch_step_rate_and_time_left_and_takes_the_line_away():
    terminal = Terminal()
    progress = ProgressLine(terminal)
    progress.start("train", 2, 5, 100)
    progress.tick(perf_counter_ns() + 4_000_000_000, 40, 8_000_000_000)
    line = terminal.getvalue()
    assert line == "\rtrain, epoch 2 of 5: 8.00 GB, 2.00 GB/s on rank 0, step 40 of 100, 6.0 s left\x1b[K"
    progress.end()
    assert terminal.getvalue() == line + "\r\x1b[K"


def test_a_listing_shows_files_and_an_epoch_after_it_steps():
    terminal = Terminal()
    progress = ProgressLine(terminal)
    progress.start("look at the files of d", 1, 1, 5000, "file")
    progress.tick(perf_counter_ns() + 4_000_000_000, 1000, 0)
    assert terminal.getvalue() == "\rlook at the files of d: file 1000 of 5000, 16 s left\x1b[K"
    progress.end()
    progress.start("train", 1, 1, 10)
    progress.tick(perf_counter_ns() + 5_000_000_000, 5, 0)
    assert "step 5 of 10" in terminal.getvalue()


def test_the_line_is_written_at_most_twice_a_second():
    terminal = Terminal()
    progress = ProgressLine(terminal)
    progress.start("train", 1, 1, 1000)
    now = perf_counter_ns() + 3_000_000_000
    for step in range(100):
        progress.tick(now + step * 10_000_000, step, step)
    assert terminal.getvalue().count("\r") == 2


def test_a_block_of_bytes_shows_how_many_there_are_and_the_time_left():
    terminal = Terminal()
    progress = ProgressLine(terminal)
    with progress.track_bytes("prepare universe", lambda: 20_000_000):
        progress.tick(perf_counter_ns() + 2_500_000_000, 0, 5_000_000)
    line = "\rprepare universe: 5.00 MB of 20.0 MB, 2.00 MB/s on rank 0, 7.5 s left\x1b[K"
    assert terminal.getvalue() == line + "\r\x1b[K"


def test_a_block_of_unknown_length_shows_for_how_long_it_has_lasted():
    terminal = Terminal()
    progress = ProgressLine(terminal)
    with progress.track_bytes("drop caches", lambda: 0):
        progress.tick(perf_counter_ns() + 3_000_000_000, 0, 0)
    assert terminal.getvalue().startswith("\rdrop caches: 3.0 s so far\x1b[K")


def test_the_total_is_not_worked_out_unless_it_shows():
    def total():
        raise AssertionError("not asked for")

    progress = ProgressLine(Terminal())
    with progress.track_bytes("save model", total):
        progress.tick(perf_counter_ns(), 0, 10)


def test_after_a_checkpoint_within_an_epoch_the_epoch_continues():
    terminal = Terminal()
    progress = ProgressLine(terminal)
    progress.start("train", 2, 5, 100)
    with progress.track_bytes("save model", lambda: 0):
        pass
    progress.tick(perf_counter_ns() + 4_000_000_000, 40, 8_000_000_000)
    assert terminal.getvalue().startswith("\rtrain, epoch 2 of 5: 8.00 GB")


def test_a_block_that_fails_takes_its_line_away():
    terminal = Terminal()
    progress = ProgressLine(terminal, silent_ns=0)
    try:
        with progress.track_bytes("save model", lambda: 10):
            progress.tick(perf_counter_ns(), 0, 5)
            raise OSError
    except OSError:
        assert terminal.getvalue().endswith("\r\x1b[K")
    progress.tick(perf_counter_ns(), 0, 5)
    assert terminal.getvalue().count("save model") == 1


def test_where_there_is_no_terminal_nothing_is_written():
    stream = io.StringIO()
    for progress in (ProgressLine(stream), ProgressLine(None)):
        progress.start("train", 1, 1, 10)
        progress.tick(perf_counter_ns() + 10**12, 5, 5)
        progress.end()
    assert stream.getvalue() == ""


def test_nothing_shows_after_the_end():
    terminal = Terminal()
    progress = ProgressLine(terminal)
    progress.start("train", 1, 1, 10)
    progress.end()
    progress.tick(perf_counter_ns() + 10**12, 5, 5)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("silent", [0.01, EVERY_NS * 1e-9])
def test_a_block_shows_how_long_it_has_lasted_and_takes_the_line_away(silent):
    terminal = Terminal()
    with show_elapsed(terminal, "plan a.dlio", silent=silent):
        for _ in range(2000):
            if terminal.getvalue():
                break
            sleep(0.01)
    shown, rest = terminal.getvalue().split("\x1b[K", 1)
    assert shown.startswith("\rplan a.dlio: ") and shown.endswith(" so far")
    assert rest.endswith("\r\x1b[K")


def test_a_short_block_or_one_without_a_terminal_shows_nothing():
    for stream, silent in ((Terminal(), 100), (io.StringIO(), 0)):
        with show_elapsed(stream, "plan a.dlio", silent=silent):
            sleep(0.02)
        assert stream.getvalue() == ""


def test_live_writes_a_line_every_ten_seconds_across_phases_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = ProgressLine(stream, live=True)
    for epoch, after in ((1, 8), (2, 16), (3, 24), (4, 32)):
        progress.start("train", epoch, 4, 100)
        progress.tick(perf_counter_ns() + after * 10**9, 40, 8_000_000_000)
        with progress.track_bytes("save model", lambda: 0):
            pass
        progress.tick(perf_counter_ns() + after * 10**9, 40, 8_000_000_000)
        progress.end()
    assert stream.getvalue() == (
        "live: train, epoch 2 of 4: 8.00 GB, 500 MB/s on rank 0, step 40 of 100, 24 s left\n"
        "live: train, epoch 4 of 4: 8.00 GB, 250 MB/s on rank 0, step 40 of 100, 48 s left\n"
    )


def test_a_stream_that_takes_nothing_does_not_end_the_run():
    class Full(Terminal):
        def write(self, text):
            raise OSError(28, "No space left on device")

    progress = ProgressLine(Full())
    progress.start("train", 1, 1, 10)
    progress.tick(perf_counter_ns() + 4 * 10**9, 5, 5)
    progress.end()
