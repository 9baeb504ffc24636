"""Cures of settings: what to type instead of a phrase that one cannot have. Loaded when there is a mistake."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dliosim.language.diagnostics import Mistake
from dliosim.language.source import COMMAND_LINE, SourceText, Span
from dliosim.language.syntax.declarations import list_settings
from dliosim.language.syntax.other_words import (
    Meaning,
    find_setting,
    is_readable,
    list_forms,
    spell_key,
)
from dliosim.language.syntax.parser import parse
from dliosim.language.syntax.rewrites import NO, add_shares, clean, rewrite
from dliosim.language.syntax.vocabulary import BLOCKS, SETTINGS
from dliosim.model import ELEMENTS

#: Kinds of block in which a line may belong that stands elsewhere, the most likely first.
HOMES: Final = ("dataset", "train", "checkpoint", "model", "access", "infer", "restore", "prepare", "convert")


def is_parsed(rule: str, text: str) -> bool:
    """Return whether a rule of the grammar takes a text."""
    try:
        parse(rule, SourceText("", text).span(0, len(text)))
    except Mistake:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a source defines, for the capitals in phrases."""

    source: SourceText  #: text of the pattern

    def fill(self, text: str) -> str:
        """Return a text with the first name of each kind, that of the file, or a number of files for the capitals."""
        files = re.search(r"^\s*(?:layout|num_files\w*)\s*[:=]?\s*(\d+)", self.source.text, re.MULTILINE)
        text = text.replace("FILES", files[1] if files else "64").replace("FILE", self.source.file or "FILE")
        shape = re.search(r"^\s*shape\s+([^#\n{}]*?)\s*(?:\bof\b.*)?$", self.source.text, re.MULTILINE)
        text = text.replace("SHAPE", shape[1] if shape else "224 x 224 x 3")
        samples = re.search(r"^\s*samples\s+([^#\n{}]*[^#\s{}])", self.source.text, re.MULTILINE)
        if samples:
            text = text.replace("SAMPLES", f"({samples[1]})" if re.search("[+-]", samples[1]) else samples[1])
        for kind in ("dataset", "checkpoint", "access"):
            found = re.search(rf"^\s*{kind}\s+([A-Za-z_]\w*)[^\n{{#]*\n?\s*{{", self.source.text, re.MULTILINE)
            if found:
                text = re.sub(rf"\b{kind.upper()}\b", found[1], text)
        return text


def find_block(place: Span) -> str:
    """Return the text between the braces around a place; an empty text outside of blocks."""
    text, depth = place.source.text, 0
    for at in range(place.start - 1, -1, -1):
        depth += (text[at] == "}") - (text[at] == "{")
        if depth < 0:
            end = text.find("}", place.end)
            return text[at + 1 : end if end >= 0 else len(text)]
    return ""


def find_meaning(words: str, kind: str, names: Names) -> tuple[Meaning, str] | None:
    """Return what `find_setting` does, for a pattern with these names."""
    found = find_setting(words, kind)
    if found and found[0].before and "SAMPLES" in names.fill(found[0].phrase):
        return found[0].before, found[1]
    return found


def find_phrases(meaning: Meaning, rest: str, names: Names) -> list[str]:
    """Return the phrases of a setting that another word and the `rest` of its line may mean; empty if not known."""
    setting, phrase = meaning.setting, names.fill(meaning.phrase)
    value = add_shares(clean(rest)) if meaning.kind == "dataset" else clean(rest)
    if meaning.otherwise and value.lower() in NO:
        return [names.fill(meaning.otherwise)]
    if phrase and "{}" not in phrase:
        return [phrase]

    def accepts(text: str) -> bool:
        return is_readable(setting, text) and ("$" in value + phrase or "$" not in text)

    if re.search("[A-Za-z]", value):
        phrase = re.sub(r"\{\} (B|s|us)\b", "{}", phrase)
    if phrase not in ("", "{}"):
        made = rewrite(value, lambda text: accepts(phrase.replace("{}", text)))
        return [phrase.replace("{}", text) for text in made]
    return rewrite(value, accepts, [names.fill(form) for form in list_forms(setting, meaning.kind)])


def write_lines(head: str, phrases: Sequence[str]) -> str:
    """Return `write `HEAD PHRASE``, with all phrases."""
    lines = [f"`{write_singular(' '.join(filter(None, (head, phrase))))}`" for phrase in phrases]
    return f"write {', '.join(lines[:-1])} or {lines[-1]}" if len(lines) > 1 else f"write {lines[0]}"


def write_singular(text: str) -> str:
    """Return a text with the singular of units after 1."""
    text = re.sub(r"(?<![\w.])1 batches\b", "1 batch", text)
    return re.sub(r"(?<![\w.])1 (rank|step|epoch|file|folder|target)s\b", r"1 \1", text)


def cure_phrase(head: str, kind: str, phrase: Span, accepts: Callable[[str], bool]) -> str:
    """Return what to type instead of a line whose head is right and whose phrase is not; empty if not known."""
    names = Names(phrase.source)
    if head == "read" and re.search(r"[,+&]|\band\b|^[0-9.]|[\w] [0-9]", phrase.text):
        form = write_lines(head, [names.fill("DATASET")])
        return f"a loop reads one data set, and a mix cannot be said yet: {form}"
    if head == "api" and is_library(phrase.text):
        given = phrase.source.text.partition("api")[0] if phrase.source.name == COMMAND_LINE else ""
        return f"write `{given}through=library`" if given else _cure_library(phrase)
    if head == "size" and (typed := re.fullmatch(r"([0-9_]+) ?(?!byte)([a-z]\w+?)s?", phrase.text)):
        shapes = rewrite(f"{typed[1]} of {typed[2]}", lambda text: text.rpartition(" of ")[2] in ELEMENTS)
        if shapes and kind == "dataset":
            return f"{write_lines('shape', shapes[:1])}, in place of `size`"
    if (own := phrase.text.partition(" ")[0]) in SETTINGS[kind] and _is_line(own, kind, phrase.text):
        return f"write `{phrase.text}`, a setting of its own, in place of `{head}`"
    for word in re.finditer(r"\s([a-z]\w*)(?=\s)", phrase.text):
        before, after = phrase.text[: word.start()].strip(" ;,"), phrase.text[word.start() + 1 :]
        if word[1] in SETTINGS[kind] and accepts(before):
            return f"write `{head} {before}` and `{after}`, a line each"
    forms = _fill_forms(head, kind, names)
    # A data set is that of all ranks; what a loop has is that of each rank.
    found = rewrite(add_shares(phrase.text) if kind == "dataset" else phrase.text, accepts, forms)
    if not found and any("CHECKPOINT" in form for form in forms):  # the pattern has none
        return _cure_unnamed(head, phrase, forms)
    cure = _write_cure(head, phrase, found) if found and found != [phrase.text] else ""
    return f"{cure}{_write_dropped(head, phrase, found[0], names)}" if cure else ""


def _write_dropped(head: str, phrase: Span, kept: str, names: Names) -> str:
    """Return where to write a word that a cure leaves out, if it is a setting of another kind of block."""
    end = re.search(r"\s([a-z]+)(\s+on)?$", phrase.text)
    if phrase.source.name == COMMAND_LINE or end is None or end[1] == head or re.search(rf"\b{end[1]}\b", kept):
        return ""
    for kind in HOMES:
        for setting in list_settings(BLOCKS[kind], kind):
            if setting.keyword == end[1] and "on" in list_forms(setting, kind):
                return f", and `{end[1]} on` in the block `{kind}`"
    return ""


def _cure_unnamed(head: str, phrase: Span, forms: Sequence[str]) -> str:
    """Return what to type for a phrase that lacks the name of a checkpoint, in a pattern that has none."""
    made = [form.replace("CHECKPOINT", "model") for form in forms]
    rule = SETTINGS["train"][head]
    found = rewrite(phrase.text, lambda text: is_parsed(rule, text), made)
    named = next((one.split(" ")[0] for one in found), "model")
    return f"{write_lines(head, found)}, and {define_noun('checkpoint', named)}" if found else ""


#: Lines of a block of each kind that a pattern may lack.
_BLOCKS_OF: Final = {
    "checkpoint": ("checkpoint NAME {", "part weights 100 MB whole", 'path "NAME"', "}"),
    "access": ("access NAME {", "api posix", "}"),
}


def define_noun(kind: str, name: str) -> str:
    """Return what to write above to define a block that a pattern lacks; empty for kinds that need more lines."""
    lines = [f"`{line.replace('NAME', name)}`" for line in _BLOCKS_OF.get(kind, ())]
    return f"{', '.join(lines[:-1])} and {lines[-1]} above, a line each, which define it" if lines else ""


def _is_line(word: str, kind: str, text: str) -> bool:
    """Return whether a text that begins with the word of a setting is a whole line of it."""
    settings = (one for one in list_settings(BLOCKS[kind], kind) if one.keyword == word)
    return any(is_readable(one, text[len(word) :].strip()) for one in settings)


def show_forms(head: str, kind: str, phrase: Span, accepts: Callable[[str], bool]) -> str:
    """Return lines of a setting as they may be, in this place."""
    forms = list(filter(accepts, _fill_forms(head, kind, Names(phrase.source))))[:4]
    cure = _write_cure(head, phrase, forms)
    # Numbers are those of an example, and not what the user means.
    return cure.replace("write ", "it is written as ", 1) if all(re.search("[0-9]", form) for form in forms) else cure


def example_line(head: str, kind: str, place: Span) -> str:
    """Return a line of a setting, for a block at `place`."""
    return f"{head} {_fill_forms(head, kind, Names(place.source))[0]}"


def _fill_forms(head: str, kind: str, names: Names) -> list[str]:
    setting = next(one for one in list_settings(BLOCKS[kind], kind) if one.keyword == head)
    return [names.fill(form) for form in list_forms(setting, kind)]


def _write_cure(head: str, phrase: Span, found: Sequence[str]) -> str:
    if not found:
        return ""
    if phrase.source.name != COMMAND_LINE:
        return write_lines(head, found)
    several = f"; `dliosim compare` takes several, as `--vary {phrase.source.text[3:]}`" * ("," in phrase.text)
    return write_override(phrase, found) + several


def cure_part(
    head: str, phrase: Span, part: Span, accepts: Callable[[str], bool], forms: Sequence[str], end: str = ""
) -> str:
    """Return what to type instead of a line whose phrase is wrong in a part, which may be as `forms`."""
    before, after = phrase.text[: part.start - phrase.start], phrase.text[part.end - phrase.start :]
    found = [before + one + after + end for one in rewrite(part.text, accepts, forms) or forms]
    return _write_cure(head, part, found)


# ---- values of the command line ------------------------------------------------------------------------------------


def quote_pair(name: str, value: str) -> str:
    """Return NAME=VALUE as a shell takes it."""
    return f'"{name}={value}"' if " " in name and not set(value) & {'"', "$"} else f"{name}={quote_value(value)}"


def quote_value(value: str) -> str:
    """Return a value as a shell takes it."""
    if '"' in value or "$" in value:
        return shlex.quote(value)
    return f'"{value}"' if re.search(r"[^\w.%/:-]", value) else value


#: Words for the library of a format, which is no api but a way `through` it, and the formats that it reads.
_LIBRARIES: Final = {
    "h5py": ("hdf5",), "hdf5": ("hdf5",), "h5": ("hdf5",), "pyarrow": ("parquet",), "parquet": ("parquet",),
    "tensorflow": ("tfrecord",), "tfrecord": ("tfrecord",), "numpy": ("npz", "npy"), "pillow": ("jpeg", "png"),
    "library": (),
}  # fmt: skip


def is_library(word: str) -> bool:
    """Return whether a word names the library of a format."""
    return spell_key(word) in _LIBRARIES


def _cure_library(phrase: Span) -> str:
    """Return what to type for an api that is a library: the format that it reads, if the data set has another one."""
    text, formats = phrase.source.text, _LIBRARIES[spell_key(phrase.text)]
    read = re.search(r"^\s*read\s+(\w+)", find_block(phrase), re.MULTILINE)
    name = read[1] if read else r"\w+"
    data = re.search(rf"^\s*dataset\s+({name})\b([^{{\n]*){{", text, re.MULTILINE)
    body = find_block(phrase.source.span(data.end(), data.end())) if data else ""
    given = re.search(r"^\s*format\s+(\S+)", body, re.MULTILINE)
    if not formats or data is None or data[2].strip() or (given and given[1] in (*formats, "as")):
        return "write `through library` instead"
    place = f", in place of `format {given[1]}`" if given else ""
    reads = f"for reads by {'h5py' if formats == ('hdf5',) else 'its library'}, `through library` in place of this line"
    return f"write `format {formats[0]}` in the block `dataset`{place}; {reads}"


def write_override(value: Span, phrases: Sequence[str]) -> str:
    """Return `write `-D NAME=PHRASE``, for a value on the command line, or `write `param NAME = PHRASE``."""
    line, column = value.source.position(value.start)
    whole = value.source.line(line)
    given = whole[: column - 1].strip()
    table = re.search(r"=\s*(by\s+\$\w+\s*:.*)", given)  # then the value is that of one word among several
    if table:
        after = re.match(r'[^"#]*', whole[column - 1 + len(value.text) :])
        phrases = [f"{table[1]} {one}{after[0].rstrip() if after else ''}" for one in phrases]
        given = given[: table.start(1)].strip()
    if value.source.name != COMMAND_LINE:
        return write_lines(given, phrases)
    return f"write {' or '.join(f'`{given}{quote_value(one)}`' for one in phrases)}"
