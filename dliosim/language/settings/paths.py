"""Paths of data sets and checkpoints, which stay below their root."""

from __future__ import annotations

import re

from dliosim.language.diagnostics import mistake
from dliosim.language.syntax.parser import Node


def path_below_root(node: Node) -> str:
    """A path in quotes that stays below its root; E208 otherwise."""
    text = node.only.text[1:-1]
    parts = text.split("/")
    reason = ""
    if not text.strip() or any(letter in "\t\\" for letter in text):
        reason = "not a path"
    elif text.startswith(("/", "~")) or re.match(r"[A-Za-z]:", text):
        reason = "an absolute path"
    elif ".." in parts:
        reason = "`..` leaves the root"
    elif any(len(part.encode()) > 255 for part in parts) or len(text) > 1024:
        reason = "too long"
    if reason:
        hint = "paths are relative to `--dir` (or `--root NAME=DIR`) and stay inside"
        raise mistake("E208", f"a path that leaves its root: {node.only.text}", node.span, reason, hint=hint)
    return "/".join(part for part in parts if part not in ("", ".")) or "."
