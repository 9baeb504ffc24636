"""Lines of a trace file, plain or gzip, in blocks: a file of any length is read in a few MiB of memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

#: Bytes: a longer line is no event; DFTracer's own are below 20 kB, a command line in one 128 kB at most.
MAX_LINE: Final = 1 << 20

#: Bytes that are read, or inflated, at a time.
_PIECE: Final = 1 << 20

GZIP: Final = b"\x1f\x8b"


@dataclass(slots=True)
class FileFaults:
    """Faults of one file, found while it is read."""

    long_lines: int = 0  #: lines above `MAX_LINE`, which were skipped
    cut: bool = False  #: true if the file ends within a gzip member
    damaged: bool = False  #: true if a gzip member cannot be inflated; the rest of the file was not read


def read_blocks(path: Path, faults: FileFaults) -> Iterator[tuple[list[bytes], bool]]:
    """Yield lines without their newlines, and False for the last one of a file that ends without a newline.

    A part that cannot be read is counted in `faults`. Raises OSError.
    """
    with path.open("rb") as file:
        is_gzip = file.read(2) == GZIP
        file.seek(0)
        pieces = _inflate(file, faults) if is_gzip else iter(lambda: file.read(_PIECE), b"")
        yield from _split(pieces, faults)


def _split(pieces: Iterator[bytes], faults: FileFaults) -> Iterator[tuple[list[bytes], bool]]:
    rest, is_skipping = b"", False
    for piece in pieces:
        lines = piece.split(b"\n")
        if is_skipping:
            if len(lines) == 1:
                continue
            is_skipping = False
            del lines[0]
        else:
            lines[0] = rest + lines[0]
        rest = lines.pop()
        if len(rest) > MAX_LINE:
            faults.long_lines += 1
            rest, is_skipping = b"", True
        short = [line for line in lines if len(line) <= MAX_LINE]
        faults.long_lines += len(lines) - len(short)
        if short:
            yield short, True
    if rest:
        yield [rest], False


def _inflate(file: BinaryIO, faults: FileFaults) -> Iterator[bytes]:
    """Yield the content of all gzip members of a file, at most `_PIECE` bytes at a time."""
    members = gzip.GzipFile(fileobj=file)
    try:
        while data := members.read1(_PIECE):
            yield data
    except EOFError:
        faults.cut = True
    except (gzip.BadGzipFile, zlib.error):
        faults.damaged = True
