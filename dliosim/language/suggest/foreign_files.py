"""Files of other programs in the place of a pattern."""

from __future__ import annotations

import re
from typing import Final

from dliosim.language.diagnostics import Diagnostic, mistake
from dliosim.language.source import SourceText

#: What a file is, by what its first lines look like; the first that fits.
_LOOKS: Final = (
    ("JSON", r"\s*[{\[]\s*(\"|[{\[]|$)"),
    ("a file of sections, as fio and TOML have,", r"\s*\[[\w.\"-]+\]\s*$"),
    ("XML", r"\s*<"),
    ("Python", r"\s*(import|from|def|class)\s+\w+"),
    ("a script of a shell", r"#!"),
    ("YAML", r"(---|#|\s*[\w-]+:(\s|$))"),
)


def explain_foreign(source: SourceText) -> Diagnostic | None:
    """Return the E005 for a file of another language; None for one that may be a pattern."""
    lines = [line for line in source.text[:20_000].split("\n") if line.strip()]
    if not lines or any(re.match(r"\s*dlio\b", line) for line in lines[:50]):
        return None
    script = lines[0].startswith("#!")
    first = next((line for line in lines if script or not line.lstrip().startswith("#")), lines[0])
    kind = next((kind for kind, look in _LOOKS if re.match(look, first)), None)
    if kind is None:
        return None
    place = source.text.index(first)
    begin = "a pattern begins with `dlio 1` and `workload NAME`; `dliosim patterns` says where there are whole ones"
    dlio = "a file of DLIO is read where its name ends in `.yaml`; else " if kind == "YAML" else ""
    here = source.span(place, place + len(first)).trim()
    message = f"this file is {kind}".rstrip(",") + ", and no pattern"
    return mistake("E005", message, here, "not a pattern", hint=f"{dlio}{begin}").diagnostic
