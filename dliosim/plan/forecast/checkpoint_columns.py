"""The number of calls that save and restore a checkpoint, for all parts and many owners at once, as columns.

A part consists of units that its owners share evenly: bytes (`total`, `per rank`), rows, columns, or one unit that is
all of it (`whole`). The blocks of `reshard.shard_reads` are then one range of units for each part and owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Split
from dliosim.model.direct_io import widest_call
from dliosim.plan.checkpoints.layout import StateFiles
from dliosim.plan.checkpoints.reshard import ReadTotals, check_holder, count_strided
from dliosim.plan.checkpoints.shards import Column, share_start

#: Stretches that are handled together: 8 bytes in each of about thirty columns.
_AT_ONCE = 1 << 19


class UnitRanges(NamedTuple):
    """The units of each part that are needed, and the ranks that have saved them."""

    begin: Column  #: first unit
    end: Column  #: last unit, exclusive
    first: Column  #: first rank
    stop: Column  #: last rank, exclusive

    @property
    def part_mask(self) -> NDArray[np.bool_]:
        """Return for each part whether some of it is needed and was saved, bool (parts,)."""
        return (self.begin < self.end) & (self.first < self.stop)

    def keep_parts(self, parts: NDArray[np.bool_]) -> UnitRanges:
        """Return the same ranges, empty for all other parts."""
        return self._replace(stop=np.where(parts, self.stop, self.first))


class FileStretches(NamedTuple):
    """Ranges of files, in the order in which they are read or written."""

    part: Column  #: number of the part
    file: Column  #: number of the file
    place: Column  #: offset in all files of one kind, one after another; bytes
    length: Column  #: bytes
    lines: Column  #: rows of the block, 1 if it is not split by columns
    strided: NDArray[np.bool_]  #: true if there are gaps between the rows


class StateCounter:
    """Counts the calls by which ranks that hold a checkpoint as `holder` read or write it."""

    def __init__(self, stored: StateFiles, holder: Split) -> None:
        self._stored, self._holder = stored, holder
        written, parts = stored.split, stored.parts
        held = stored.checkpoint.parts_for(holder)
        shares = stored.shares
        scope, size, row, count, element = shares.scope, shares.size, shares.row, shares.rows, shares.element
        per_rank, self._whole = scope == "per rank", scope == "whole"
        rows, columns = scope == "rows", scope == "columns"
        self.tensors = rows | columns | self._whole
        self._units = np.select([rows, columns, self._whole], [count, row // element, np.minimum(size, 1)], size)
        self._units[per_rank] *= written.present_ranks
        self._unit = np.select([rows, columns, self._whole], [row, element, size], 1)
        self._lines = np.where(columns, count, 1)
        alone = np.where(self._whole, 1, written.tensor)
        self._owners = np.where(self.tensors, alone, np.where(per_rank, written.present_ranks, written.ranks))
        self._stage = np.where(self.tensors, [part.stage for part in held], -1)
        self._all_copies = stored.checkpoint.copies(written) == "all"
        # The first of the ranks that share a part, for data rank 0.
        first = written.stage_stride * shares.stage + written.data_stride * np.maximum(shares.copy, 0)
        self._base = np.where(self.tensors, first, 0)
        # Parts by owner: parts that all ranks share, and parts of each stage (and of each data rank where these save
        # different parts).
        self._flat = np.flatnonzero(~self.tensors)
        tensors = np.flatnonzero(self.tensors)
        order = np.argsort(self._base[tensors], kind="stable")
        self._dealt, self._dealt_base = tensors[order], self._base[tensors][order]
        labels: dict[str, int] = {}
        alone_each = stored.checkpoint.writers.kind == "file per rank"
        self._label = np.array([labels.setdefault(part.file if alone_each else "", len(labels)) for part in parts])
        self._labels = len(labels)
        total = stored.shares.bytes_below(written.present_ranks)
        self._start: Column = np.cumsum(total) - total
        self._before = np.append(0, np.cumsum(stored.bytes_per_owner()))
        self._writers = stored.writers()

    def units_to_restore(self, rank: int) -> UnitRanges:
        """Return the units that a rank needs, from the owners whose coordinates are closest to its own.

        Raises PlanError by `check_holder`.
        """
        check_holder(self._stored, self._holder)
        written, holder, tensors = self._stored.split, self._holder, self.tensors
        tensor, stage, data = holder.coordinates(rank)
        among = np.where(tensors, np.where(self._whole, 1, holder.tensor), holder.ranks)
        if holder == written:
            among = np.where(tensors, among, self._owners)
        mine: Column = np.where(tensors, np.where(self._whole, 0, tensor), rank)
        begin, end = share_start(self._units, mine, among), share_start(self._units, mine + 1, among)
        end = np.where((self._stage == stage) | ~tensors, end, begin)
        base = self._first_owner(data % written.data)
        near = base + tensor * written.tensor // holder.tensor
        base = np.where(self._whole & (near < written.present_ranks), near, base)
        some = begin < end
        first, stop = base.copy(), base.copy()
        for bound, unit, more in ((first, begin, 0), (stop, end - 1, 1)):
            bound[some] += self._owner_index(unit[some], some) + more
        return UnitRanges(begin, end, first, np.minimum(stop, written.present_ranks))

    def _first_owner(self, data: int) -> Column:
        """Return the first of the ranks that share a part, for ranks of a data rank."""
        near: Column = np.where(self.tensors & self._all_copies, data * self._stored.split.data_stride, 0)
        return self._base + near

    def all_units(self) -> UnitRanges:
        """Return all that was saved, each byte once."""
        none, present = np.zeros_like(self._units), self._stored.split.present_ranks
        return UnitRanges(none, self._units, self._base, np.minimum(self._base + self._owners, present))

    def own_units(self, rank: int) -> UnitRanges:
        """Return the units that a rank saves."""
        split, none = self._stored.split, np.zeros_like(self._units)
        base = self._first_owner(split.coordinates(rank)[2])
        saves = (base <= rank) & (rank < base + np.where(self.tensors, split.tensor, self._owners))
        return UnitRanges(none, self._units, none + rank, none + rank + saves)

    def _owner_index(self, unit: Column, some: NDArray[np.bool_]) -> Column:
        """Return for a unit of each of some parts the index of its owner, from 0."""
        units, owners = self._units[some], self._owners[some]
        found: Column = np.clip(np.ceil((unit + 1.0) * (owners / units)).astype(np.int64) - 1, 0, owners - 1)
        while (early := share_start(units, found + 1, owners) <= unit).any():
            found += early
        while (late := share_start(units, found, owners) > unit).any():
            found -= late
        return found

    def count(self, needs: UnitRanges, transfer: int | None, whole: bool, page: int) -> tuple[ReadTotals, int]:
        """Return what `count_steps` counts for the same reads, and the number of files that they are in."""
        runs, made, calls, total, largest, files = 0, 0, 0, 0, 0, 0
        last: FileStretches | None = None  # the last run of contiguous stretches, which the next rows may continue

        def end_runs(lengths: Column) -> None:
            nonlocal runs, largest
            if most := int(lengths.max(initial=0)):
                runs += int((lengths > 0).sum() if transfer is None else (-(-lengths // transfer)).sum())
                largest = max(largest, widest_call(min(most, transfer or most), page))

        # In the order of `shard_reads`: in one file by part, else by owner.
        pairs = self._part_pairs(needs) if self._stored.regions else self._owner_pairs(needs)
        for part, owner in pairs:
            rows = self._find_stretches(needs, part, owner)
            if not len(rows.part):
                continue
            total += int(rows.length.sum())
            for lines, width, count in _group_strided(rows):
                reading = count_strided(lines, width, transfer, page)
                made, calls = made + count * reading.steps, calls + count * reading.calls
                largest = max(largest, reading.largest)
            if last is None:
                files = 1
            else:
                rows = FileStretches._make(np.append(one, more) for one, more in zip(last, rows, strict=True))
            files += int((rows.file[1:] != rows.file[:-1]).sum())
            ends = rows.place + rows.length
            follows = (rows.file[1:] == rows.file[:-1]) & (rows.place[1:] == ends[:-1])
            follows &= ~rows.strided[1:] & ~rows.strided[:-1]
            if not whole:
                follows &= rows.part[1:] == rows.part[:-1]
            starts = np.flatnonzero(np.append(True, ~follows))
            sums = np.add.reduceat(np.where(rows.strided, 0, rows.length), starts)
            end_runs(sums[:-1])
            last = FileStretches._make(column[-1:] for column in rows)
            last = last._replace(place=ends[-1:] - sums[-1:], length=sums[-1:])
        if last is not None:
            end_runs(last.length)
        return ReadTotals(made + runs, calls + runs, total, largest), files

    def count_stretches(self, needs: UnitRanges) -> int:
        """Return the number of (part, owner) pairs that `count` handles; each takes it about 0.1 us."""
        if self._stored.regions:
            return int((needs.stop - needs.first)[needs.part_mask].sum())
        _, first, stop = self._owners_of(needs)
        return int((stop - first).sum()) + len(self._flat) * len(first)

    def _part_pairs(self, needs: UnitRanges) -> Iterator[tuple[Column, Column]]:
        part = np.flatnonzero(needs.part_mask)
        count = (needs.stop - needs.first)[part]
        ends = np.cumsum(count)
        for begin in range(0, int(count.sum()), _AT_ONCE):
            index = np.arange(begin, min(begin + _AT_ONCE, int(ends[-1])))
            which = np.searchsorted(ends, index, side="right")
            yield part[which], needs.first[part[which]] + index - (ends - count)[which]

    def _owners_of(self, needs: UnitRanges) -> tuple[Column, Column, Column]:
        """Return the ranks that have saved what is needed, and for each its range of tensors in `_dealt`."""
        first, stop = needs.first[needs.part_mask], needs.stop[needs.part_mask]
        if not len(first):
            return first, first, first
        lowest, highest = int(first.min()), int(stop.max())
        change = np.bincount(first - lowest, minlength=highest - lowest + 1)
        change -= np.bincount(stop - lowest, minlength=highest - lowest + 1)
        owners = lowest + np.flatnonzero(np.cumsum(change))
        # `_dealt` is sorted by the first of the ranks that share a tensor.
        split = self._stored.split
        base = owners // split.tensor * split.tensor
        if self._all_copies:
            base = split.stage_stride * (owners // split.stage_stride % split.pipeline)
        return owners, np.searchsorted(self._dealt_base, base), np.searchsorted(self._dealt_base, base, side="right")

    def _owner_pairs(self, needs: UnitRanges) -> Iterator[tuple[Column, Column]]:
        """Yield (part, owner) columns of all that each owner has saved.

        Parts that are not wanted are included, as offsets in a file depend on them.
        """
        owners, first, stop = self._owners_of(needs)
        count = stop - first + len(self._flat)
        ends = np.cumsum(count)
        begin = 0
        while begin < len(owners):
            end = max(begin + 1, int(np.searchsorted(ends, (ends[begin - 1] if begin else 0) + _AT_ONCE)))
            here = slice(begin, end)
            which = np.repeat(np.arange(begin, min(end, len(owners))), count[here])
            index = np.arange(len(which)) - np.repeat(np.cumsum(count[here]) - count[here], count[here])
            tensor = index < (stop - first)[which]
            part = np.empty_like(index)
            part[tensor] = self._dealt[(first[which] + index)[tensor]]
            part[~tensor] = self._flat[(index - (stop - first)[which])[~tensor]]
            order = np.argsort(which * len(self._units) + part, kind="stable")
            if len(part):
                yield part[order], owners[which[order]]
            begin = end

    def _find_stretches(self, needs: UnitRanges, part: Column, owner: Column) -> FileStretches:
        """Return the ranges of the pairs (part, owner) that are needed, in this order."""
        stored, split = self._stored, self._stored.split
        base = self._base[part]
        if self._all_copies:
            base = np.where(self.tensors[part], owner // split.tensor * split.tensor, base)
        mine: Column = np.where(self._whole[part], 0, owner - base)
        units, owners, unit = self._units[part], self._owners[part], self._unit[part] * self._lines[part]
        begin, end = share_start(units, mine, owners), share_start(units, mine + 1, owners)
        place = self._shard_offsets(part, owner, begin * unit, (end - begin) * unit)
        low, high = np.maximum(begin, needs.begin[part]), np.minimum(end, needs.end[part])
        found = (low < high) & (needs.first[part] <= owner) & (owner < needs.stop[part])
        part, owner, unit, begin, end, low, high, place = (
            column[found] for column in (part, owner, unit, begin, end, low, high, place)
        )
        lines = self._lines[part]
        strided = (lines > 1) & (high - low < end - begin)
        # A strided stretch never continues another one, so its exact offset is not used.
        place = place + np.where(strided, 0, (low - begin) * unit)
        file = np.zeros_like(owner)
        if not stored.regions:
            file = self._writers[owner] * self._labels + self._label[part]
        return FileStretches(part, file, place, (high - low) * unit, lines, strided)

    def _shard_offsets(self, part: Column, owner: Column, before: Column, length: Column) -> Column:
        """Return the offset of the shard of each pair (part, owner).

        `before` bytes of the part belong to owners before it.
        """
        split = self._stored.split
        if not self._stored.regions:
            # The shards of one owner follow those of another, and each owner's are in the order of the parts.
            saved: Column = np.cumsum(length) - length
            starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
            lengths = np.diff(np.append(starts, len(owner)))
            return self._before[owner] + saved - np.repeat(saved[starts], lengths)
        tensor, copy = owner % split.tensor, owner // split.data_stride % split.data
        size = self._units[part] * self._unit[part] * self._lines[part]
        before = np.where(self._whole[part], tensor * size, before)
        if self._all_copies:
            all_of_copy = np.where(self._whole[part], split.tensor * size, size)
            before = before + np.where(self.tensors[part], copy * all_of_copy, 0)
        return self._start[part] + before


def _group_strided(rows: FileStretches) -> Iterator[tuple[int, int, int]]:
    """Yield rows, bytes of a row, and the number of strided stretches with both."""
    lines, length = rows.lines[rows.strided], rows.length[rows.strided]
    both, counts = np.unique(np.stack([lines, length // lines]), axis=1, return_counts=True)
    for (line, width), count in zip(both.T.tolist(), counts.tolist(), strict=True):
        yield line, width, count
