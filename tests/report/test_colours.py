"""Colours are escapes around words of the plain text, and nothing else."""

from __future__ import annotations

import re

import pytest

from dliosim.report.colours import add_colours
from dliosim.report.run.screen import run_screen
from tests.report.sample import run


@pytest.mark.parametrize(
    ("line", "coloured"),
    [
        ("ANSWER   feeds: 99 %", "\x1b[2mANSWER\x1b[0m   \x1b[1;32mfeeds\x1b[0m: 99 %"),
        ("ANSWER   does not feed: 61 %", "\x1b[2mANSWER\x1b[0m   \x1b[1;31mdoes not feed\x1b[0m: 61 %"),
        ("ANSWER   not asked", "\x1b[2mANSWER\x1b[0m   \x1b[1;33mnot asked\x1b[0m"),
        ("MISSED: expect it", "\x1b[1;31mMISSED\x1b[0m: expect it"),
        ("warning: it rains", "\x1b[1;33mwarning\x1b[0m: it rains"),
        ("STORAGE  feeds nothing", "\x1b[2mSTORAGE\x1b[0m  feeds nothing"),
        ("POSIX I/O", "POSIX I/O"),
        ("MPI library    MPICH 4.1.3", "MPI library    MPICH 4.1.3"),
    ],
)
def test_verdicts_warnings_and_names_of_first_lines_have_colours(line: str, coloured: str) -> None:
    assert add_colours(f"a\n{line}\nb") == f"a\n{coloured}\nb"


def test_without_escapes_it_is_the_plain_text() -> None:
    plain = run_screen(run())
    coloured = add_colours(plain)
    assert coloured != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
