"""Random sequences of what ranks do together give the same however ranks meet; see meeting_program."""

from __future__ import annotations

from functools import partial

import pytest

from tests.examples import ALL
from tests.mpi.launch import run_program
from tests.mpi.waiting import run_main

#: Some seconds in all; scripts/dev/random_meetings.py runs thousands.
SEQUENCES = {1: 20, 2: 15, 3: 10, 5: 5} | ({8: 3, 17: 1} if ALL else {9: 1})


@pytest.mark.parametrize("ranks", SEQUENCES)
def test_random_sequences_give_what_they_have_to_however_ranks_meet(ranks: int) -> None:
    # Where each rank has a core, ranks spin while they wait: those have all cores.
    run = partial(run_program, spread=True) if ranks == 2 else run_main
    said = run(ranks, "tests.mpi.meeting_program", f"{SEQUENCES[ranks]}", f"{1000 * ranks}")
    assert said == "every sequence gave what it had to\n"
