"""The entry of an error code, from the catalogue that is packaged with the language."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from dliosim.errors import UsageError


def explain_code(code: str) -> str:
    """What a code means, an example that causes it, and how to mend it; UsageError for an unknown code."""
    entries = catalogue()
    entry = entries.get(code.upper())
    if entry is None:
        raise UsageError(f"unknown code `{code}`; codes are {', '.join(entries)}")
    return entry


def is_code(text: str) -> bool:
    """Whether there is an entry for it."""
    return text.upper() in catalogue()


@lru_cache(maxsize=1)
def catalogue() -> dict[str, str]:
    """Every code and its entry."""
    text = Path(__file__).with_name("errors.md").read_text(encoding="utf-8")
    entries = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {entry.partition(":")[0]: entry.strip() for entry in entries}
