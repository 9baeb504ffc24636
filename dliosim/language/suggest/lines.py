"""Lines that begin with an unknown word, and the phrases of statements."""

from __future__ import annotations

import difflib
import re
from typing import Final

from dliosim.language.diagnostics import Attempt
from dliosim.language.source import SourceText, Span
from dliosim.language.suggest import synonyms
from dliosim.language.suggest.slips import NO, clean, fill_names, mend, write_all, write_line, write_singular
from dliosim.language.syntax.declarations import BLOCKS, MUST_OPEN, STATEMENTS, list_settings
from dliosim.model import EXPECTABLE
from dliosim.units import COUNT, UNITS

#: Kinds of block in which a line may belong that stands elsewhere, the most likely first.
HOMES: Final = ("dataset", "train", "checkpoint", "model", "access", "infer", "restore", "prepare", "convert")
#: Phrases of statements that can be typed.
_FORMS: Final = {
    "prepare": "DATASET", "convert": "DATASET to DATASET", "stage": "DATASET to ROOT",
    "repeat": "3", "model": "NAME transformer", "pause": "5 s",
    "seed": "7", "evaluate": "every 2 epochs", "param": "NAME = 4", "save": "CHECKPOINT", "checkpoint": "NAME",
    "restore": "CHECKPOINT | CHECKPOINT each once | CHECKPOINT written by 8 ranks", "dataset": "NAME", "access": "NAME",
    "workload": 'NAME | NAME "what it does"',
    "expect": " | ".join(f"{name} {figure.example}" for name, figure in EXPECTABLE.items()),
}  # fmt: skip


def list_phrases(head: str, kind: str = "") -> tuple[str, ...]:
    """Return phrases of a setting of a kind of block, or of a statement, that can be typed."""
    for setting in list_settings(BLOCKS[kind], kind) if kind in BLOCKS else ():
        if setting.keyword == head:
            return synonyms.list_forms(setting, kind)
    return tuple(_FORMS[head].split(" | ")) if head in _FORMS else ()


def is_statement(text: str) -> bool:
    """Return whether a text is a statement whose figure has the right unit."""
    head = next((one for one in STATEMENTS if text.startswith(f"{one} ")), text.partition(" ")[0])
    phrase = text[len(head) :].strip()
    if head == "expect" and (figure := EXPECTABLE.get(phrase.split(" ")[0])):  # the grammar does not know its units
        allowed = [UNITS.get("%" if unit == "ratio" else unit, (0, COUNT))[1] for unit in figure.units]
        unit = re.search(r"[0-9.]+ ?([^\s0-9.]*?)\)*$", phrase)
        given = UNITS.get(unit[1], (0, None if unit[1] else COUNT))[1] if unit else COUNT
        if "$" not in phrase and given not in allowed:
            return False
    rule = {**STATEMENTS, "evaluate": "evaluate"}.get(head)
    return rule is not None and synonyms.is_parsed(rule, phrase) is not None


def find_phrases(meaning: synonyms.Meaning, rest: str, source: SourceText) -> list[str]:
    """Return the phrases of a setting that another word and the `rest` of its line may mean; empty if unknown."""
    setting, phrase, value = meaning.setting, fill_names(meaning.phrase, source), clean(rest)
    if meaning.otherwise and value.lower() in NO:
        return [fill_names(meaning.otherwise, source)]
    if phrase and "{}" not in phrase:
        return [phrase]
    if re.search("[A-Za-z]", value):
        phrase = re.sub(r"\{\} (B|s|us)\b", "{}", phrase)
    forms = () if phrase else tuple(fill_names(form, source) for form in synonyms.list_forms(setting, meaning.kind))
    phrase = phrase or "{}"

    def accepts(text: str) -> bool:
        written = phrase.replace("{}", text)
        return synonyms.is_readable(setting, written) and ("$" in value + phrase or "$" not in written)

    return [phrase.replace("{}", text) for text in ([value] if accepts(value) else mend(value, accepts, forms))]


def mend_line(attempt: Attempt) -> str:
    """Return the line to type instead of one that begins with an unknown word; empty if it is not known."""
    line, kind = attempt.phrase, attempt.kind
    text, source = line.text[:200], line.source
    if re.match(r"//|/\*|--|;", text):
        return f"comments begin with `#`: write `# {clean(re.sub(r'^[/*;-]+|[*]/$', '', text))}`"
    if kind in BLOCKS and (found := synonyms.find_setting(text, kind)):
        return _write_setting(found, line)
    homes = [(home, found) for home in HOMES if home != kind and (found := synonyms.find_setting(text, home))]
    word, rest = synonyms.split_words(text, 1)
    setting = _write_elsewhere(*homes[0], line) if homes and not _is_opened(line) else ""
    if kind not in BLOCKS and (answer := _mend_statement(line, setting)):
        return answer
    if kind == "train" and synonyms.find_entry(word, synonyms.STATEMENTS_FOR) == "evaluate {}" and _is_opened(line):
        return f"write `{write_line(line, f'evaluate {clean(rest)}')}`"
    if answer := synonyms.find_entry(word, synonyms.ELSEWHERE):
        number = re.search(r"[0-9][0-9.]*", rest)
        return write_singular(fill_names(answer.format(number[0] if number else "4"), source))
    if homes:
        return _write_elsewhere(*homes[0], line)
    near = synonyms.suggest_setting(text, kind) if kind in BLOCKS else None
    return _write_setting(near, line) if near else ""


def _write_elsewhere(kind: str, found: tuple[synonyms.Meaning, str], line: Span) -> str:
    """Return what to type in a block of another kind than that of the line."""
    if re.search(rf"^\s*{kind}\b.*\{{", line.source.text, re.MULTILINE):
        return _write_setting(found, line, f" in the block `{kind}`")
    return _write_setting(found, line, f" in a block `{kind} {'{' if kind in ('train', 'infer') else 'NAME {'}`")


def _write_setting(found: tuple[synonyms.Meaning, str], line: Span, where: str = "") -> str:
    """Return the line of a setting to type, or lines as they may be; `where`: the block that takes it, if another."""
    (meaning, rest), source = found, line.source
    phrases, keyword = find_phrases(meaning, rest, source), meaning.setting.keyword
    forms = phrases or [fill_names(form, source) for form in synonyms.list_forms(meaning.setting, meaning.kind)]
    lines = [f"{keyword} {form}".strip() for form in forms or ["\u2026"]]
    written = write_all(lines if where else [write_line(line, one) for one in lines])
    return f"{'write' if phrases or not clean(rest) else 'it is written as'} {written}{where}"


def _mend_statement(line: Span, setting: str) -> str:
    """Return what to type instead of a line outside of blocks; `setting`: what it says as a line of a block."""
    text, source = clean(line.text[:200]), line.source
    word, rest = synonyms.split_words(text, 1)
    known = {synonyms.spell_key(head): head for head in STATEMENTS}
    heads = (synonyms.split_words(text, count)[0] for count in (3, 2, 1))
    made = next(filter(None, (synonyms.find_entry(head, synonyms.STATEMENTS_FOR) for head in heads)), "")
    assigned = re.match(r"(?:[a-z]+\s+)?([A-Za-z_]\w*)\s*=\s*(.+)", text)
    if made and synonyms.spell_key(word) not in known:
        head = made.partition(" ")[0]
        forms = [fill_names(form, source) for form in list_phrases(head)]

        def accepts(one: str) -> bool:
            return ("$" in rest or "$" not in one) and is_statement(made.replace("{}", one))

        values = mend(f"{rest} ", accepts, forms) if "{}" in made else [""]
        numbers = re.findall("[0-9]+", rest) or [forms[0] if forms else "NAME"]
        statement = fill_names(made.replace("{}", (values or numbers)[0]), source)
        return f"write `{_write_head(line, statement)}`"
    if assigned and (not setting or f"${assigned[1]}" in source.text):
        param = f"param {assigned[1]} = {clean(assigned[2])}"
        return f"write `{param}`, and `${assigned[1]}` where it is used"
    if setting or synonyms.find_entry(word, synonyms.ELSEWHERE):
        return setting
    for count, cutoff in ((2, 1.0), (1, 1.0), (2, 0.7), (1, 0.7)):
        head, rest = synonyms.split_words(text, count)
        if near := difflib.get_close_matches(synonyms.spell_key(head)[:64], known, n=1, cutoff=cutoff):
            return f"write `{_write_head(line, f'{known[near[0]]} {clean(rest)}'.strip())}`"
    return ""


def _write_head(line: Span, statement: str) -> str:
    """Return the line with a statement in place of the one there, and with the brace that its block needs."""
    return f"{write_line(line, statement)}{'' if _is_opened(line) or statement.split()[0] not in MUST_OPEN else ' {'}"


def _is_opened(line: Span) -> bool:
    return re.match(r"\s*\{", line.source.text[line.end :]) is not None
