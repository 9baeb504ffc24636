"""Token data sets of Megatron-LM: `.bin` holds only tokens, `.idx` says where the sequences (documents) are.

A training sample is sequence + 1 tokens and begins at token i * sequence, as in Megatron's GPTDataset. Neighbours share
a token: it is the last target of one and the first input of the next. So a sample's own bytes are all but its last
token, and one more token follows the last sample of a file. Samples ignore documents and cross their borders.

Tokens have the type of `shape` (`2049 of uint16`). Without `shape` they are uint16 if the size is even, as Megatron
chooses for vocabularies below 65500, and uint8 if it is odd.

The index (megatron/core/datasets/indexed_dataset.py, version 1), integers little-endian:

    byte    "MMIDIDX" and two zeros
    uint64  version, 1
    uint8   type of tokens, see `CODES`
    uint64  count of sequences
    uint64  count of document indices
    int32   length of each sequence, in tokens
    int64   start of each sequence, in bytes
    int64   first sequence of each document, and at last the count of sequences
    int8    mode of each sequence; only if a data set has several

The second count is that of the indices, one more than there are documents: Megatron writes and reads it so.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from dliosim.formats.header_scanner import data_error, file_to_read, read_at
from dliosim.formats.protocols import ENCODED, LARGEST_INDEX, Bytes, Column, FileIndex, Framed, Ints, index_ranges
from dliosim.lazy_numpy import np
from dliosim.model import ELEMENTS

#: Types of tokens, by numpy's names, and their codes in an index
CODES: Final = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}

_HEADER: Final = struct.Struct("<9sQBQQ")
_MAGIC: Final = b"MMIDIDX\0\0"
_VERSION: Final = 1
_DRAWN: Final = 65_536
_LONGEST: Final = 2**31 - 1


class Indexed(Framed):
    """The format `indexed`; see `protocols.Framed`."""

    name = "indexed"
    uses = ("shape",)
    sidecars = ("idx",)

    @cached_property
    def token_type(self) -> str:
        """Type of tokens, by numpy's name."""
        if self.dataset.shape is not None:
            return self.dataset.shape.element
        size = self.dataset.constant_size
        return "uint8" if size is None or size % 2 else "uint16"

    @property
    def token_bytes(self) -> int:
        """Bytes of a token."""
        return ELEMENTS[self.token_type]

    def refuse(self) -> tuple[str, str] | None:
        """Refuse sizes that vary or hold fewer than two tokens, types without a code, and settings that have no use."""
        size, shape = self.dataset.constant_size, self.dataset.shape
        if size is None:
            return "size", "samples of indexed all have the same number of tokens"
        if shape is not None and shape.element not in CODES:
            return "shape", f"tokens of indexed are one of {', '.join(CODES)}, not {shape.element}"
        item = self.token_bytes
        if size % item:
            return "size", f"{size} bytes are no whole number of tokens of {item}"
        if size < 2 * item:
            return "size", f"a sample of indexed has two tokens at least, {2 * item} bytes: it shares one with the next"
        return super().refuse()

    def index(self, path: Path) -> FileIndex:
        """Return the samples by the `.idx` next to the file; its sequences are the samples where the size varies.

        There are as many samples as Megatron takes in one epoch: all whole ones. For that, sequences must follow each
        other, as in files that Megatron writes; else ExecutionError [R401].
        """
        size = path.stat().st_size
        sidecar = path.with_suffix(".idx")
        item, lengths, pointers, touched = _read_index(sidecar)
        if self.dataset.shape is not None and item != self.token_bytes:
            text = f"{sidecar} says that tokens have {item} bytes, and the data set that they are {self.token_type}"
            raise data_error(text)
        taken = lengths * item
        outside = (pointers < 0) | (pointers > size - taken)
        if outside.any():
            which = int(np.argmax(outside))
            text = f"{sidecar}: sequence {which}, {taken[which]} bytes at {pointers[which]}, is not inside the"
            raise data_error(f"{text} {size} bytes of {path.name}")
        each = self.dataset.constant_size
        if each is None:
            return index_ranges(size, pointers, taken, touched)
        if each % item or each < 2 * item:
            raise data_error(f"{sidecar}: samples of {each} bytes are not two or more tokens of {item}")
        ends = np.cumsum(taken)
        gaps = pointers != ends - taken
        if gaps.any():
            text = f"{sidecar}: sequence {int(np.argmax(gaps))} does not follow the one before it"
            raise data_error(f"{text}, so samples are in pieces")
        own = each - item
        count = max(0, int(taken.sum()) - item) // own
        column = Column(1, 1, each, own, np.arange(count, dtype=np.int64) * own, np.full(count, each, np.int64))
        return FileIndex(count, size, (column,), touched)

    def decode(self, column: Column | None, data: memoryview) -> Bytes | None:
        """Return the tokens of a sample without the last one, which is the next sample's; of a sequence, all tokens.

        Any bytes are tokens. Raises ExecutionError [R401] for a sample of another size.
        """
        if column is not None and column.row_bytes == ENCODED:
            return np.frombuffer(data, np.uint8)
        size = column.row_bytes if column is not None else self.dataset.constant_size
        if len(data) != size:
            raise data_error(f"a sample of indexed has {len(data)} bytes, and not {size}")
        own = column.unit_bytes if column is not None else size - self.token_bytes
        return np.frombuffer(data, np.uint8)[:own]

    def stride(self, sizes: Ints) -> Ints:
        """Return the bytes of all tokens but the last; the next sample begins there."""
        return sizes - self.token_bytes

    def length(self, sizes: Ints) -> Ints:
        """Return the bytes of all tokens."""
        return sizes

    def content(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Return the range of the tokens that do not belong to the next sample."""
        return np.zeros_like(sizes), self.stride(sizes)

    def trailer(self, counts: Ints, ends: Ints) -> Ints:
        """Return the bytes of the last token of the last sample."""
        return np.full_like(counts, self.token_bytes)

    def write_sidecar(self, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """Yield an index of documents of one sequence each, of half to one and a half times a sample's tokens.

        The end of the file cuts the last one. Lengths are drawn by (seed, first sample, number of the document), again
        for each part of the index, so that memory does not grow with the file.
        """
        from dliosim.model.counter_rng import key

        item = self.token_bytes
        each = int(sizes[0]) // item - 1 if len(sizes) else 1
        tokens = len(sizes) * each + 1
        drawn = key(self.dataset.seed, "sequences of tokens", first)
        pieces: Callable[[], Iterable[Ints]] = partial(_draw_lengths, drawn, each, tokens)
        if tokens <= _DRAWN * max(1, each // 2):  # one piece, which is kept
            pieces = partial(list, list(pieces()))
        count = sum(len(lengths) for lengths in pieces())
        yield _HEADER.pack(_MAGIC, _VERSION, CODES[self.token_type], count, count + 1)
        for lengths in pieces():
            yield lengths.astype("<i4").tobytes()
        at = 0
        for lengths in pieces():
            ends = at + np.cumsum(lengths * item)
            yield (ends - lengths * item).astype("<i8").tobytes()
            at = int(ends[-1])
        for begin in range(0, count + 1, _DRAWN):
            yield np.arange(begin, min(begin + _DRAWN, count + 1), dtype="<i8").tobytes()


def _draw_lengths(drawn: int, each: int, tokens: int) -> Iterator[Ints]:
    """Yield the tokens of each document, in pieces, `tokens` in all; uniform from each / 2 (or 1) to 3 each / 2."""
    from dliosim.model.counter_rng import uniforms

    low = max(1, each // 2)
    high = max(low, min(_LONGEST, each + each // 2))
    done = begin = 0
    while done < tokens:
        count = min(_DRAWN, -(-(tokens - done) // low))  # the most documents that can still follow
        numbers = uniforms(drawn, np.arange(begin, begin + count, dtype=np.int64))
        lengths = low + (numbers * (high - low + 1)).astype(np.int64)
        ends = done + np.cumsum(lengths)
        if ends[-1] >= tokens:
            last = int(np.searchsorted(ends, tokens))
            lengths[last] -= int(ends[last]) - tokens
            yield lengths[: last + 1]
            return
        done = int(ends[-1])
        begin += count
        yield lengths


def _read_index(path: Path) -> tuple[int, Ints, Ints, int]:
    """Return bytes of a token, tokens and offset of each sequence, and the bytes read. Raises ExecutionError [R401]."""
    with file_to_read(path) as stream:
        descriptor = stream.fileno()
        size = os.fstat(descriptor).st_size
        head = read_at(descriptor, _HEADER.size, 0)
        if len(head) < _HEADER.size or not head.startswith(_MAGIC):
            raise data_error(f"{path} is no index of Megatron's: it does not begin as one")
        _, version, code, count, documents = _HEADER.unpack(head)
        element = next((name for name, number in CODES.items() if number == code), None)
        if version != _VERSION or element is None:
            text = f"{path}: an index of version {version} with tokens of type {code}"
            raise data_error(f"{text}; known are {_VERSION} and 1 to {len(CODES)}")
        needed = _HEADER.size + 12 * count + 8 * documents
        if size not in (needed, needed + count):  # with modes
            text = f"{path} has {size} bytes, and {count} sequences and {documents} document indices take {needed}"
            raise data_error(text)
        if size > LARGEST_INDEX:
            raise data_error(f"{path} has {size} bytes; an index of up to {LARGEST_INDEX} is read")
        at = _HEADER.size
        lengths = _read_numbers(descriptor, path, "<i4", count, at)
        pointers = _read_numbers(descriptor, path, "<i8", count, at + 4 * count)
        starts = _read_numbers(descriptor, path, "<i8", documents, at + 12 * count)
    if (lengths < 0).any():
        which = int(np.argmax(lengths < 0))
        raise data_error(f"{path}: sequence {which} has {lengths[which]} tokens")
    if documents and (starts[0] != 0 or starts[-1] != count or (np.diff(starts) < 0).any()):
        raise data_error(f"{path}: the documents are not sequences 0 to {count - 1}, in order")
    return ELEMENTS[element], lengths, pointers, needed


def _read_numbers(descriptor: int, path: Path, kind: str, count: int, offset: int) -> Ints:
    """Return `count` integers of a type by numpy's name, at `offset`; ExecutionError [R401] if the file ends."""
    length = np.dtype(kind).itemsize * count
    data = read_at(descriptor, length, offset)
    if len(data) != length:
        raise data_error(f"{path} ends early, while it was read")
    return np.frombuffer(data, kind).astype(np.int64)
