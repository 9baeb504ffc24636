"""Cures of lines: what to type instead of one that begins with another word, or that is no statement."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final

from dliosim.language.source import Span
from dliosim.language.syntax.cures import (
    HOMES,
    Names,
    find_block,
    find_meaning,
    find_phrases,
    is_parsed,
    write_lines,
    write_singular,
)
from dliosim.language.syntax.declarations import Declaration
from dliosim.language.syntax.other_words import (
    Meaning,
    find_action,
    find_statement,
    list_forms,
    spell_key,
    split_words,
    suggest_setting,
)
from dliosim.language.syntax.rewrites import MAX_LENGTH, clean, rewrite
from dliosim.language.syntax.vocabulary import BLOCKS, LOOPS, MUST_OPEN, REPEATED, STATEMENTS
from dliosim.model import EXPECTABLE
from dliosim.units import COUNT, UNITS, Dimension

#: What statements cannot say yet: the head, the phrase, and the answer.
_NOT_YET: Final = (
    (
        "prepare",
        r"\b(to|in|into|at)\b",
        "{forms}: where data go is an option of the command, `--dir {place}`, and `path` a folder in it",
    ),
    (
        "save",
        r"\b(to|in|into|at|as)\b",
        "{forms}: where it goes is the `path` of its block `checkpoint`, below `--dir`",
    ),
    (
        "restore",
        r"^(?!(each|all|every)\b)\w+ .*\b(each|once|all|every|oldest)\b",
        "write `restore {name} each once`, or a number of them: `restore {name} each of 10 once`",
    ),
)


def cure_head(line: Span, kind: str, *, opened: bool = False, elsewhere: bool = True) -> str:
    """Return what to type instead of a line that begins with no word of its place; empty where that is not known.

    `kind` is the kind of the block that the line is in, or empty; `opened`: a brace follows it; `elsewhere`: it may
    belong to another block.
    """
    cure = _cure_head(line, kind, opened=opened, elsewhere=elsewhere)
    block = re.match(r"\s*(\{[^{}\n]*\})", line.source.text[line.end :])
    if opened and cure.startswith("leave the line out"):
        return cure.replace("the line", "the line and the `}` of its block", 1)
    return cure.replace("{`", f"{' '.join(block[1].split())}`") if block else cure  # a block on one line


def _cure_head(line: Span, kind: str, *, opened: bool, elsewhere: bool) -> str:
    text, names = line.text[:200] + " {" * opened, Names(line.source)
    if re.match(r"//|/\*|--|;", text):
        return f"comments begin with `#`: write `# {clean(re.sub(r'^[/*;-]+|[*]/$', '', text))}`"
    found = find_meaning(text, kind, names) if kind in BLOCKS else None
    if found:
        return _replace_line(_write_setting(*found, names, ""), found[0].setting, line)
    if not elsewhere:
        return ""
    homes = [(home, found) for home in HOMES if home != kind and (found := find_meaning(text, home, names))]
    if kind not in BLOCKS and (cure := _cure_statement(text, names, "" if opened else _cure_elsewhere(homes, names))):
        return cure
    word, rest = split_words(text, 1)
    if answer := find_action(word):
        if opened and "`evaluate" in answer:
            return f"write `evaluate {clean(rest)} {{`"
        number = re.search(r"[0-9][0-9.]*", rest)
        return write_singular(names.fill(answer.format(number[0] if number else "4")))
    if kind in LOOPS and kind != "train" and spell_key(word) == "evaluate":
        return "`evaluate` stands in the block of a `train` loop"
    if homes:
        return _cure_elsewhere(homes, names)
    near = suggest_setting(text, kind) if kind in BLOCKS else None
    return _write_setting(*near, names, "") if near else ""


def _cure_elsewhere(homes: Sequence[tuple[str, tuple[Meaning, str]]], names: Names) -> str:
    if not homes:
        return ""
    kind, found = homes[0]
    there = re.search(rf"^\s*{kind}\b.*\{{", names.source.text, re.MULTILINE)
    if there is None:
        return _write_setting(*found, names, f"{kind} NAME{' transformer' * (kind == 'model')} {{")
    body = find_block(names.source.span(there.end(), there.end()))
    return _replace_given(_write_setting(*found, names, kind), found[0].setting, body, f"the block `{kind}`")


def _cure_statement(text: str, names: Names, setting: str) -> str:
    word, rest = split_words(text, 1)
    if spell_key(word) == "evaluate":
        return "move it into the block `train`: an evaluation runs between the epochs of a loop"
    if any(re.match(rf"{head}\b", rest) and _is_statement(rest) for head in STATEMENTS):
        return f"write `{clean(rest)}{' {' * text.endswith('{')}`"
    made = next(filter(None, (find_statement(split_words(text, count)[0]) for count in (3, 2, 1))), "")
    if made:
        named = re.match(r"[A-Za-z_]\w*", rest)
        made = re.sub(r"\bNAME\b", named[0], made) if named else made
        values = rewrite(rest, lambda one: _is_statement(made.replace("{}", one))) if "{}" in made else [""]
        return f"write `{names.fill(made.replace('{}', (values or ['VALUE'])[0]))}`"
    if re.match(r"for\s+\w+\s+in\b", text):
        times = re.search(r"\d+", text)
        return f"write `repeat {times[0] if times else 3} {{`"
    assigned = re.match(r"(?:[a-z]+\s+)?([A-Za-z_]\w*)\s*=\s*(.+)", text)
    if assigned and re.search(rf"\${assigned[1]}\b", names.source.text):
        setting = ""  # the pattern has it as a parameter
    if assigned and re.search(rf"^\s*param\s+{assigned[1]}\b", names.source.text, re.MULTILINE):
        return f"leave it out, and write `param {assigned[1]} = {clean(assigned[2])}` where it is defined"
    if assigned:
        param = f"write `param {assigned[1]} = {clean(assigned[2])}`, and `${assigned[1]}` where it is used"
        return f"{setting}; for a parameter, {param}" if setting else param
    if setting:
        return setting
    if find_action(word):
        return ""
    heads = {spell_key(head): head for head in STATEMENTS}
    for count, cutoff in ((2, 1.0), (1, 1.0), (2, 0.7), (1, 0.7)):
        head, rest = split_words(text, count)
        near = difflib.get_close_matches(spell_key(head)[:64], heads, n=1, cutoff=cutoff)
        if near:
            return (
                f"write `{' '.join(filter(None, (heads[near[0]], clean(rest))))}{' {' if text.endswith('{') else ''}`"
            )
    return ""


def _is_statement(text: str) -> bool:
    text = text.rstrip(" {")
    head = next((one for one in STATEMENTS if text.startswith(f"{one} ")), text)
    phrase = text[len(head) :].strip()
    if head in ("pause", "expect"):  # the grammar does not know their units
        figure = EXPECTABLE.get(phrase.split(" ")[0]) if head == "expect" else None
        names = ["%" if unit == "ratio" else unit for unit in (figure.units if figure else ("s",))]
        units = [UNITS[name][1] if name in UNITS else COUNT for name in names]
        if "$" not in phrase and _find_unit(phrase) not in units:
            return False
    rule = {**STATEMENTS, "evaluate": "evaluate"}.get(head)
    return rule is not None and is_parsed(rule, phrase)


def _find_unit(phrase: str) -> Dimension | None:
    """Return the dimension of the unit at the end of a phrase."""
    found = re.search(r"[0-9.]+ ?([^\s0-9.]*?)\)*$", phrase)
    unit = found[1] if found else ""
    return UNITS[unit][1] if unit in UNITS else None if unit else COUNT


def _write_setting(meaning: Meaning, rest: str, names: Names, home: str) -> str:
    setting = meaning.setting
    phrases = find_phrases(meaning, rest, names) or [names.fill(form) for form in list_forms(setting, meaning.kind)]
    where = f" in the block `{home}`" if home else ""
    return write_lines(setting.keyword, phrases) + where if phrases else f"the setting is `{setting.keyword}`"


def _replace_line(cure: str, setting: Declaration, line: Span) -> str:
    """Return a cure with the line of the block that it replaces, where a setting has one line and is given already."""
    return _replace_given(cure, setting, find_block(line), "the block")


def _replace_given(cure: str, setting: Declaration, body: str, block: str) -> str:
    """Return a cure with the line of the text of a block that it replaces, if it is there."""
    found = re.findall(rf"^[^\S\n]*({setting.keyword}\b[^#\n{{}}]*)", body, re.MULTILINE)
    given = [" ".join(one.split()) for one in found]
    written = re.fullmatch(r"write `([^`]*)`(?: in the block `\w+`)?", cure)
    if written and written[1] in given:
        return f"leave this line out: {block} has `{written[1]}`"
    if not given or setting.keyword in REPEATED:
        return cure
    return f"{cure}, in place of `{given[0]}`, and leave this line out"


def cure_statement(head: str, phrase: Span, opened: bool) -> str:
    """Return what to type instead of a statement whose head is right and whose phrase is not."""
    text, brace = clean(phrase.text), " {" if opened or head in MUST_OPEN else ""
    names = Names(phrase.source)
    for known, pattern, answer in _NOT_YET:
        if head == known and re.search(pattern, text):
            place = re.search(r"\S*/\S*", text)
            first = text.split()[0].strip('"')
            name = names.fill(_FORMS[head][0]) if re.fullmatch(pattern, first) else first
            return answer.format(forms=f"write `{head} {name}`", place=place[0] if place else "DIR", name=name)
    if len(text) > MAX_LENGTH:
        return ""
    if head == "workload" and (titled := re.fullmatch(r"([A-Za-z_]\w*) ([\w ,.-]+)", text)):
        text = f'{titled[1]} "{titled[2]}"'
    if lines := _split_lines(head, phrase.text):
        return f"write {', '.join(lines[:-1])} and {lines[-1]}, a line each"
    forms = [names.fill(form) for form in _FORMS.get(head, ())] or [""] * (head in MUST_OPEN or not opened)
    found = rewrite(text, lambda made: _is_statement(f"{head} {made}"), forms) if text else forms
    return write_lines(head, [f"{made}{brace}".strip() for made in found]) if found and found != [phrase.text] else ""


#: What joins names in other languages.
_JOINT: Final = "(?:, ?| and | ?& ?)"


def _split_lines(head: str, text: str) -> list[str]:
    """Return the lines of a statement that says several things at once; empty where it does not."""
    if found := re.fullmatch(r"(.*\S) ([0-9]+|\$\w+) ?(?:times|x)", text):
        return [f"`repeat {found[2]} {{`", f"`{head} {found[1]}`", "`}`"] if _is_statement(f"{head} {found[1]}") else []
    if found := re.fullmatch(r"(.*\S) (extends|include) \"?([\w./-]+)\"?", text):
        parts = [f"{head} {found[1]}", f'{found[2]} "{found[3].removesuffix(".dlio")}.dlio"']
    elif found := re.fullmatch(r"([^\";]*); ?([^\";]+)", text):
        parts = [f"{head} {found[1]}".strip(), found[2]]
    elif head in ("prepare", "save", "restore") and re.fullmatch(rf"\w+(?:{_JOINT}\w+)+", text):
        parts = [f"{head} {one}" for one in re.split(_JOINT, text)]
    else:
        return []
    return [f"`{part}`" for part in parts] if all(map(_is_statement, parts)) else []


_FORMS: Final = {
    "prepare": ("DATASET",),
    "convert": ("DATASET to DATASET",),
    "repeat": ("3",),
    "expect": tuple(f"{name} {figure.example}" for name, figure in EXPECTABLE.items()),
    "checkpoint": ("NAME",),
    "dataset": ("NAME",),
    "pause": ("5 s",),
    "evaluate": ("every 2 epochs",),
    "workload": ("NAME",),
    "param": ("NAME = 4",),
    "access": ("NAME",),
    "save": ("CHECKPOINT",),
    "restore": ("CHECKPOINT",),
}


def example_phrases(head: str) -> tuple[str, ...]:
    """Return phrases of a statement that can be typed."""
    brace = " {" if head in MUST_OPEN else ""
    return tuple(f"{form}{brace}".strip() for form in _FORMS.get(head, ("",)))
