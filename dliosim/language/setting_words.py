"""Settings by name, for the command line: what one is, and the `-D` of a pattern that gives it."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.language.settings.setting_overlay import blocks_by_name
from dliosim.language.syntax.cures import write_lines
from dliosim.language.syntax.declarations import Declaration
from dliosim.language.syntax.line_cures import example_phrases
from dliosim.language.syntax.loader import Loader
from dliosim.language.syntax.other_words import find_setting, list_forms
from dliosim.language.syntax.override_cures import cure_override
from dliosim.language.syntax.vocabulary import BLOCKS, SETTINGS, STATEMENTS, block_kinds
from dliosim.model import Job


def find_override(path: Path, name: str, value: str) -> str:
    """Return the `-D` of a pattern file for what a name of the field means; empty where the pattern takes none."""
    document = Loader().load(path)
    blocks = {known: found[0].kind for known, found in blocks_by_name(document).items()}
    found = cure_override(name, value, [*document.params, "seed"], blocks, document.source)
    given = found.split("`")[1] if found else ""
    pairs = [pair.partition("=")[::2] for pair in shlex.split(given) if pair != "-D"]
    try:
        compile_pattern(path, pairs, Job(4))
    except PatternError:
        return ""
    return given


def describe_setting(name: str, *, exact: bool = False) -> str:
    """Return what a setting means and how its lines look, by its name or another word for it; empty for others.

    `exact`: by its name alone. Names come before other words.
    """
    word = name.rpartition(".")[2].replace("_", " ")
    homes_of = [kind for kind in BLOCKS if word in SETTINGS[kind]]
    for kind in homes_of or ([] if exact else BLOCKS):
        found = find_setting(word, kind)
        if found is not None:
            setting = found[0].setting
            homes = ", ".join(f"`{home}`" for home in block_kinds(setting.keyword))
            meaning = " ".join(read_comment(setting)[0].split())
            lines = write_lines(setting.keyword, list_forms(setting, kind))
            return f"`{setting.keyword}` is a setting of {homes}: {meaning}.\n{lines}".replace("\nwrite", "\nWrite")
    return ""


def describe_statement(name: str) -> str:
    """Return how the lines of a statement look, and the settings of its block; empty for other words."""
    head = name.replace("_", " ")
    if head not in STATEMENTS:
        return ""
    settings = ", ".join(f"`{one}`" for one in SETTINGS.get(head, ()))
    more = f"Settings of its block: {settings}." if settings else "It has no block of settings."
    lines = write_lines(head, example_phrases(head))
    return f"`{head}` is a statement of a pattern. {more}\n{lines}".replace("\nwrite", "\nWrite")


def read_comment(setting: Declaration) -> tuple[str, str]:
    """Return the comment of a field, and what it says of the default; empty where it says nothing of that."""
    source = inspect.getsource(setting.owner)
    found = re.search(rf"((?:^ +#: .*\n)*)^ +{setting.field}: (?:.*?  #: (.*))?", source, re.MULTILINE)
    lines = re.findall(r"#: (.*)", found[1]) if found else []
    text, _, default = (" ".join(lines) or (found and found[2]) or "").partition(" Default: ")
    return text.rstrip("."), default
