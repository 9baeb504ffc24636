"""Settings by name, for the command line: their meaning, and the `-D` of a pattern that gives them."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.language.suggest.lines import list_phrases
from dliosim.language.suggest.slips import quote_pair, write_all
from dliosim.language.suggest.synonyms import find_setting, list_forms
from dliosim.language.syntax.declarations import BLOCKS, MUST_OPEN, SETTINGS, STATEMENTS, Declaration, block_kinds
from dliosim.model import Job


def find_override(path: Path, name: str, value: str) -> str:
    """Return the `-D` of a pattern file for a name of the field; empty if the pattern takes none."""
    try:
        compile_pattern(path, [(name, value)], Job(4))
    except PatternError as error:
        given = re.match("write `(-D [^`]*)`", " ".join(error.diagnostics[0].help))
        mended = shlex.split(given[1])[1].partition("=") if given else (name, "", value)
        return given[1] if given and mended[0] != name and find_override(path, mended[0], mended[2]) else ""
    return f"-D {quote_pair(name, value)}"


def describe_setting(name: str, *, exact: bool = False) -> str:
    """Return the meaning and the forms of a setting, by its name or another word for it; empty for other words.

    `exact`: by its name alone. Names come before other words.
    """
    word = name.rpartition(".")[2].replace("_", " ")
    homes_of = [kind for kind in BLOCKS if word in SETTINGS[kind]]
    for kind in homes_of or ([] if exact else BLOCKS):
        found = find_setting(word, kind)
        if found is not None:
            setting = found[0].setting
            homes = ", ".join(f"`{home}`" for home in block_kinds(setting.keyword))
            meaning = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(read_comment(setting)[0].split()))
            lines = _list_lines(setting.keyword, list_forms(setting, kind))
            return f"`{setting.keyword}` is a setting of {homes}: {meaning}.\n{lines}"
    return ""


def describe_statement(name: str) -> str:
    """Return the forms of a statement, and the settings of its block; empty for other words."""
    head = name.replace("_", " ")
    if head not in STATEMENTS:
        return ""
    settings = ", ".join(f"`{one}`" for one in SETTINGS.get(head, ()))
    more = f"Settings of its block: {settings}." if settings else "It has no block of settings."
    brace = " {" if head in MUST_OPEN else ""
    lines = _list_lines(head, [f"{phrase}{brace}".strip() for phrase in list_phrases(head) or ("",)])
    return f"`{head}` is a statement of a pattern. {more}\n{lines}"


def _list_lines(head: str, phrases: Iterable[str]) -> str:
    return f"Write {write_all([f'{head} {phrase}'.strip() for phrase in phrases])}"


def read_comment(setting: Declaration) -> tuple[str, str]:
    """Return the comment of a field, and its sentence on the default, which may be empty."""
    source = inspect.getsource(setting.owner)
    found = re.search(rf"((?:^ +#: .*\n)*)^ +{setting.field}: (?:.*?  #: (.*))?", source, re.MULTILINE)
    lines = re.findall(r"#: (.*)", found[1]) if found else []
    text, _, default = (" ".join(lines) or (found and found[2]) or "").partition(" Default: ")
    return text.rstrip("."), default
