"""The pass that fills the help of mistakes: the line to type instead. It runs once, before they leave the compiler."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from dliosim.dlio.known_keys import find_key
from dliosim.language.diagnostics import Attempt, Diagnostic, mistake
from dliosim.language.settings.setting_overlay import blocks_by_name
from dliosim.language.source import COMMAND_LINE, SourceText, Span
from dliosim.language.suggest import synonyms
from dliosim.language.suggest.lines import HOMES, find_phrases, is_statement, list_phrases, mend_line
from dliosim.language.suggest.slips import fill_names, mend, quote_pair, quote_value, write_all, write_line
from dliosim.language.syntax.ast import Document, Param, follow_reference


def mend_override(place: Span, phrase: Span, document: Document) -> str:
    """Return the `-D` for a name and a value; empty if it is not known."""
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
            if not forms:  # the setting has no forms in this kind of block
                continue
            pairs = [f"-D {quote_pair(f'{home}.{keyword}', fill_names(one, source))}" for one in forms]
            return f"{'write' if phrases or not value else 'it is written as'} {write_all(pairs)}"
    return fill_names(synonyms.find_entry(word, synonyms.ELSEWHERE).replace("the line ", "it ").format(value), source)


def _list_homes(given: str, blocks: Mapping[str, str]) -> list[str]:
    """Return the names of the blocks that a name may mean, the most likely first."""
    kind = synonyms.find_entry(given, synonyms.STATEMENTS_FOR).partition(" ")[0]
    first = [name for name in blocks if given == name or blocks[name] in (given, kind)]
    first += difflib.get_close_matches(given, blocks, n=1)
    return list(dict.fromkeys([*first, *(name for home in HOMES for name in blocks if blocks[name] == home)]))


#: What a file is, by what its first lines look like; the first that fits.
_LOOKS: Final = (
    ("JSON", r"\s*[{\[]\s*(\"|[{\[]|$)"),
    ("a file of sections, as fio and TOML have", r"\s*\[[\w.\"-]+\]\s*$"),
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
    return mistake("E005", f"this file is {kind}, and no pattern", here, "not a pattern", hint=dlio + begin).diagnostic


#: Mistakes in phrases that other phrases mend: unknown units, what cannot be read, wrong dimensions, and domains.
_MENDABLE: Final = ("E002", "E003", "E111", "E113")
#: Words for the library of a format, which is no api but a way `through` it.
_LIBRARIES: Final = ("h5py", "hdf5", "pyarrow", "parquet", "tensorflow", "tfrecord", "numpy", "pillow", "library")


def add_help(found: Iterable[Diagnostic], document: Document | None) -> list[Diagnostic]:
    """Return the mistakes with their help; `document` is None if the pattern could not be read."""
    pattern = document or Document(SourceText("", ""))
    return [replace(_answer(one, pattern), attempt=None) for one in found]


def _answer(one: Diagnostic, document: Document) -> Diagnostic:
    attempt = one.attempt
    word = one.labels[0].span.text.partition("$")[2] if one.code == "E101" else ""
    if name := synonyms.find_entry(word, synonyms.NUMBERS_OF_JOB):
        return replace(one, help=(f"did you mean `{name}`? {re.sub('^did.*[?] ', '', ''.join(one.help))}",))
    if one.file and _holds_data(path := Path(re.sub(r"(:\d+)+$", "", one.file))):
        line = f"`dliosim new mine --from {shlex.quote(str(path))}` writes one"
        return replace(one, help=(f"data are named in a pattern: {line}",))
    if attempt is None:
        return one
    if attempt.head == "dlio":
        return explain_foreign(attempt.phrase.source) or one
    if attempt.missing:
        source = document.source if document.source.text else attempt.phrase.source
        line = f"{attempt.head} {fill_names(list_phrases(attempt.head, attempt.kind)[0], source)}"
        return replace(one, help=(attempt.missing.format(line),))
    if attempt.head in ("", "-D"):
        help_ = mend_override(one.labels[0].span, attempt.phrase, document) if attempt.head else mend_line(attempt)
        return replace(one, help=(help_,)) if help_ else one
    return _answer_phrase(one, attempt, document)


def _holds_data(path: Path) -> bool:
    """Return whether a path is a file and no pattern, or a folder with files at any depth."""
    try:
        is_data = path.is_file() and path.suffix != ".dlio"
        return is_data or any(below.is_file() for below in islice(path.rglob("*"), 1000))
    except (OSError, ValueError):  # the name cannot be opened, or the folder not be read
        return False


def _find_value(one: Diagnostic, attempt: Attempt, params: Mapping[str, Param]) -> Attempt:
    """Return the attempt at the value of a parameter, if that is what is wrong with a phrase."""
    here, accepts = one.labels[0].span, attempt.accepts
    near = (param for param in params.values() if param.value.source is here.source)
    found = next((param for param in near if param.value.start <= here.start <= param.value.end), None)
    if accepts is None or found is None:
        return attempt
    if follow_reference(params, attempt.phrase) is found.value:
        return replace(attempt, phrase=found.value)
    parts = re.split(rf"\${found.name}\b", attempt.phrase.text)
    return Attempt("", "", found.value, lambda text: accepts(f"({text})".join(parts)))


def _answer_phrase(one: Diagnostic, attempt: Attempt, document: Document) -> Diagnostic:
    """Return a mistake in a phrase with the line to type, or with lines as they may be."""
    head, place, in_domain = attempt.head, attempt.phrase, one.code != "E113" or attempt.forms
    known = one.help and re.match("(leave|write) `", one.help[0])  # the compiler knows it
    if known or one.code not in _MENDABLE or not (in_domain or re.search("[a-z]-[0-9]", place.text)):
        return one
    if head == "api" and synonyms.spell_key(place.text) in _LIBRARIES:
        before, is_override = place.source.text.partition("api")[0], place.source.name == COMMAND_LINE
        way = f"{before}through=library" if is_override else "through library"
        return replace(one, help=(f"write `{way}`, which reads by the library of the format",))
    value = _find_value(one, attempt, document.params)

    def accepts(text: str) -> bool:
        return value.accepts(text) if value.accepts else is_statement(f"{head} {text}")

    source = document.source if place.source.name == COMMAND_LINE else place.source
    forms = attempt.forms or tuple(fill_names(form, source) for form in list_phrases(head, attempt.kind))
    if texts := mend(value.phrase.text, accepts, forms):
        return replace(one, help=(f"write {write_all([write_line(value.phrase, text) for text in texts])}",))
    shown = [form for form in forms if accepts(form)] or forms
    if head == "expect":
        shown = [form for form in shown if form.split()[0] == place.text.split(" ")[0]] or shown
    lines = write_all([write_line(place, form) for form in shown[:4]]) if shown and in_domain else ""
    if not lines or (one.help and one.help[0].startswith("did you mean `")):
        return one
    return replace(one, help=(*(one.help if one.code != "E111" else ()), f"it is written as {lines}"))
