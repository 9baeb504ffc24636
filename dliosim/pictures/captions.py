"""Titles and captions of pictures: how to read each, and its formula, as captions.txt has them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dliosim.report.prose import read_sections

_SECTIONS: Final = read_sections(Path(__file__).with_name("captions.txt"))


def describe_picture(key: str, /, *before: str, **words: object) -> tuple[str, str]:
    """Return the title of a picture, and its caption with sentences before it; `words` stand in both for their names.

    Raises KeyError for a picture that captions.txt does not have.
    """
    title, caption = _SECTIONS[key]
    return title.format(**words), " ".join([*filter(None, before), *caption.format(**words).split()])
