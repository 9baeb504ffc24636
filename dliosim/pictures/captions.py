"""Titles and captions of pictures: how to read each, and its formula, as captions.txt has them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


@cache
def _read_captions() -> dict[str, tuple[str, str]]:
    text = Path(__file__).with_name("captions.txt").read_text(encoding="utf-8")
    parts = re.findall(r"(?m)^# (\S+): (.*)\n((?:[^#\n].*\n)+)", text)
    return {name: (title, " ".join(caption.split())) for name, title, caption in parts}


def describe_picture(key: str, /, *before: str, **words: object) -> tuple[str, str]:
    """Return the title of a picture, and its caption with sentences before it; `words` stand in both for their names.

    Raises KeyError for a picture that captions.txt does not have.
    """
    title, caption = _read_captions()[key]
    return title.format(**words), " ".join(filter(None, [*before, caption.format(**words)]))
