"""Checkpoints of tensors: what ranks save covers each file once, and what they restore is what they need."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.model import Access, Checkpoint, Part, Split, Transformer, Writers
from dliosim.model.transformer import RankOrder
from dliosim.plan.checkpoints import reshard
from dliosim.plan.checkpoints.layout import StateFiles, count_pieces, cut_pieces, state_files
from dliosim.plan.checkpoints.reshard import (
    ReadStep,
    blocks_to_restore,
    count_steps,
    cut_steps,
    lone_reads,
    shard_reads,
    shared_reads,
    unsent_reads,
    whole_state_reads,
)
from dliosim.plan.checkpoints.shards import ShardSizes, TensorBlock, blocks_of_rank, is_part_owner

splits = st.builds(
    Split,
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 4),
    order=st.sampled_from(["tp-dp-pp", "tp-pp-dp"]),
)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    scope = draw(st.sampled_from(["total", "per rank", "rows", "columns", "whole"]))
    if scope == "per rank" or draw(st.booleans()):
        size = draw(st.integers(0, 60))
        return Part("p", size, "total" if scope in ("rows", "columns") else scope)
    element, columns, rows = draw(st.integers(1, 4)), draw(st.integers(1, 7)), draw(st.integers(1, 7))
    return Part("p", rows * columns * element, scope, columns * element, element)


models = st.builds(
    Transformer,
    name=st.just("m"),
    layers=st.integers(1, 4),
    hidden=st.just(6),
    ffn=st.integers(1, 9),
    heads=st.just(2),
    kv_heads=st.integers(1, 2),
    vocabulary=st.integers(1, 9),
    optimizer=st.sampled_from(["adam", "sgd", "none"]),
    zero=st.sampled_from([0, 1, 3]),
    scale=st.sampled_from([1, 1, 5]),
)
checkpoints = st.builds(
    Checkpoint,
    name=st.just("c"),
    seed=st.just(1),
    parts=st.lists(parts(), min_size=1, max_size=4).map(tuple),
    writers=st.one_of(
        st.just(Writers("file per rank")),
        st.just(Writers("shared file")),
        st.builds(Writers, st.just("one per"), st.integers(1, 6)),
        st.builds(Writers, st.just("rank"), st.integers(0, 3)),
    ),
    access=st.just(Access()),
    path=st.just("c"),
    model=st.none() | st.none() | models,
    replicas=st.sampled_from(["once", "dealt", "all"]),
    folder=st.integers(0, 3),
)
transfers = st.none() | st.integers(1, 40)


def played(split: Split, ranks: int) -> Split:
    return replace(split, played=ranks if ranks < split.ranks else 0)


def stored(checkpoint: Checkpoint, split: Split) -> StateFiles:
    """Its files, where a rank that writes alone is one of those that take part."""
    if checkpoint.writers.kind == "rank":
        checkpoint = replace(checkpoint, writers=Writers("rank", checkpoint.writers.number % split.present_ranks))
    return state_files(checkpoint, split)


def indices(part: Part, block: TensorBlock) -> NDArray[np.int64]:
    """Return the bytes of a part that a block has, in its order."""
    rows = np.arange(block.row0, block.row1)[:, None] * part.row_bytes
    return (rows + np.arange(block.col0, block.col1)).reshape(-1)


def written(files: StateFiles) -> dict[str, NDArray[np.int64]]:
    """Return the content of every file, each byte as (part, place in it) in one number; -1 where nothing is written."""
    found = {name: np.full(files.sizes(maker)[name], -1, np.int64) for name, maker in files.files()}
    for rank in range(files.split.present_ranks):
        for shard in files.shards(rank):
            place = found[shard.file][shard.offset : shard.offset + shard.block.length]
            assert (place == -1).all()
            place[:] = shard.part * 1_000_000 + indices(files.parts[shard.part], shard.block)
    return found


def read(found: dict[str, NDArray[np.int64]], step: ReadStep) -> NDArray[np.int64]:
    calls = zip(step.offset.tolist(), step.length.tolist(), strict=True)
    return np.concatenate([found[step.file][begin : begin + length] for begin, length in calls])


def of_segments(files: StateFiles, step: ReadStep) -> NDArray[np.int64]:
    """Return the bytes that a step says it reads."""
    return np.concatenate(
        [
            segment.part * 1_000_000
            + indices(files.parts[segment.part], segment.block)[segment.begin : segment.begin + segment.length]
            for segment in step.segments
        ]
    )


@given(checkpoints, splits, st.integers(1, 40))
def test_what_all_ranks_save_covers_every_file_once(checkpoint: Checkpoint, split: Split, present: int) -> None:
    files = stored(checkpoint, played(split, present))
    found = written(files)
    assert len(found) == len(list(files.files()))
    assert all((content >= 0).all() for content in found.values())
    assert sum(len(content) for content in found.values()) == files.total()
    for rank in range(files.split.present_ranks):
        own = files.shards(rank)
        assert sum(shard.block.length for shard in own) == files.owner_bytes(rank)
        assert {shard.file for shard in own} <= set(files.file_names(files.writer(rank)) or files.file_names(0))
        if not files.regions:
            for name in {shard.file for shard in own}:
                offsets = [shard.offset for shard in own if shard.file == name]
                assert offsets == sorted(offsets)
    makers = {files.writer(rank) for rank in range(files.split.present_ranks)}
    if not files.regions:
        assert sorted(rank for maker in makers for rank in (maker, *files.senders(maker))) == list(
            range(files.split.present_ranks)
        )


@given(checkpoints, splits)
def test_what_is_held_is_saved_by_one_rank_or_by_all(checkpoint: Checkpoint, split: Split) -> None:
    copies = checkpoint.copies(split)
    shares = ShardSizes(checkpoint.parts_for(split), split, copies)
    held = np.zeros(len(checkpoint.parts_for(split)), np.int64)
    for rank in range(split.ranks):
        assert shares.bytes_below(rank).tolist() == held.tolist()
        own = [
            sum(block.length for block in blocks_of_rank(part, split, rank))
            * is_part_owner(part, number, split, copies, rank)
            for number, part in enumerate(checkpoint.parts_for(split))
        ]
        assert shares.bytes_of_rank(rank).tolist() == own
        held += own
    assert shares.bytes_below(split.ranks).tolist() == held.tolist()
    times_saved = split.data if copies == "all" else 1
    for part, total in zip(checkpoint.parts_for(split), held.tolist(), strict=True):
        times = {"total": 1, "per rank": split.ranks, "whole": split.tensor * times_saved}.get(part.scope, times_saved)
        assert total == part.size * times


@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.integers(1, 6), st.data())
def test_a_rank_that_writes_alone_writes_its_own_copy_of_what_all_hold(
    sizes: list[int], ranks: int, data: st.DataObject
) -> None:
    writer = data.draw(st.integers(0, ranks - 1))
    parts = tuple(Part(f"p{number}", size, "whole") for number, size in enumerate(sizes))
    checkpoint = Checkpoint("c", 1, parts, Writers("rank", writer), Access(), "c")
    files = state_files(checkpoint, Split(1, 1, ranks))
    assert [files.owner_bytes(rank) for rank in range(ranks)] == [
        sum(sizes) * (rank == writer) for rank in range(ranks)
    ]
    assert all(
        sum(fetch.block.length for fetch in shard_reads(files, files.split, rank)) == sum(sizes)
        for rank in range(ranks)
    )


def test_shares_of_the_largest_parts_do_not_overflow() -> None:
    split = Split(3, 1, 1000)
    checkpoint = Checkpoint(
        "c", 1, (Part("p", 1 << 62, "total"), Part("q", 1 << 61, "rows", 1)), Writers("shared file"), Access(), "c"
    )
    files = state_files(checkpoint, split)
    assert files.total() == (1 << 62) + (1 << 61)
    assert files.owner_bytes(2999) == (1 << 62) - (2999 << 62) // 3000
    assert files.shards(2)[-1].block == TensorBlock((1 << 62) // 3, 1 << 61, 0, 1)


@given(checkpoints, splits, transfers, st.booleans())
def test_pieces_cover_what_a_rank_saves_in_calls_as_large_as_allowed(
    checkpoint: Checkpoint, split: Split, transfer: int | None, whole: bool
) -> None:
    files = stored(checkpoint, split)
    found = written(files)
    for rank in range(split.ranks):
        own = list(cut_pieces(files.shards(rank), transfer, whole))
        assert count_pieces(files.shards(rank), transfer, whole) == (len(own), max((p.length for p in own), default=0))
        for piece in own:
            step = ReadStep(piece.file, np.array([piece.offset]), np.array([piece.length]), piece.segments)
            assert (of_segments(files, step) == read(found, step)).all()
            assert 0 < piece.length <= (transfer or piece.length)
            assert whole or len({segment.part for segment in piece.segments}) == 1
        assert sum(piece.length for piece in own) == files.owner_bytes(rank)


@settings(deadline=None)
@given(checkpoints, splits, splits, transfers, st.booleans(), st.sampled_from([1, 8]), st.sampled_from([2, 1 << 14]))
def test_any_split_restores_what_any_other_saved(
    checkpoint: Checkpoint, writer: Split, holder: Split, transfer: int | None, whole: bool, page: int, rows: int
) -> None:
    files = stored(checkpoint, writer)
    found = written(files)
    with patch.object(reshard, "_MOST_ROWS", rows):
        for rank in range(holder.ranks):
            parts, made = checkpoint.parts_for(holder), list(shard_reads(files, holder, rank))
            cut = list(cut_steps(made, transfer, whole, page))
            _check_steps(files, found, cut, transfer)
            needed = [
                number * 1_000_000 + indices(parts[number], block)
                for number, block in blocks_to_restore(files, holder, rank)
            ]
            assert _sorted([of_segments(files, step) for step in cut]) == _sorted(needed)
            counted = sum(len(step.offset) for step in cut), sum(int(step.length.sum()) for step in cut)
            count = count_steps(made, transfer, whole, page)
            assert count[:3] == (len(cut), *counted)
            widest = [
                (-(-(step.offset + step.length) // page) * page - step.offset // page * page).sum() for step in cut
            ]
            assert max(widest, default=0) <= count.largest
            # A file is read through before the next one.
            names = [fetch.file for fetch in made]
            assert len(dict.fromkeys(names)) == sum(a != b for a, b in zip(["", *names], names, strict=False))


@given(checkpoints, splits, st.integers(1, 40))
def test_bytes_files_and_writers_of_all_ranks_are_those_of_each(
    checkpoint: Checkpoint, split: Split, present: int
) -> None:
    files = stored(checkpoint, played(split, present))
    ranks = range(files.split.present_ranks)
    assert files.bytes_per_owner().tolist() == [files.owner_bytes(rank) for rank in ranks]
    assert files.writers().tolist() == [files.writer(rank) for rank in ranks]
    made, labels = files.files_per_rank()
    assert made.tolist() == [len(files.file_names(rank)) for rank in ranks]
    names = [name.rpartition("/")[2] for name, _ in files.files()]
    assert +labels == Counter(re.sub("-?[0-9]*.ckpt$", "", name) for name in names)


@settings(deadline=None)
@given(checkpoints, splits, splits, st.randoms())
def test_what_lost_files_held_is_found_in_the_copies_of_partners(
    checkpoint: Checkpoint, writer: Split, holder: Split, random: Random
) -> None:
    checkpoint = replace(checkpoint, partner=1)
    files = stored(checkpoint, writer)
    found = written(files)
    for name, rank in files.partner_files():
        calls = list(cut_pieces(files.shards(rank), 7, False))
        parts = [found[piece.file][piece.offset : piece.offset + piece.length] for piece in calls]
        found[name] = np.concatenate([np.empty(0, np.int64), *parts])
    names = [name for name, _ in files.files()]
    lost = random.sample(names, random.randint(0, len(names)))
    sound = files.redirect_to_partners(lost)
    found = {name: content for name, content in found.items() if name not in lost}
    for rank in range(holder.ranks):
        cut = list(cut_steps(shard_reads(sound, holder, rank), None, False))
        _check_steps(sound, found, cut, None)
        parts = checkpoint.parts_for(holder)
        needed = [
            number * 1_000_000 + indices(parts[number], block)
            for number, block in blocks_to_restore(sound, holder, rank)
        ]
        assert _sorted([of_segments(sound, step) for step in cut]) == _sorted(needed)


@settings(deadline=None)
@given(checkpoints, splits, st.integers(1, 40), transfers)
def test_everything_is_what_was_saved_once(
    checkpoint: Checkpoint, split: Split, present: int, transfer: int | None
) -> None:
    files = stored(checkpoint, played(split, present))
    found = written(files)
    cut = list(cut_steps(whole_state_reads(files), transfer, False))
    _check_steps(files, found, cut, transfer)
    saved = np.unique(np.concatenate([np.empty(0, np.int64), *found.values()]))
    assert _sorted([of_segments(files, step) for step in cut]) == saved.tolist()


@settings(deadline=None)
@given(checkpoints, splits, st.integers(1, 40))
def test_the_ranks_of_a_subset_restore_all_that_they_hold(checkpoint: Checkpoint, split: Split, present: int) -> None:
    split = played(split, present)
    files = stored(checkpoint, split)
    assume(checkpoint.replicas != "dealt" or split.has_all_copies)
    found = written(files)
    for rank in range(split.present_ranks):
        cut = list(cut_steps(shard_reads(files, split, rank), None, False))
        _check_steps(files, found, cut, None)
        needed = _sorted(
            [
                number * 1_000_000 + indices(files.parts[number], b)
                for number, b in blocks_to_restore(files, split, rank)
            ]
        )
        assert _sorted([of_segments(files, step) for step in cut]) == needed


def test_a_subset_is_not_restored_by_other_ranks() -> None:
    checkpoint = Checkpoint("c", 1, (Part("p", 100, "total"),), Writers("file per rank"), Access(), "c")
    files = state_files(checkpoint, Split(1, 1, 8, 4))
    with pytest.raises(PlanError, match="4 of 8 ranks saved checkpoint `c`: only the same ranks can restore it"):
        list(shard_reads(files, Split(1, 1, 4), 0))


@given(checkpoints, splits, splits)
def test_what_a_rank_reads_for_others_and_for_itself_is_what_it_needs(
    checkpoint: Checkpoint, writer: Split, holder: Split
) -> None:
    files = stored(checkpoint, writer)
    for rank in range(holder.ranks):
        tensor, stage, _ = holder.coordinates(rank)
        shared = list(shared_reads(files, holder, rank))
        assert shared == list(shared_reads(files, holder, holder.rank(tensor, stage, 0)))
        cut = cut_steps([*shared, *lone_reads(files, holder, rank)], None, False)
        needed = [
            number * 1_000_000 + indices(files.parts[number], b) for number, b in blocks_to_restore(files, holder, rank)
        ]
        assert _sorted([of_segments(files, step) for step in cut]) == _sorted(needed)


def _check_steps(
    files: StateFiles, found: dict[str, NDArray[np.int64]], cut: list[ReadStep], transfer: int | None
) -> None:
    for step in cut:
        content = read(found, step)
        assert (content == of_segments(files, step)).all()
        assert 0 < len(content) <= (transfer or len(content))


def _sorted(found: list[NDArray[np.int64]]) -> list[int]:
    values: list[int] = np.sort(np.concatenate([np.empty(0, np.int64), *found])).tolist()
    return values


# --- the published models (MLPerf Storage v2)

GIB = 1 << 30
LLAMA = {
    "8b": Transformer("8b", 32, 4096, 14336, 32, 8, 128256, zero=3),
    "70b": Transformer("70b", 80, 8192, 28672, 128, 8, 128256, zero=3),
    "405b": Transformer("405b", 126, 16384, 53248, 128, 8, 128256, zero=1),
    "1t": Transformer("1t", 128, 25872, 98304, 192, 32, 128256, zero=1),
}


def published(name: str) -> Checkpoint:
    return Checkpoint("c", 1, (), Writers("file per rank"), Access(transfer=4 << 20), "c", model=LLAMA[name])


@pytest.mark.parametrize(
    ("name", "split", "parameters", "files", "gib"),
    [
        ("8b", Split(1, 1, 8), 8_030_261_248, (8, 8), (14.96, 89.75)),
        ("70b", Split(8, 1, 8), 69_882_617_856, (64, 64), (130.18, 781.03)),
        ("405b", Split(8, 32, 2), 405_853_388_800, (1032, 512), (756.01, 4536.23)),
        ("1t", Split(8, 64, 2), 1_183_035_102_480, (1048, 1024), (2203.66, 13222.93)),
    ],
)
def test_published_models_have_their_parameters_files_and_bytes(
    name: str, split: Split, parameters: int, files: tuple[int, int], gib: tuple[float, float]
) -> None:
    assert LLAMA[name].parameters == parameters
    stored = state_files(published(name), split)
    sizes = {file: size for rank in range(split.ranks) for file, size in stored.sizes(rank).items()}
    optimizer = [size for file, size in sizes.items() if "optimizer" in file]
    weights = [size for file, size in sizes.items() if "optimizer" not in file]
    assert (len(weights), len(optimizer)) == files
    assert (sum(weights) / GIB, sum(optimizer) / GIB) == pytest.approx(gib, rel=1e-3)
    assert sum(sizes.values()) == stored.total()


@pytest.mark.parametrize(
    ("name", "split", "optimizer", "more"),
    [
        ("8b", Split(1, 1, 8), 13.088, None),
        ("70b", Split(8, 1, 8), 14.238, None),
        ("405b", Split(8, 32, 2), 8.860, 2.97),
        ("1t", Split(8, 64, 2), 12.913, 4.28),
    ],
)
def test_ranks_of_published_models_save_what_was_measured(
    name: str, split: Split, optimizer: float, more: float | None
) -> None:
    stored = state_files(published(name), split)
    middle = [split.rank(3 % split.tensor, split.pipeline // 2, data) for data in range(split.data)]
    saved = [stored.owner_bytes(rank) / GIB for rank in middle]
    assert saved[1:] == pytest.approx([optimizer] * (split.data - 1), rel=1e-3)
    assert saved[0] == pytest.approx(optimizer + (more or 0), rel=1e-3)


def test_a_rank_of_a_thousand_finds_all_that_it_needs() -> None:
    stored = state_files(published("1t"), Split(8, 64, 2))
    # The last rank has its weights from the one of data rank 0 that holds the same, and as much of the optimizer.
    for rank, like in ((0, 0), (517, 517), (1023, 1015)):
        found = count_steps(shard_reads(stored, stored.split, rank), 4 << 20, False)
        assert found.bytes == pytest.approx(stored.owner_bytes(like), rel=1e-6)
    other = Split(4, 16, 4)
    found = count_steps(shard_reads(stored, other, 100), 4 << 20, False)
    needed = sum(block.length for _, block in blocks_to_restore(stored, other, 100))
    assert found.bytes == needed > 10 * GIB
    assert found.largest <= 4 << 20


@pytest.mark.parametrize(
    ("split", "all_there"), [(Split(1, 1, 4, 2), False), (Split(1, 2, 2, 2), True), (Split(4, 1, 1, 2), True)]
)
def test_what_was_dealt_to_ranks_that_take_no_part_is_not_restored(split: Split, all_there: bool) -> None:
    parts = tuple(Part(name, 400, "rows", 20) for name in "abc")
    checkpoint = Checkpoint("c", 1, parts, Writers("file per rank"), Access(), "c", replicas="dealt", parallel=split)
    files = state_files(checkpoint, split)
    if all_there:
        assert sum(fetch.block.length for fetch in shard_reads(files, split, 0)) == 3 * 400 // split.tensor
    else:
        with pytest.raises(PlanError, match="was dealt to ranks that take no part"):
            list(shard_reads(files, split, 0))


@given(checkpoints, splits, st.booleans())
def test_what_is_not_sent_is_read_by_one_rank_of_those_that_need_it(
    checkpoint: Checkpoint, split: Split, everything: bool
) -> None:
    files = stored(replace(checkpoint, replicas="once"), split)
    found = {name: np.zeros(files.sizes(maker)[name], np.int64) for name, maker in files.files()}
    for rank in range(split.ranks):
        for step in cut_steps(unsent_reads(files, split, everything, rank, rank), None, True):
            for begin, length in zip(step.offset.tolist(), step.length.tolist(), strict=True):
                found[step.file][begin : begin + length] += 1
    # Of what tensor-parallel ranks hold whole there is a copy of each of them, and all of the state is one of it.
    assert all(((times == 1) | (everything & (times == 0))).all() for times in found.values())
    assert not everything or sum(map(int, map(np.sum, found.values()))) == sum(
        fetch.block.length for fetch in whole_state_reads(files)
    )


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.sampled_from(["tp-dp-pp", "tp-pp-dp"]))
def test_ranks_have_the_places_of_their_order(tensor: int, pipeline: int, data: int, order: RankOrder) -> None:
    split = Split(tensor, pipeline, data, order=order)
    outer, inner = (range(pipeline), range(data)) if order == "tp-dp-pp" else (range(data), range(pipeline))
    places = [(t, *((a, b) if order == "tp-dp-pp" else (b, a))) for a in outer for b in inner for t in range(tensor)]
    assert [split.coordinates(rank) for rank in range(split.ranks)] == places
    assert [split.rank(*place) for place in places] == list(range(split.ranks))
