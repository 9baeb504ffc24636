"""Lines of DFTracer, written by hand in the forms of its versions."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOST = "node1"
#: Numbers of events, which no two of a process share.
_IDS = itertools.count()
#: us: a time of 2025, when traces with it were written.
START = 1_744_611_900_000_000


def line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")


def event(
    name: str, begin: int, duration: int, category: str = "POSIX", version: int = 1, **args: Any
) -> dict[str, Any]:
    """A complete event; all that is not `pid` and `tid` goes into its `args`."""
    pid, tid = args.pop("pid", 100), args.pop("tid", 100)
    document = {"id": next(_IDS), "name": name, "cat": category, "pid": pid, "tid": tid, "ts": START + begin}
    document["dur"] = duration
    return {**document, "ph": 1 if version == 2 else "X", "args": args}


def named(kind: str, value: int | str, name: str, version: int = 1) -> dict[str, Any]:
    """A line of metadata, by which a hash stands for a name."""
    document = {"id": 1, "name": kind, "cat": "dftracer", "pid": 100, "tid": 100, "ph": 4 if version == 2 else "M"}
    return {**document, "args": {"name": name, "value": value}}


def write_trace(path: Path, documents: Sequence[dict[str, Any]], version: int = 1, members: int = 0) -> Path:
    """Write a trace; with `members` as that many members of gzip."""
    lines = [b"[", *map(line, documents), b"]"] if version == 1 else [line(one) for one in documents]
    data = b"\n".join(lines) + (b"" if version == 1 else b"\n")
    if members:
        cuts = [len(data) * number // members for number in range(members + 1)]
        data = b"".join(gzip.compress(data[a:b]) for a, b in itertools.pairwise(cuts))
    path.write_bytes(data)
    return path
