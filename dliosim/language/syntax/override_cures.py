"""Cures of values on the command line: the -D to type instead of one that a pattern cannot have.

Loaded when there is a mistake.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from dliosim.language.source import SourceText
from dliosim.language.syntax.ast import Param
from dliosim.language.syntax.cures import (
    HOMES,
    Names,
    find_meaning,
    find_phrases,
    is_library,
    quote_pair,
    quote_value,
    write_override,
)
from dliosim.language.syntax.other_words import (
    find_action,
    find_statement,
    list_forms,
    spell_key,
    suggest_setting,
)
from dliosim.language.syntax.rewrites import rewrite


def cure_override(name: str, value: str, params: Iterable[str], blocks: Mapping[str, str], source: SourceText) -> str:
    """Return the `-D` to give instead of one that names nothing; empty where that is not known.

    `blocks` has the kind of each block that has a name; `source` is the pattern.
    """
    block, _, word = re.sub(r"[/:]+", ".", name).rpartition(".")
    names, known = Names(source), {spell_key(param): param for param in params}
    if not block and (near := difflib.get_close_matches(spell_key(word)[:64], known, n=1, cutoff=0.75)):
        return f"write `-D {known[near[0]]}={quote_value(value)}`"
    for find in (partial(find_meaning, names=names), suggest_setting):
        for home in _list_homes(block.rpartition(".")[2], blocks):
            found = find(f"{word} {value}", blocks[home])
            if found is not None:
                keyword = found[0].setting.keyword
                if found[0].phrase == "{} files":
                    return _cure_files(home, value, known, source.text)
                if not block and keyword in known.values():
                    return f"write `-D {keyword}={quote_value(value)}`"
                forms = () if value else list_forms(found[0].setting, blocks[home])[:3]
                phrases = find_phrases(*found, names) or forms
                if given := [f"`-D {quote_pair(f'{home}.{keyword}', one)}`" for one in phrases]:
                    return f"write {' or '.join(given)}"
    return names.fill(find_action(word).replace("the line ", "it ").format(value))


def _cure_files(home: str, value: str, params: Mapping[str, str], text: str) -> str:
    """Return the `-D` for another number of files of a data set, each with as many samples as before."""
    if "files" in params and re.search(r"^\s*samples\s[^#\n]*\$files\b", text, re.MULTILINE):
        return f"write `-D {params['files']}={quote_value(value)}`"
    body = re.search(rf"^\s*dataset\s+{re.escape(home)}\s*{{(.*?)^\s*}}", text, re.MULTILINE | re.DOTALL)
    lines = dict(re.findall(r"^\s*(samples|layout)\s+([^#\n]*)", body[1], re.MULTILINE)) if body else {}
    layout = lines.get("layout", "file per sample").strip()
    if layout.startswith("file per sample"):
        return f"write `-D {home}.samples={quote_value(value)}`"
    files = re.match(r"([\d_]+) files|shared file", layout)
    samples = lines.get("samples", "").strip()
    given = f"-D {quote_pair(f'{home}.layout', f'{value} files')}"
    if files and value.isdecimal() and re.fullmatch(r"[\d_]+", samples):
        each = -(-int(samples) // int(files[1] or 1))
        given = f"{given} -D {home}.samples={each * int(value)}"
    return f"write `{given}`"


def _list_homes(given: str, blocks: Mapping[str, str]) -> list[str]:
    """Return the names of the blocks that a name may mean, the most likely first."""
    kind = find_statement(given).partition(" ")[0]
    first = [name for name in blocks if given == name or blocks[name] in (given, kind)]
    first += difflib.get_close_matches(given, blocks, n=1)
    others = [name for home in HOMES for name in blocks if blocks[name] == home]
    return list(dict.fromkeys([*first, *others]))


def cure_value(param: Param, accepts: Callable[[str], bool]) -> str:
    """Return what to give instead of a value that its parameter cannot have; empty if not known."""
    if param.value is param.default and (domain := _write_domain(param.value.text)):
        return f"write `param {param.name} = {domain}`"
    found = rewrite(param.value.text, accepts)
    if not found and param.value is not param.default:
        default = param.default.text
        plain = filter(accepts, _PLAIN if "$" in default else ())
        found = [next(plain, default)]
    return write_override(param.value, found) if found else ""


def _write_domain(text: str) -> str:
    """Return the value and the domain of a parameter that a range or a list gives; empty for other texts."""
    if found := re.fullmatch(r"(.*\S) in [\[(]?([0-9_]+) ?(?:\.\.\.?|-|,|to) ?([0-9_]+)[\])]?", text):
        low, high = int(found[2]), int(found[3])
        is_inside = not found[1].isdecimal() or low <= int(found[1]) <= high
        return f"{found[1]} between {low} and {high}" if low < high and is_inside else ""
    found = re.fullmatch(r"\[ ?(([\w \"]+),[\w \",]+)\]", text)
    return f"{found[2]} one of {found[1]}" if found else ""


#: Values to type, where the default is a sum of other parameters.
_PLAIN: Final = ("4", "4 MB", "10 ms")


def cure_choice(param: Param, accepted: Sequence[str], blocks: Mapping[str, str], source: SourceText) -> str:
    """Return what to give instead of a value that is none of those `accepted`; `blocks`, `source`: `cure_override`."""
    if param.name == "api" and is_library(param.value.text):
        way = cure_override("through", "library", (), blocks, source)
        return f"{way}, by which the format's library reads; `dliosim compare` takes `--vary through=direct,library`"
    found = rewrite(param.value.text, accepted.__contains__, accepted)
    return write_override(param.value, found or accepted[:4])
