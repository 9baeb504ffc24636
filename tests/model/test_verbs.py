"""Checkpoints that verbs save."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import Access, Cadence, Loop, Repeat, Restore, Save
from dliosim.model.verbs import count_due, is_due, list_saved_checkpoints


def test_the_checkpoints_of_verbs_are_those_that_they_save() -> None:
    loop = Loop("train", "train", "d", Access(), checkpoints=(Cadence("loop", "end"),))
    assert list_saved_checkpoints((Repeat(2, (Save("verb"), loop)), Restore("restored"), Save("verb"))) == [
        "verb",
        "loop",
    ]


@given(st.integers(1, 9), st.integers(0, 12), st.integers(0, 40))
def test_what_comes_every_few_epochs_comes_from_the_first_one_on(every: int, first: int, last: int) -> None:
    cadence = Cadence("c", "epochs", every, first)
    due = [number for number in range(1, last + 1) if is_due(cadence, number)]
    assert due == [*range(first or every, last + 1, every)]
    assert count_due(cadence, last) == len(due)
