"""Files of other programs: what a file that is no pattern is, and what its lines would be in one."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final

from dliosim.language.diagnostics import Mistake, mistake
from dliosim.language.source import SourceText
from dliosim.language.syntax.line_cures import cure_head

#: What a file is, by what its first lines look like; the first that fits.
_LOOKS: Final = (
    ("JSON", r"\s*[{\[]\s*(\"|[{\[]|$)"),
    ("a file of sections, as fio and TOML have,", r"\s*\[[\w.\"-]+\]\s*$"),
    ("XML", r"\s*<"),
    ("Python", r"\s*(import|from|def|class)\s+\w+"),
    ("a script of a shell", r"#!"),
    ("YAML", r"(---|#|\s*[\w-]+:(\s|$))"),
)
_LOOKED_AT: Final = 1000  # files of a folder of data
_SHOWN: Final = 3  # lines of the file that the answer writes as those of a pattern


def foreign_mistake(source: SourceText) -> Mistake | None:
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
    made = dict.fromkeys(filter(None, map(_translate, lines)))
    also = f"; what it says is there: {', '.join(list(made)[:_SHOWN])}" if made else ""
    begin = "a pattern begins with `dlio 1` and `workload NAME`; `dliosim patterns` says where there are whole ones"
    dlio = "a file of DLIO is read where its name ends in `.yaml`; else " if kind == "YAML" else ""
    hint = f"{dlio}{begin}{also}"
    here = source.span(place, place + len(first)).trim()
    return mistake("E005", f"this file is {kind}".rstrip(",") + ", and no pattern", here, "not a pattern", hint=hint)


def describe_data(path: Path) -> str:
    """Return how a pattern reads the data that were given in its place; empty where there are none at the path."""
    named = shlex.quote(str(path))
    return f"data are named in a pattern: `dliosim new mine --from {named}` writes one" if name_data(path) else ""


def describe_unreadable(path: Path) -> str:
    """Return what `describe_data` does for a file that is no text; empty for text, and for files that are not there."""
    try:
        with path.open("rb") as file:
            file.read(_LOOKED_AT).decode("ascii")
    except UnicodeDecodeError:
        return describe_data(path)
    except OSError:
        pass
    return ""


def name_data(path: Path) -> tuple[Path, str] | None:
    """Return the folder of data, and their names for `from files`; None where there are no files at the path.

    Of a folder, those with the commonest ending; those at any depth below, where it has no files itself.
    """
    try:
        if path.is_file():
            return path.parent, _plain_name(path.name)
        for names in ("*", "**/*"):
            suffixes = Counter(one.suffix for one in islice(path.glob(names), _LOOKED_AT) if one.is_file())
            for suffix, _ in suffixes.most_common(1):
                return path, f"{'**/' if '/' in names else ''}*{_plain_name(suffix)}"
    except (OSError, ValueError):  # the name cannot be opened, or the folder not be read
        pass
    return None


def _plain_name(name: str) -> str:
    """Return a name with `?`, which stands for any letter, in place of what means something in a pattern."""
    return re.sub(r"[^\w .,+=@~-]", "?", name)


def _translate(line: str) -> str:
    """Return what a line says, as `its words` and the line of a pattern; empty where that is not known."""
    text = line.strip(" \t,-")
    if not re.match(r"[\"']?[\w-]+[\"']?\s*[:=]\s*[\"'\w.]", text):
        return ""
    source = SourceText("", text)
    for kind in ("dataset", "train"):
        cure = cure_head(source.span(0, len(text)), kind, elsewhere=False)
        if cure.startswith("write `"):
            return f"{cure.split('`')[1]!r} for {text!r}".replace("'", "`")
    return ""
