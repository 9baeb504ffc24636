"""Objects that stay until a process ends are not searched for garbage."""

from __future__ import annotations

import gc

import pytest

from dliosim.commands.job.garbage import freeze_objects


def test_what_a_block_leaves_is_searched_no_more_and_what_comes_later_is() -> None:
    try:
        with freeze_objects():
            assert not gc.isenabled()
            kept = [[number] for number in range(1000)]
        assert gc.isenabled()
        searched = {id(each) for each in gc.get_objects()}
        assert not searched & {id(each) for each in kept}
        later: list[object] = [[]]
        assert id(later) in {id(each) for each in gc.get_objects()}
    finally:
        gc.unfreeze()


def test_a_block_that_fails_leaves_the_search_on() -> None:
    try:
        with pytest.raises(ValueError), freeze_objects():
            raise ValueError
        assert gc.isenabled()
    finally:
        gc.unfreeze()
