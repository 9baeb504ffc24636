"""Checkpoints that verbs save."""

from __future__ import annotations

from dliosim.model import Access, Cadence, Loop, Repeat, Restore, Save
from dliosim.model.verbs import list_saved_checkpoints


def test_the_checkpoints_of_verbs_are_those_that_they_save() -> None:
    loop = Loop("train", "train", "d", Access(), checkpoints=(Cadence("loop", "end"),))
    assert list_saved_checkpoints((Repeat(2, (Save("verb"), loop)), Restore("restored"), Save("verb"))) == [
        "verb",
        "loop",
    ]
