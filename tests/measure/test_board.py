"""The rows of a board: what a rank writes is what another one reads, however little sense it makes."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.measure.progress.board import (
    BARRIER,
    EXCHANGE,
    MEETINGS,
    ROW_BYTES,
    BoardRow,
    BoardRows,
    private_row,
    process_row,
    publish_row,
)


def pair() -> tuple[BoardRow, BoardRow]:
    """The second row of two, as its rank and as another one sees it."""
    memory = memoryview(bytearray(2 * ROW_BYTES))
    return BoardRows(memory)[1], BoardRows(memory)[1]


def test_what_a_rank_does_is_seen_by_others() -> None:
    mine, seen = pair()
    mine.introduce(7)
    mine.begin("train", 3)
    assert (seen.rank, seen.process[0], seen.phase, seen.epoch) == (7, os.getpid(), "train", 3)
    for number, kind in enumerate((BARRIER, EXCHANGE, BARRIER), 1):
        mine.arrive(kind)
        assert (seen.meeting, seen.meeting_count) == (MEETINGS[kind], number)
        mine.leave()
        assert (seen.meeting, seen.meeting_count) == ("", number)
    with mine.collective_call("MPI_File_open of /x"):
        assert seen.action == "MPI_File_open of /x"
    assert seen.action == ""


def test_whatever_a_rank_does_changes_what_tells_that_it_moves() -> None:
    mine, seen = pair()
    found = [seen.progress_state]
    for step in (
        lambda: mine.begin("train", 1), lambda: mine.arrive(BARRIER), mine.leave, lambda: mine.arrive(BARRIER),
        lambda: mine.note_call("c", "read(x)", True), lambda: mine.begin("train", 1),
    ):  # fmt: skip
        step()
        found.append(seen.progress_state)
    assert len(set(found)) == len(found)
    mine.note_look(5, False)
    mine.note_call("S", "futex", False)
    assert seen.progress_state == found[-1]


@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=400))
def test_texts_are_cut_and_printable_and_leave_each_other_alone(phase: str, action: str, call: str) -> None:
    mine, seen = pair()
    mine.begin("x" * 400, 1)
    mine.begin(phase, 2)
    mine.note_call("c", call, False)
    with mine.collective_call(action):
        for text, shown in ((phase, seen.phase), (action, seen.action), (call, seen.call[1])):
            assert shown.isprintable() and len(shown) < 200
            if text.isascii() and text.isprintable():
                assert text.startswith(shown) and len(shown) >= min(len(text), 63)
    assert seen.epoch == 2 and seen.step == 0


def test_a_row_that_is_let_go_of_refuses_stores() -> None:
    row = private_row()
    publish_row(row)
    process_row().release()
    publish_row(private_row())
    with pytest.raises(ValueError):
        row.arrive(BARRIER)
    process_row().arrive(BARRIER)
