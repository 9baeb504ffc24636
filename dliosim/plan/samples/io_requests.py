"""Where the bytes of samples lie, and the calls that move them into the buffer of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.model.dataset import Dataset
from dliosim.model.epoch_size import LARGEST_TABLE
from dliosim.plan.samples.sample_index import DataIndex, Places, sample_places
from dliosim.plan.samples.sample_to_file import align_values, files_of, first_samples
from dliosim.plan.samples.sizes import bytes_before, require_framed, sample_sizes, sample_strides
from dliosim.units import format_bytes

Place = TypeVar("Place", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class Extents:
    """One row a sample that a rank touches, in order; step s is rows step_start[s]:step_start[s + 1]. All int64."""

    sample: NDArray[np.int64]
    file: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    step_start: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """How many steps, empty ones included."""
        return len(self.step_start) - 1


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of every step, in order: `length` bytes at `offset` of `file` go to `start` in the step's buffer.

    Step s is calls step_start[s]:step_start[s + 1], holds the samples row_start[s]:row_start[s + 1], and fills
    step_bytes[s] bytes of its buffer. `sample_start` says for each sample where its first byte lands in the buffer; its
    bytes lie there in one piece. All int64. Where samples lie in several ranges, `goes_on` says of each call whether it
    goes on with the sample of the call before it, in the same file.
    """

    file: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    start: NDArray[np.int64]
    step_start: NDArray[np.int64]
    step_bytes: NDArray[np.int64]
    sample_start: NDArray[np.int64]
    row_start: NDArray[np.int64]
    goes_on: NDArray[np.bool_] | None = None

    @property
    def steps(self) -> int:
        """How many steps, empty ones included."""
        return len(self.step_bytes)

    @property
    def buffer_size(self) -> int:
        """Bytes of the largest step."""
        return int(self.step_bytes.max(initial=0))

    def step(self, step: int) -> Calls:
        """The calls of one step; views, no copies."""
        first, last = int(self.step_start[step]), int(self.step_start[step + 1])
        return self._slice(first, last, int(self.row_start[step]), int(self.row_start[step + 1]), step)

    def round(self, step: int, first: int, last: int) -> Calls:
        """The calls [first, last) of one step, as `Rounds.calls` gives them, with no samples of their own."""
        row = int(self.row_start[step])
        return self._slice(first, last, row, row, step)

    def _slice(self, first: int, last: int, first_row: int, last_row: int, step: int) -> Calls:
        return Calls(
            self.file[first:last],
            self.offset[first:last],
            self.length[first:last],
            self.start[first:last],
            np.array([0, last - first]),
            self.step_bytes[step : step + 1],
            self.sample_start[first_row:last_row],
            np.array([0, last_row - first_row]),
            self.goes_on[first:last] if self.goes_on is not None else None,
        )


def locate(
    dataset: Dataset, places: Places, samples: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """File, offset and length in bytes of what reading each sample takes.

    `places` are the sums of `plan.sizes` where `needs_totals` says so, and the files' index where only that knows. Of a
    sample that lies in several ranges the first is given, and the bytes of all.
    """
    if isinstance(places, DataIndex):
        return sample_places(places, samples)
    total, files = dataset.samples, dataset.layout.files
    form = require_framed(dataset)
    file = files_of(samples, total, files)
    header = form.header(dataset)
    if files >= total:  # at most one sample in a file
        offset = np.full(len(samples), header, np.int64)
    else:
        offset = bytes_before(dataset, places, samples)
        offset += header
        if files > 1:
            offset -= _bytes_before_files(dataset, places, file)
    return file, offset, form.length(dataset, sample_sizes(dataset, samples))


def file_sizes(dataset: Dataset, places: Places, files: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes of each file: its header, its samples with what lies around each, and its trailer."""
    if isinstance(places, DataIndex):
        return places.size[files]
    total, count = dataset.samples, dataset.layout.files
    form = require_framed(dataset)
    first, last = first_samples(files, total, count), first_samples(files + 1, total, count)
    if count < total:
        sizes = _bytes_before_files(dataset, places, files + 1)
        sizes -= _bytes_before_files(dataset, places, files)
    else:
        holds = first < last
        sizes = np.zeros(len(files), np.int64)
        sizes[holds] = sample_strides(dataset, sample_sizes(dataset, first[holds]))
    sizes += form.header(dataset)
    return sizes + form.trailer(dataset, last - first, sizes)


def _bytes_before_files(
    dataset: Dataset, places: NDArray[np.int64] | None, file: NDArray[np.int64]
) -> NDArray[np.int64]:
    if dataset.constant_size is not None:
        return bytes_before(dataset, places, first_samples(file, dataset.samples, dataset.layout.files))
    distinct, row = np.unique(file, return_inverse=True)
    before = bytes_before(dataset, places, first_samples(distinct, dataset.samples, dataset.layout.files))
    result: NDArray[np.int64] = before[row]
    return result


def plan_calls(extents: Extents, transfer: int | None, page: int = 1) -> Calls:
    """The calls that read `extents`.

    With `transfer` None a call a sample. Otherwise samples of one step that follow each other both in order and in the
    file become one run, cut into calls of at most `transfer` bytes. With `page` above 1 (O_DIRECT) calls are widened to
    multiples of it, in the file and in the buffer, and `transfer` is rounded down to one; the last call of a file may
    then reach beyond its end, where a read ends early. Raises PlanError where `transfer` is less than `page`;
    [E113] where a step would take more calls than `LARGEST_TABLE`.
    """
    if transfer is not None and transfer < page:
        raise PlanError(f"transfer of {transfer} B: reads that bypass the cache are multiples of {page} B")
    first, last = extents.offset, extents.offset + extents.length
    if page > 1:
        first, last = first // page * page, align_values(last, page)
    if transfer is None:
        start, step_bytes = _pack_steps(last - first, extents.step_start)
        at = start if page == 1 else start + (extents.offset - first)
        rows = extents.step_start
        goes_on = _continuation_rows(extents)
        return Calls(extents.file, first, last - first, start, rows, step_bytes, at, rows, goes_on)
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
    piece_start = np.zeros(len(head) + 1, np.int64)
    np.cumsum(pieces, out=piece_start[1:])
    if (most := int(np.diff(piece_start[run_steps]).max(initial=0))) > LARGEST_TABLE:
        raise PlanError(
            f"a step takes {most:_} calls of {format_bytes(transfer)}; at most {LARGEST_TABLE:_} are planned", "E113"
        )
    run = np.repeat(np.arange(len(head)), pieces)
    done = (np.arange(len(run)) - piece_start[run]) * transfer
    goes_on = _continuation_rows(extents)
    return Calls(
        extents.file[head][run],
        run_first[run] + done,
        np.minimum(run_length[run] - done, transfer),
        run_start[run] + done,
        piece_start[run_steps],
        step_bytes,
        sample_start,
        extents.step_start,
        goes_on[head][run] & (done == 0) if goes_on is not None else None,
    )


def _continuation_rows(extents: Extents) -> NDArray[np.bool_] | None:
    """Rows that are another range of the sample of the row before, in the same step and file; None without any."""
    goes_on = np.zeros(len(extents.sample), np.bool_)
    goes_on[1:] = (extents.sample[1:] == extents.sample[:-1]) & (extents.file[1:] == extents.file[:-1])
    goes_on[1:] &= extents.offset[1:] != extents.offset[:-1]  # the same range is a sample read twice
    goes_on[extents.step_start[extents.step_start < len(goes_on)]] = False
    return goes_on if goes_on.any() else None


def _run_heads(extents: Extents, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows that do not go on where the row before them, in the same step and file, ends (in whole pages)."""
    fresh = np.ones(len(first), np.bool_)
    fresh[1:] = (
        (extents.file[1:] != extents.file[:-1])
        | (first[1:] > last[:-1])
        | (extents.offset[1:] < extents.offset[:-1] + extents.length[:-1])
    )
    fresh[extents.step_start[extents.step_start < len(first)]] = True
    return np.flatnonzero(fresh)


def sample_heads(calls: Calls, merged: bool) -> NDArray[np.bool_]:
    """Which calls begin a sample, as `open each sample` needs to know.

    All do but those that go on with a sample of several ranges, and with `merged` (with `transfer`) those that go on
    where the one before them in the same step ended.
    """
    head = np.ones(len(calls.file), np.bool_)
    if merged:
        head[1:] = calls.file[1:] != calls.file[:-1]
        head[1:] |= calls.offset[1:] != calls.offset[:-1] + calls.length[:-1]
    if calls.goes_on is not None:
        head &= ~calls.goes_on
    head[calls.step_start[calls.step_start < len(head)]] = True
    return head


def share_bounds(first: Place, last: Place, groups: int) -> list[Place]:
    """Where the shares of `groups` readers in a step's calls [first, last) begin, and where the last one ends.

    Shares are equal in number of calls to within one (`readers N by sample`). For one step, or for arrays of them.
    """
    return [first + (last - first) * group // groups for group in range(groups + 1)]


def _pack_steps(
    length: NDArray[np.int64], step_start: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each of `length` begins when those of a step lie back to back, and the bytes of each step."""
    before = np.zeros(len(length) + 1, np.int64)
    np.cumsum(length, out=before[1:])
    at_step = before[step_start]
    step_bytes = np.diff(at_step)
    return before[:-1] - np.repeat(at_step[:-1], np.diff(step_start)), step_bytes


@dataclass(frozen=True, slots=True)
class Rounds:
    """How the calls of each step are dealt over collective rounds; round k of step s, if k < count[s], is
    calls[first:last] of `plan_calls(s, k)`.
    """

    round_start: NDArray[np.int64]
    step_start: NDArray[np.int64]

    @property
    def count(self) -> NDArray[np.int64]:
        """Rounds that this rank needs in each step; all ranks take part in the most of any."""
        return np.diff(self.step_start)

    def calls(self, step: int, number: int) -> tuple[int, int]:
        """The first and the last (exclusive) call of a round; none of a round that this rank does not need."""
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
    before = np.zeros(len(calls.length) + 1, np.int64)
    np.cumsum(calls.length, out=before[1:])
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
