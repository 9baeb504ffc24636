"""Exports for Perfetto, read as any program would, and the rules of their lanes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def read_documents(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode(errors="surrogateescape")
    first, *lines, last = text.splitlines()
    assert (first, last) == ("[", "]")
    return [json.loads(line) for line in lines]


def complete_events(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in documents if one["ph"] == "X"]


def find_crossing(documents: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Two events of one lane that overlap, and neither is within the other; None if there are none."""
    stacks: dict[tuple[int, int], list[tuple[int, dict[str, Any]]]] = {}
    for one in sorted(complete_events(documents), key=lambda one: (one["ts"], -one["dur"])):
        stack = stacks.setdefault((one["pid"], one["tid"]), [])
        begin = round(one["ts"] * 1000)
        end = begin + round(one["dur"] * 1000)
        while stack and stack[-1][0] <= begin:
            stack.pop()
        if stack and end > stack[-1][0]:
            return stack[-1][1], one
        stack.append((end, one))
    return None
