"""Entries of the error codes, read from the catalogue that is packaged with the language."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from dliosim.errors import UsageError


def explain_code(code: str) -> str:
    """Return the entry of a code: meaning, example, remedy; raise UsageError for an unknown code."""
    entries = catalogue()
    entry = entries.get(code.upper())
    if entry is None:
        raise UsageError(f"unknown code `{code}`; codes are {', '.join(entries)}")
    return entry


def is_code(text: str) -> bool:
    """Return True if the catalogue has an entry for the text, in upper or lower case."""
    return text.upper() in catalogue()


@lru_cache(maxsize=1)
def catalogue() -> dict[str, str]:
    """Return the entry of every code, by code."""
    text = Path(__file__).with_name("errors.md").read_text(encoding="utf-8")
    entries = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {entry.partition(":")[0]: entry.strip() for entry in entries}
