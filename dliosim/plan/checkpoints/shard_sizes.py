"""Bytes of each part that a rank saves, and that all ranks before it save, for thousands of parts and ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Copies, Part, Split

Column = NDArray[np.int64]
"""A number for each part, in the order of the parts; int64 (parts,)."""


class ShardSizes:
    """Closed forms of what `shards.blocks_of_rank` and `shards.is_part_owner` give for one part and rank."""

    def __init__(self, parts: Sequence[Part], split: Split, copies: Copies) -> None:
        self._split = split
        self.size, self.row, self.rows, self.element, self.stage = (
            np.array([getattr(part, name) for part in parts], np.int64)
            for name in ("size", "row_bytes", "rows", "element", "stage")
        )
        self.scope = np.array([part.scope for part in parts], np.str_)
        # A tensor is `pieces` of `piece` bytes that tensor-parallel ranks share evenly; 0 where each rank has it whole.
        is_split = [self.scope == "rows", self.scope == "columns"]
        self._pieces: Column = np.select(is_split, [self.rows, self.row // self.element], 0)
        self._piece: Column = np.select(is_split, [self.row, self.rows * self.element], 0)
        others: list[Column] = [self.size * (self.scope == scope) for scope in ("whole", "total", "per rank")]
        self._whole, self._total, self._each = others
        # The data-parallel rank that saves; -1 where all do.
        number = np.arange(len(parts))
        replica = -1 if copies == "all" else copies
        self.copy: Column = number % split.data if copies == "dealt" else np.full_like(number, replica)

        # Parts that are held and saved in the same way are one kind, as those of many layers are: work is done once a
        # kind. `_kinds` has a row for each kind, `_kind` the kind of each part.
        table = (self.stage, self.copy, self._pieces, self._piece, self._whole, self._total, self._each)
        self._kinds, kind = np.unique(np.stack(table, axis=1), axis=0, return_inverse=True)
        self._kind = kind.reshape(-1)

    def kind_key(self, numbers: Column) -> bytes:
        """Return a key; two sets of parts with the same key have bytes from the same ranks."""
        return np.unique(self._kind[numbers]).tobytes()

    def sum_by_rank(self, numbers: Column | slice = slice(None)) -> Column:
        """Return the bytes of some parts, or of all, that each rank saves; int64 (ranks that take part,)."""
        split = self._split
        saved = np.zeros(split.present_ranks, np.int64)
        counts = np.bincount(self._kind[numbers], minlength=len(self._kinds))
        for kind in np.flatnonzero(counts):
            count = int(counts[kind])
            stage, copy, pieces, piece, whole, total, each = self._kinds[kind].tolist()
            saved += count * each
            if total:
                saved += count * np.diff(share_start(total, np.arange(split.present_ranks + 1), split.ranks))
            if not pieces and not whole:
                continue
            tensor = np.arange(split.tensor + 1)
            held = np.diff(share_start(pieces, tensor, split.tensor) * piece + whole * tensor)
            for data in range(split.data) if copy < 0 else (copy,):
                begin = split.rank(0, stage, data)
                some = saved[begin : begin + split.tensor]
                some += count * held[: len(some)]
        return saved

    def bytes_of_rank(self, rank: int) -> Column:
        """Return the bytes that a rank saves of each part."""
        split = self._split
        tensor, stage, data = split.coordinates(rank)
        here = (self.stage == stage) & ((self.copy == data) | (self.copy < 0))
        saved = (
            self._each + share_start(self._total, rank + 1, split.ranks) - share_start(self._total, rank, split.ranks)
        )
        saved[here] += (self._tensor_bytes_below(tensor + 1) - self._tensor_bytes_below(tensor))[here]
        return saved

    def bytes_below(self, rank: int) -> Column:
        """Return the bytes that all ranks below `rank` save of each part."""
        split, group = self._split, self._split.tensor
        # Data ranks of the part's stage that begin below `rank`: all but the last of them end there, too.
        begun: Column = np.clip(-(-(rank - split.stage_stride * self.stage) // split.data_stride), 0, split.data)
        last = np.where(self.copy < 0, np.maximum(begun - 1, 0), self.copy)
        once = self._tensor_bytes_below(
            np.clip(rank - split.stage_stride * self.stage - split.data_stride * last, 0, group)
        )
        every: Column = self._tensor_bytes_below(group) * np.maximum(begun - 1, 0) + once
        saved = share_start(self._total, rank, split.ranks)
        saved += self._each * rank
        saved += np.where(self.copy < 0, every, once).astype(np.int64)
        return saved

    def _tensor_bytes_below(self, tensor: int | Column) -> Column:
        """Return the bytes of each tensor that the tensor-parallel ranks below `tensor` hold."""
        held = share_start(self._pieces, tensor, self._split.tensor) * self._piece
        held += self._whole * tensor
        return held


def share_start(size: int | Column, rank: int | Column, ranks: int | Column) -> Column:
    """Return `size * rank // ranks` where the product may be too large for 64 bits."""
    each, more = size // ranks, size % ranks
    return np.asarray(each * rank + more * rank // ranks, np.int64)
