"""The reads of a restore: the bytes that a rank will hold, in the files that another split of ranks may have saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.model import Restore, Split
from dliosim.model.direct_io import widest_call
from dliosim.plan.checkpoints.layout import Segment, StateFiles, count_pieces, cut_pieces
from dliosim.plan.checkpoints.shards import (
    StoredBlock,
    TensorBlock,
    block_owners,
    blocks_of_rank,
    part_bytes,
    part_owners,
    range_blocks,
)

#: Returns the reads of shards, from the first again each time
Reads: TypeAlias = Callable[[], Iterator[StoredBlock]]

#: Rows of a strided block that one step reads at most; each is a call and some objects.
_MOST_ROWS = 1 << 14


def check_holder(stored: StateFiles, holder: Split) -> None:
    """Raise PlanError if a job that holds the state as `holder` cannot restore it.

    If fewer ranks saved than the model is split over (`Split.played`), only their shards exist. Then only the same
    split can restore, and none can where a part of these shards was `dealt` to ranks that did not save.
    """
    written = stored.split
    if written.played and holder != written:
        text = f"{written.played} of {written.ranks} ranks saved checkpoint `{stored.checkpoint.name}`"
        raise PlanError(f"{text}: only the same ranks can restore it, and not {holder}")
    if stored.checkpoint.replicas == "dealt" and not written.has_all_copies:
        raise PlanError(f"a part of checkpoint `{stored.checkpoint.name}` was dealt to ranks that take no part")


def blocks_to_restore(stored: StateFiles, holder: Split, rank: int) -> Iterator[tuple[int, TensorBlock]]:
    """Yield (number, block) of each part that a rank needs, in a job that holds the state as `holder`.

    `rank` is a rank of `holder`. Raises PlanError by `check_holder`.
    """
    check_holder(stored, holder)
    written = stored.split
    held = stored.checkpoint.parts_for(holder)
    for number, part in enumerate(stored.parts):
        if part.scope == "per rank" and holder != written:
            # The ranks of another split do not match those that saved it: its bytes are dealt again, evenly.
            size, ranks = part_bytes(part, written), holder.ranks
            blocks = range_blocks(rank * size // ranks, (rank + 1) * size // ranks, part.row_bytes)
        else:
            blocks = blocks_of_rank(held[number], holder, rank)
        for block in blocks:
            yield number, block


def shard_reads(stored: StateFiles, holder: Split, rank: int) -> Iterator[StoredBlock]:
    """Yield the reads of what a rank needs, each byte once: file after file, in each file by offset.

    Of replicas it takes those of the ranks whose coordinates are closest to its own.
    """
    wanted = _find_owners(stored, holder, rank)
    if stored.regions:
        for number, block, owners in wanted:
            for owner in owners:
                yield from _owner_reads(stored, owner, number, block)
        return
    by_part: dict[int, list[tuple[TensorBlock, range]]] = {}
    for number, block, owners in wanted:
        by_part.setdefault(number, []).append((block, owners))
    for owner in sorted({owner for _, _, owners in wanted for owner in owners}):
        for number in stored.owner_parts(owner):
            for block, owners in by_part.get(number, ()):
                if owner in owners:
                    yield from _owner_reads(stored, owner, number, block)


def _find_owners(stored: StateFiles, holder: Split, rank: int) -> list[tuple[int, TensorBlock, range]]:
    """Return (number, block, ranks that have saved it) of each part that a rank needs."""
    written, copies = stored.split, stored.checkpoint.copies(stored.split)
    tensor, _, data = holder.coordinates(rank)
    near = tensor * written.tensor // holder.tensor, data % written.data
    return [
        (number, block, block_owners(stored.parts[number], number, written, copies, block, near))
        for number, block in blocks_to_restore(stored, holder, rank)
    ]


def count_stored_blocks(stored: StateFiles, holder: Split, rank: int | None) -> int:
    """Return the number of reads of `shard_reads`, about; with rank None that of `whole_state_reads`."""
    if rank is not None:
        return sum(len(owners) for _, _, owners in _find_owners(stored, holder, rank))
    return sum(len(owners) for owners in _all_owners(stored))


def _all_owners(stored: StateFiles) -> list[range]:
    """Return the ranks that have saved each part."""
    copies = stored.checkpoint.copies(stored.split)
    return [part_owners(part, number, stored.split, copies) for number, part in enumerate(stored.parts)]


def whole_state_reads(stored: StateFiles) -> Iterator[StoredBlock]:
    """Yield the reads of all that was saved, each byte once, in the order of `shard_reads`."""
    once = _all_owners(stored)
    if stored.regions:
        places = ((owner, number) for number, owners in enumerate(once) for owner in owners)
    else:
        ranks = range(stored.split.present_ranks)
        places = ((owner, number) for owner in ranks for number in stored.owner_parts(owner) if owner in once[number])
    for owner, number in places:
        yield from _owner_reads(stored, owner, number, None)


def shared_reads(stored: StateFiles, holder: Split, rank: int) -> Iterator[StoredBlock]:
    """Yield the reads of what all ranks with a rank's tensor rank and stage need, as the first of them finds them."""
    tensor, stage, _ = holder.coordinates(rank)
    first = holder.rank(tensor, stage, 0)
    return (fetch for fetch in shard_reads(stored, holder, first) if _is_shared(stored, fetch))


def lone_reads(stored: StateFiles, holder: Split, rank: int) -> Iterator[StoredBlock]:
    """Yield the reads of the other bytes that a rank needs: those that no other rank holds."""
    return (fetch for fetch in shard_reads(stored, holder, rank) if not _is_shared(stored, fetch))


def unsent_reads(stored: StateFiles, holder: Split, everything: bool, place: int, rank: int) -> Iterator[StoredBlock]:
    """Yield the reads of a rank where one rank reads what several need, and sends nothing on.

    `place` is the rank of `holder` whose part it holds.
    """
    if everything:
        return whole_state_reads(stored) if rank == 0 else iter(())
    return lone_reads(stored, holder, place) if holder.coordinates(place)[2] else shard_reads(stored, holder, place)


def own_reads(stored: StateFiles, holder: Split, verb: Restore, ranks: int, rank: int) -> Reads:
    """Return the reads of what a rank will hold, or of everything, if it reads alone, in the order of `verb`."""
    place = (rank + verb.shift) % ranks

    def list_reads() -> Iterator[StoredBlock]:
        found = whole_state_reads(stored) if verb.everything else shard_reads(stored, holder, place)
        return found if verb.order == "as saved" else rotate_files(found, rank, ranks)

    return list_reads


def group_files(found: Iterable[StoredBlock]) -> list[list[StoredBlock]]:
    """Return reads by their files, each file at the place where it comes first."""
    files: dict[str, list[StoredBlock]] = {}
    for block in found:
        files.setdefault(block.file, []).append(block)
    return list(files.values())


def rotate_files(found: Iterable[StoredBlock], rank: int, ranks: int) -> Iterator[StoredBlock]:
    """Yield reads file by file, from the file on with rank / ranks of all files before it, and round to it again."""
    files = group_files(found)
    first = rank * len(files) // ranks
    return chain.from_iterable(files[first:] + files[:first])


def deal_files(stored: StateFiles, ranks: int) -> list[Reads]:
    """Return for each rank the reads of its files, where file k of all that was saved is read by rank k mod `ranks`."""
    files = group_files(whole_state_reads(stored))
    return [partial(chain.from_iterable, files[rank::ranks]) for rank in range(ranks)]


def restore_passes(stored: StateFiles, holder: Split, verb: Restore, ranks: int, rank: int) -> list[list[Reads]]:
    """Return what a rank reads or receives, pass by pass.

    A pass has the reads of each rank of a group that reads for all of it, the first ranks of the group, or those of
    this rank alone. With `once` and `by file` the first pass is that of a group.
    """
    place = (rank + verb.shift) % ranks
    if verb.by_file:
        return [deal_files(stored, ranks)]
    if verb.once and not verb.sent:
        unsent = partial(unsent_reads, stored, holder, verb.everything, place, rank)
        return [[unsent if verb.order == "as saved" else lambda: rotate_files(unsent(), rank, ranks)]]
    if verb.everything or not verb.once:
        return [[own_reads(stored, holder, verb, ranks, rank)]]
    return [[partial(shared_reads, stored, holder, place)], [partial(lone_reads, stored, holder, place)]]


def _is_shared(stored: StateFiles, fetch: StoredBlock) -> bool:
    return stored.parts[fetch.part].scope in ("rows", "columns", "whole")


def _owner_reads(stored: StateFiles, owner: int, number: int, needed: TensorBlock | None) -> Iterator[StoredBlock]:
    """Yield the reads of what an owner has stored of a block, or of the whole part (None)."""
    for shard in stored.part_shards(owner, number):
        common = shard.block if needed is None else shard.block.overlap(needed)
        if common is not None:
            width = shard.block.width
            skipped = (common.row0 - shard.block.row0) * width + common.col0 - shard.block.col0
            yield StoredBlock(number, common, shard.file, shard.offset + skipped, width)


class ReadStep(NamedTuple):
    """The bytes that are read into memory together."""

    file: str  #: name of the file
    offset: NDArray[np.int64]  #: first byte of each call, (calls,)
    length: NDArray[np.int64]  #: bytes of each call, (calls,)
    segments: tuple[Segment, ...]  #: the state's bytes that they are, in order


class ReadTotals(NamedTuple):
    """The sizes of several read steps together."""

    steps: int  #: number of steps
    calls: int  #: number of calls
    bytes: int  #: bytes of all calls
    largest: int  #: bytes of a buffer that holds any step

    def combine(self, other: ReadTotals) -> ReadTotals:
        """Return the totals of both, one after the other."""
        largest = max(self.largest, other.largest)
        return ReadTotals(self.steps + other.steps, self.calls + other.calls, self.bytes + other.bytes, largest)


def cut_steps(found: Iterable[StoredBlock], transfer: int | None, whole: bool, page: int = 1) -> Iterator[ReadStep]:
    """Yield steps of at most `transfer` bytes (None: of any size), with a call for each contiguous range of the file.

    A step of a contiguous block is what one call of `cut_pieces` would write. A step of another block has as many whole
    rows as fit when each call is widened to multiples of `page` bytes, or a part of one row.
    """
    for contiguous, some in groupby(found, lambda fetch: fetch.is_contiguous):
        if contiguous:
            for piece in cut_pieces(some, transfer, whole):
                yield ReadStep(piece.file, np.array([piece.offset]), np.array([piece.length]), piece.segments)
        else:
            for fetch in some:
                yield from _cut_strided(fetch, transfer, page)


def _cut_strided(fetch: StoredBlock, transfer: int | None, page: int) -> Iterator[ReadStep]:
    block, width, begin = fetch.block, fetch.block.width, 0
    together = _rows_per_step(width, transfer, page)
    while begin < block.length:
        row, column = divmod(begin, width)
        if together:
            rows, length = min(together, block.row1 - block.row0 - row), width
        else:
            rows, length = 1, min(transfer or width, width - column)
        offset = fetch.offset + column + fetch.stride * np.arange(row, row + rows)
        yield ReadStep(fetch.file, offset, np.full(rows, length), (Segment(fetch.part, block, begin, rows * length),))
        begin += rows * length


def _rows_per_step(width: int, transfer: int | None, page: int) -> int:
    """Return the rows of a strided block that a step reads; 0 if one row does not fit."""
    if transfer is None:
        return _MOST_ROWS
    return min(_MOST_ROWS, max(1, transfer // widest_call(width, page))) if width <= transfer else 0


def count_steps(found: Iterable[StoredBlock], transfer: int | None, whole: bool, page: int = 1) -> ReadTotals:
    """Return the totals of what `cut_steps` yields, without cutting."""
    made = calls = total = largest = 0

    def sum_bytes(some: Iterator[StoredBlock]) -> Iterator[StoredBlock]:
        nonlocal total
        for fetch in some:
            total += fetch.block.length
            yield fetch

    for contiguous, some in groupby(found, lambda fetch: fetch.is_contiguous):
        if contiguous:
            count, most = count_pieces(sum_bytes(some), transfer, whole)
            made, calls, largest = made + count, calls + count, max(largest, widest_call(most, page))
            continue
        for fetch in sum_bytes(some):
            strided = count_strided(fetch.block.row1 - fetch.block.row0, fetch.block.width, transfer, page)
            made, calls, largest = made + strided.steps, calls + strided.calls, max(largest, strided.largest)
    return ReadTotals(made, calls, total, largest)


def count_strided(rows: int, width: int, transfer: int | None, page: int) -> ReadTotals:
    """Return the totals of the steps of `rows` ranges of `width` bytes that do not follow one another."""
    if together := _rows_per_step(width, transfer, page):
        return ReadTotals(-(-rows // together), rows, rows * width, min(rows, together) * widest_call(width, page))
    calls = rows * -(-width // (transfer or width))
    return ReadTotals(calls, calls, rows * width, widest_call(transfer or width, page))
