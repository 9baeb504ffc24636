"""Lines to type, in a pattern or on the command line, with the names of the pattern in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from dliosim.language.source import COMMAND_LINE, SourceText, Span


def write_all(lines: Sequence[str]) -> str:
    """Return `LINE`, `LINE` or `LINE`, with singular units after 1."""
    quoted = [f"`{write_singular(line)}`" for line in dict.fromkeys(lines)]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if len(quoted) > 1 else quoted[0]


def write_singular(text: str) -> str:
    """Return a text with singular units after 1."""
    text = re.sub(r"(?<![\w.])1 batches\b", "1 batch", text)
    return re.sub(r"(?<![\w.])1 (rank|step|epoch|file|folder|target|sample)s\b", r"1 \1", text)


def write_line(place: Span, text: str) -> str:
    """Return the line of a place with another text there, or the `-D` with another value."""
    line, column = place.source.position(place.start)
    whole = place.source.line(line)
    before, after = whole[: column - 1], whole[column - 1 + place.end - place.start :]
    if place.source.name == COMMAND_LINE:
        return f"{before.strip()}{quote_value(text)}"
    after = re.match(r'(?:[^#"]|"[^"]*")*', after)[0] if after else ""  # type: ignore[index]  # it matches nothing, too
    return " ".join(f"{before} {text}{after}".split()) if before.strip() or after.strip() else text


def quote_pair(name: str, value: str) -> str:
    """Return NAME=VALUE quoted for a shell."""
    return f'"{name}={value}"' if " " in name and not set(value) & {'"', "$"} else f"{name}={quote_value(value)}"


def quote_value(value: str) -> str:
    """Return a value quoted for a shell."""
    if '"' in value or "$" in value:
        return shlex.quote(value)
    return f'"{value}"' if re.search(r"[^\w.%/:-]", value) else value


def fill_names(text: str, source: SourceText) -> str:
    """Return a text with a pattern's names and phrases in place of the words in capitals; unknown ones stay."""
    found = re.search(r"^\s*(?:layout|num_files\w*)\s*[:=]?\s*(\d+)", source.text, re.MULTILINE)
    text = text.replace("FILES", found[1] if found else "64").replace("FILE", source.file or "FILE")
    found = re.search(r"^\s*shape\s+([^#\n{}]*?)\s*(?:\bof\b.*)?$", source.text, re.MULTILINE)
    text = text.replace("SHAPE", found[1] if found else "224 x 224 x 3")
    for kind in ("dataset", "checkpoint", "access"):
        if found := re.search(rf"^\s*{kind}\s+([A-Za-z_]\w*)(?![\w-])[^\n{{#]*\n?\s*{{", source.text, re.MULTILINE):
            text = re.sub(rf"\b{kind.upper()}\b", found[1], text)
    return text
