"""The extents of samples in files, and the calls that move them into the buffer of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Ints
from dliosim.model.direct_io import widen_range
from dliosim.model.epoch_size import LARGEST_TABLE
from dliosim.plan.samples.sample_to_file import prefix_sum

Place = TypeVar("Place", int, Ints)


@dataclass(frozen=True, slots=True)
class Extents:
    """The samples that a rank touches, one row each, in order. All int64."""

    sample: Ints  #: number of the sample, (rows,)
    file: Ints  #: number of the file, (rows,)
    offset: Ints  #: first byte, (rows,)
    length: Ints  #: bytes, (rows,)
    step_start: Ints  #: step s is rows step_start[s]:step_start[s + 1], (steps + 1,)

    @property
    def steps(self) -> int:
        """Number of steps, empty ones included."""
        return len(self.step_start) - 1

    def row_steps(self) -> Ints:
        """Return the step of each row."""
        return np.repeat(np.arange(self.steps), np.diff(self.step_start))

    def every(self, rows: int) -> Extents:
        """Return the first of each `rows` rows, where each sample of a loop is that many."""
        if rows == 1:
            return self
        return self.select_rows(np.arange(0, len(self.sample), rows), self.step_start // rows)

    def select(self, chosen: NDArray[np.bool_]) -> Extents:
        """Return the chosen rows, in the same steps."""
        return self.select_rows(np.flatnonzero(chosen), prefix_sum(chosen)[self.step_start])

    def select_rows(self, rows: Ints, step_start: Ints) -> Extents:
        """Return some rows, or all rows in another order, in steps that begin at their rows `step_start`."""
        return Extents(self.sample[rows], self.file[rows], self.offset[rows], self.length[rows], step_start)


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Ranges of files that calls read, a row each, in order, in the steps that need them. int64 (rows,).

    Row i holds, from its byte `at` on, `held` bytes of its sample's contents, from byte `begin` of the contents on.
    """

    extents: Extents  #: file ranges, with their samples and steps
    at: Ints  #: first byte of the contents in the range
    begin: Ints  #: first byte of the contents that it holds
    held: Ints  #: bytes of the contents; 0 if this is not known, as in an encoded unit
    column: Ints  #: column of the index
    piece: Ints  #: number of an encoded unit among those of its sample in `column`

    def drop_duplicates(self) -> ReadRanges:
        """Return each range once a step: samples may share a unit."""
        rows = self.extents
        step = rows.row_steps()
        order = np.lexsort((rows.offset, rows.file, step))
        again = np.zeros(len(order), np.bool_)
        same = [column[order][1:] == column[order][:-1] for column in (step, rows.file, rows.offset, rows.length)]
        again[order[1:]] = np.logical_and.reduce([*same, self.held[order][1:] == 0])
        return self._select_rows(np.flatnonzero(~again), rows.select(~again).step_start)

    def sort_by_file(self) -> ReadRanges:
        """Return the rows of each step in the order of the files' numbers, and in each file in that of offsets."""
        rows = self.extents
        return self._select_rows(np.lexsort((rows.offset, rows.file, rows.row_steps())), rows.step_start)

    @classmethod
    def merge(cls, parts: Sequence[ReadRanges], place: Ints, step_start: Ints) -> ReadRanges:
        """Return the ranges of all parts in the order of their places; step s has places from `step_start[s]` on."""
        order = np.argsort(place, kind="stable")
        rows = [np.concatenate([getattr(one.extents, each.name) for one in parts]) for each in fields(Extents)[:-1]]
        others = [np.concatenate([getattr(one, each.name) for one in parts]) for each in fields(ReadRanges)[1:]]
        joined = cls(Extents(*[*rows, step_start]), *others)
        return joined._select_rows(order, np.searchsorted(place[order], step_start))

    def _select_rows(self, rows: Ints, step_start: Ints) -> ReadRanges:
        others = [getattr(self, each.name)[rows] for each in fields(ReadRanges)[1:]]
        return ReadRanges(self.extents.select_rows(rows, step_start), *others)


def empty_ranges(steps: int) -> ReadRanges:
    """Return the ranges of steps that read nothing."""
    none = np.empty(0, np.int64)
    return ReadRanges(Extents(none, none, none, none, np.zeros(steps + 1, np.int64)), none, none, none, none, none)


class Calls(NamedTuple):
    """The calls of every step, in order. All int64 but `continues`.

    The bytes of each sample are contiguous in the buffer of its step. A named tuple, since each step makes one.
    """

    file: Ints  #: number of the file, (calls,)
    offset: Ints  #: first byte in the file, (calls,)
    length: Ints  #: bytes, (calls,)
    start: Ints  #: first byte in the step's buffer, (calls,)
    step_start: Ints  #: step s is calls step_start[s]:step_start[s + 1], (steps + 1,)
    step_bytes: Ints  #: bytes of the step's buffer that are filled, (steps,)
    sample_start: Ints  #: first byte of each sample in its buffer, (rows,)
    row_start: Ints  #: step s holds samples row_start[s]:row_start[s + 1], (steps + 1,)
    #: true if a call continues the sample of the call before it, in the same file, (calls,); None if every sample
    #: is one range
    continues: NDArray[np.bool_] | None = None
    #: calls that these are a part of; None if they are all
    whole: Calls | None = None
    #: number of the first of these calls there
    first: int = 0

    @property
    def steps(self) -> int:
        """Number of steps, empty ones included."""
        return len(self.step_start) - 1

    @property
    def buffer_size(self) -> int:
        """Bytes of the largest step."""
        return int(self.step_bytes.max(initial=0))

    def step(self, step: int) -> Calls:
        """Return the calls of one step; views, no copies."""
        return self.part(int(self.step_start[step]), int(self.step_start[step + 1]))

    def part(self, first: int, last: int) -> Calls:
        """Return the calls [first, last), all of one step; views, no copies.

        They lack samples and `step_bytes`: backends get such parts, and need neither.
        """
        return Calls(
            self.file[first:last],
            self.offset[first:last],
            self.length[first:last],
            self.start[first:last],
            _step_edges(last - first),
            _NOTHING,
            _NOTHING,
            _NOTHING,
            self.continues[first:last] if self.continues is not None else None,
            self.whole or self,
            self.first + first,
        )


@cache
def _step_edges(calls: int) -> Ints:
    """Return `step_start` of one step."""
    return np.array([0, calls])


_NOTHING = np.empty(0, np.int64)


def plan_calls(extents: Extents, transfer: int | None, page: int = 1) -> Calls:
    """Return the calls that read `extents`.

    With `transfer` None each sample is one call. Otherwise samples of one step that follow each other in order and in
    the file become one run, which is cut into calls of at most `transfer` bytes. With `page` above 1 (O_DIRECT) calls
    are widened to multiples of it, in the file and in the buffer, and `transfer` is rounded down to a multiple. The
    last call of a file may then reach beyond its end; such a read ends early. Raises PlanError if `transfer` is
    less than `page`; [E113] if a step would take more calls than `LARGEST_TABLE`.
    """
    if transfer is not None and transfer < page:
        raise PlanError(f"transfer of {transfer} B: reads that bypass the cache are multiples of {page} B")
    first, last = extents.offset, extents.offset + extents.length
    if page > 1:
        first, last = widen_range(first, last, page)
    if transfer is None:
        start, step_bytes = _pack_steps(last - first, extents.step_start)
        at = start if page == 1 else start + (extents.offset - first)
        rows = extents.step_start
        continues = _continuation_rows(extents)
        return Calls(extents.file, first, last - first, start, rows, step_bytes, at, rows, continues)
    transfer = transfer // page * page
    head = _run_heads(extents, first, last)
    tail = np.append(head[1:], len(first)) - 1 if len(head) else head
    run_first = first[head]
    run_length = last[tail] - run_first
    run_steps = np.searchsorted(head, extents.step_start)  # the first run of each step
    run_start, step_bytes = _pack_steps(run_length, run_steps)
    run_of_row = np.repeat(np.arange(len(head)), tail - head + 1)
    sample_start = run_start[run_of_row] + (extents.offset - run_first[run_of_row])
    pieces = -(-run_length // transfer)
    piece_start = prefix_sum(pieces)
    if (most := int(np.diff(piece_start[run_steps]).max(initial=0))) > LARGEST_TABLE:
        from dliosim.units import format_bytes  # loads fractions and decimals, for this text alone

        raise PlanError(
            f"a step takes {most:_} calls of {format_bytes(transfer)}; at most {LARGEST_TABLE:_} are planned", "E113"
        )
    run = np.repeat(np.arange(len(head)), pieces)
    done = (np.arange(len(run)) - piece_start[run]) * transfer
    continues = _continuation_rows(extents)
    return Calls(
        extents.file[head][run],
        run_first[run] + done,
        np.minimum(run_length[run] - done, transfer),
        run_start[run] + done,
        piece_start[run_steps],
        step_bytes,
        sample_start,
        extents.step_start,
        continues[head][run] & (done == 0) if continues is not None else None,
    )


def _continuation_rows(extents: Extents) -> NDArray[np.bool_] | None:
    """Return which rows are another range of the sample of the row before, in its step and file; None without any."""
    continues = np.zeros(len(extents.sample), np.bool_)
    continues[1:] = (extents.sample[1:] == extents.sample[:-1]) & (extents.file[1:] == extents.file[:-1])
    continues[1:] &= extents.offset[1:] != extents.offset[:-1]  # the same range is a sample read twice
    continues[extents.step_start[extents.step_start < len(continues)]] = False
    return continues if continues.any() else None


def _run_heads(extents: Extents, first: Ints, last: Ints) -> Ints:
    """Return the rows that do not continue the row before them, in the same step and file (by whole pages)."""
    fresh = np.ones(len(first), np.bool_)
    fresh[1:] = (
        (extents.file[1:] != extents.file[:-1])
        | (first[1:] > last[:-1])
        | (extents.offset[1:] < extents.offset[:-1] + extents.length[:-1])
    )
    fresh[extents.step_start[extents.step_start < len(first)]] = True
    return np.flatnonzero(fresh)


def sample_heads(calls: Calls, merged: bool) -> NDArray[np.bool_]:
    """Return which calls begin a sample, for `open each sample`; bool (calls,).

    All do, except calls that continue a sample of several ranges and, with `merged` (with `transfer`), calls that
    continue where the previous call of the same step ended.
    """
    head = np.ones(len(calls.file), np.bool_)
    if merged:
        head[1:] = calls.file[1:] != calls.file[:-1]
        head[1:] |= calls.offset[1:] != calls.offset[:-1] + calls.length[:-1]
    if calls.continues is not None:
        head &= ~calls.continues
    head[calls.step_start[calls.step_start < len(head)]] = True
    return head


def share_bounds(first: Place, last: Place, groups: int) -> list[Place]:
    """Return the begins of the shares of `groups` readers in a step's calls [first, last), and the end of the last one.

    The numbers of calls of two shares differ by 1 at most (`readers N by sample`). For one step, or for arrays of
    steps.
    """
    return [first + (last - first) * group // groups for group in range(groups + 1)]


def _pack_steps(length: Ints, step_start: Ints) -> tuple[Ints, Ints]:
    """Return the offset of each of `length` where those of a step are back to back, and the bytes of each step."""
    before = prefix_sum(length)
    at_step = before[step_start]
    step_bytes = np.diff(at_step)
    return before[:-1] - np.repeat(at_step[:-1], np.diff(step_start)), step_bytes


@dataclass(frozen=True, slots=True)
class Rounds:
    """The assignment of each step's calls to collective rounds; round k of step s exists if k < count[s]."""

    round_start: Ints  #: first call of each round, and the number of calls, (rounds + 1,)
    step_start: Ints  #: first round of each step, and the number of rounds, (steps + 1,)

    @property
    def count(self) -> Ints:
        """Rounds that this rank needs in each step, (steps,); all ranks take part in the most of any."""
        return np.diff(self.step_start)

    def calls(self, step: int, number: int) -> tuple[int, int]:
        """Return the first and the last (exclusive) call of a round; (0, 0) for a round that the rank does not need."""
        at = int(self.step_start[step]) + number
        if at >= self.step_start[step + 1]:
            return 0, 0
        return int(self.round_start[at]), int(self.round_start[at + 1])


def deal_rounds(calls: Calls, transfer: int | None) -> Rounds:
    """Deal calls, none longer than `transfer`, over rounds of at most `transfer` bytes; None: one round a step."""
    first, last = calls.step_start[:-1], calls.step_start[1:]
    if transfer is None:
        used = first < last
        return Rounds(np.append(first[used], len(calls.length)), np.append(0, np.cumsum(used)))
    before = prefix_sum(calls.length)
    until = np.searchsorted(before, before[:-1] + transfer, side="right") - 1
    starts: list[int] = []
    count = np.zeros(calls.steps, np.int64)
    for step, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        after, at, made = until[begin:end].tolist(), begin, len(starts)
        while at < end:
            starts.append(at)
            at = after[at - begin]
        count[step] = len(starts) - made
    return Rounds(np.array([*starts, len(calls.length)], np.int64), np.append(0, np.cumsum(count)))
