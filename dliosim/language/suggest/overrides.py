"""Overrides that name nothing: the `-D` to give instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from dliosim.dlio.keys import find_key
from dliosim.language.settings.setting_overlay import blocks_by_name
from dliosim.language.source import Span
from dliosim.language.suggest import synonyms
from dliosim.language.suggest.lines import HOMES, find_phrases
from dliosim.language.suggest.typed import fill_names, quote_pair, quote_value, write_all
from dliosim.language.syntax.ast import Document


def mend_override(place: Span, phrase: Span, document: Document) -> str:
    """Return the `-D` to give for a name and a value; empty where that is not known."""
    value, source = phrase.text, document.source
    if source.writing and (key := find_key(place.text)):
        return f"write `++{key}={quote_value(value)}`, as it is a key of the workload file"
    blocks = {name: found[0].kind for name, found in blocks_by_name(document).items()}
    block, _, word = re.sub(r"[/:]+", ".", place.text).rpartition(".")
    params = {synonyms.spell_key(param): param for param in [*document.params, "seed"]}
    if not block and (near := difflib.get_close_matches(synonyms.spell_key(word)[:64], params, n=1, cutoff=0.75)):
        return f"write `-D {params[near[0]]}={quote_value(value)}`"
    for find in (synonyms.find_setting, *([synonyms.suggest_setting] if value else [])):
        for home in _list_homes(block.rpartition(".")[2], blocks):
            found = find(f"{word} {value}", blocks[home])
            if found is None:
                continue
            keyword = found[0].setting.keyword
            same = keyword if not block else "files" if found[0].phrase == "{} files" else ""
            if same in document.params:
                return f"write `-D {same}={quote_value(value)}`"
            phrases = find_phrases(*found, source)
            forms = phrases or synonyms.list_forms(found[0].setting, blocks[home])[:3]
            pairs = [f"-D {quote_pair(f'{home}.{keyword}', fill_names(one, source))}" for one in forms]
            return f"{'write' if phrases or not value else 'it is written as'} {write_all(pairs)}"
    return fill_names(synonyms.find_entry(word, synonyms.ELSEWHERE).replace("the line ", "it ").format(value), source)


def _list_homes(given: str, blocks: Mapping[str, str]) -> list[str]:
    """Return the names of the blocks that a name may mean, the most likely first."""
    kind = synonyms.find_entry(given, synonyms.STATEMENTS_FOR).partition(" ")[0]
    first = [name for name in blocks if given == name or blocks[name] in (given, kind)]
    first += difflib.get_close_matches(given, blocks, n=1)
    return list(dict.fromkeys([*first, *(name for home in HOMES for name in blocks if blocks[name] == home)]))
