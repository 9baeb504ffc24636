"""The files of a restore: dealt to ranks, or in an order that differs from rank to rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dliosim.model import Access, Checkpoint, Part, Restore, Split, Writers
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.checkpoints.reshard import restore_passes, whole_state_reads

CHECKPOINT = Checkpoint(
    name="c",
    seed=0,
    parts=(Part("weights", 300_000, "total"), Part("rng", 1001, "per rank")),
    writers=Writers("file per rank"),
    access=Access(transfer=4096),
    path="c",
)
WHOLE = Restore("c", everything=True)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("written", [1, 3, 7])
def test_each_file_is_read_by_one_rank(ranks: int, written: int) -> None:
    files = state_files(CHECKPOINT, Split(1, 1, written))
    verb = replace(WHOLE, by_file=True)
    for rank in range(ranks):  # all ranks plan what each of them reads
        (streams,) = restore_passes(files, Split(1, 1, ranks), verb, ranks, rank)
        read = [list(stream()) for stream in streams]
        assert len(read) == ranks
        assert sorted(block for one in read for block in one) == sorted(whole_state_reads(files))
        names = [{block.file for block in one} for one in read]
        assert sum(map(len, names)) == len(set().union(*names)) == written
        assert max(map(len, names)) - min(map(len, names)) <= 1


@pytest.mark.parametrize(("ranks", "written"), [(1, 3), (3, 3), (5, 3), (3, 7), (8, 8)])
def test_ranks_begin_at_places_that_are_spread_over_the_files(ranks: int, written: int) -> None:
    files = state_files(CHECKPOINT, Split(1, 1, written))
    saved = list(dict.fromkeys(block.file for block in whole_state_reads(files)))
    for rank in range(ranks):
        ((reads,),) = restore_passes(files, Split(1, 1, ranks), replace(WHOLE, order="rotated by rank"), ranks, rank)
        first = rank * written // ranks
        assert list(dict.fromkeys(block.file for block in reads())) == saved[first:] + saved[:first]
        assert sorted(reads()) == sorted(whole_state_reads(files))
