"""Texts for users that stand in files next to the code."""

from __future__ import annotations

import re
from pathlib import Path


def read_sections(file: Path) -> dict[str, tuple[str, str]]:
    """Return the title and the text of each section by its name: the lines from `# NAME: TITLE` to an empty one."""
    parts = re.findall(r"(?m)^# (\S+): (.*)\n((?:[^#\n].*\n)+)", file.read_text(encoding="utf-8"))
    return {name: (title, text) for name, title, text in parts}
