"""Parse phrases into nodes: the lark parser behind a small tree of nodes with their places in the source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from dliosim.language.diagnostics import Mistake, mistake, suggest_word
from dliosim.language.source import MAX_LINE_LENGTH, Span
from dliosim.language.syntax.build import TABLES, grammar_text, parser_options, table_identity
from dliosim.model import EXPECTABLE
from dliosim.model.storage import UNCERTAIN
from dliosim.units import UNITS

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

MAX_PARENTHESES: Final = 16


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A rule of the grammar that matched, or a token."""

    #: name of the rule; a token's is in capitals
    kind: str
    #: place in the source
    span: Span
    #: empty for a token
    children: tuple[SyntaxNode, ...] = ()

    @property
    def text(self) -> str:
        """Return the source text."""
        return self.span.text

    def find(self, kind: str) -> SyntaxNode | None:
        """Return the first child of a kind, or None."""
        return next((child for child in self.children if child.kind == kind), None)

    @property
    def only_child(self) -> SyntaxNode:
        """Return the first child, if a rule has only one."""
        return self.children[0]


def parse(rule: str, span: Span) -> SyntaxNode:
    """Return the phrase at `span`, parsed by a start rule of the grammar; raise Mistake (E002, E003)."""
    from lark import UnexpectedInput

    _check_bounds(span)
    try:
        tree = _parser().parse(span.text, start=rule)
    except UnexpectedInput as error:
        raise _syntax_mistake(rule, span, error) from None
    _check_printable(span)
    return _build_node(tree, span)


def _check_printable(span: Span) -> None:
    """Raise E003 for unprintable text: messages show phrases again, and must not control the terminal."""
    place = next((place for place, letter in enumerate(span.text) if not letter.isprintable() and letter != "\t"), None)
    if place is not None:
        here = Span(span.source, span.start + place, span.start + place + 1)
        raise mistake("E003", f"the character U+{ord(here.text):04X} has no place in a pattern", here, "not printable")


def _check_bounds(span: Span) -> None:
    """Raise E003 for a phrase that is too long or nested too deeply; this bounds the tree of the parser."""
    if len(span.text) > MAX_LINE_LENGTH:
        raise mistake(
            "E003", f"a phrase of more than {MAX_LINE_LENGTH} characters", Span(span.source, span.start, span.start + 1)
        )
    depth = 0
    for position, letter in enumerate(span.text, span.start):
        depth += (letter == "(") - (letter == ")")
        if depth > MAX_PARENTHESES:
            here = Span(span.source, position, position + 1)
            raise mistake("E003", f"parentheses nested more than {MAX_PARENTHESES} deep", here)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    from lark import Lark

    grammar = grammar_text()
    if TABLES.exists():
        tables = json.loads(TABLES.read_text(encoding="utf-8"), object_hook=_restore_int_keys)
        if all(tables.get(key) == value for key, value in table_identity(grammar).items()):
            # `Lark.load` would take the same two parts, but from a pickle.
            loaded: Lark = Lark._load_from_dict(tables["data"], tables["memo"])  # type: ignore[no-untyped-call]
            return loaded
    return Lark(grammar, **parser_options())


def _restore_int_keys(found: dict[str, Any]) -> dict[Any, Any]:
    # Keys of JSON are text; lark's states, tokens and rules have numbers as keys.
    return {int(key) if key.isdigit() else key: value for key, value in found.items()}


def _build_node(tree: Tree[Token] | Token, phrase: Span) -> SyntaxNode:
    if isinstance(tree, str):
        return SyntaxNode(tree.type, _node_span(phrase, tree.start_pos, tree.end_pos))
    children = tuple(_build_node(child, phrase) for child in tree.children)
    start, end = (0, len(phrase.text)) if tree.meta.empty else (tree.meta.start_pos, tree.meta.end_pos)
    return SyntaxNode(str(tree.data), _node_span(phrase, start, end), children)


def _node_span(phrase: Span, start: int | None, end: int | None) -> Span:
    return Span(phrase.source, phrase.start + (start or 0), phrase.start + (end or 0)).trim()


# ---- what is wrong with a phrase ----------------------------------------------------------------------------------

_WORD = re.compile(r"[^\s()*/+,=\"-]+(?:/s\b)?|.", re.DOTALL)
_HYPHENED = re.compile(r"[A-Za-z]+(-[A-Za-z]+)+")
_QUANTITY: Final = {"NUMBER", "PARAM", "_LPAR", "FUNCTION"}
_SILENT: Final = {"PLUS", "MINUS", "STAR", "SLASH", "__IGNORE_0", "_RPAR"}
_FIGURES: Final = [f"`{figure}`" for figure in EXPECTABLE]
_DESCRIBED: Final = {
    "NAME": "a name",
    "STRING": "quoted text",
    "UNIT": "a unit",
    "PHRASE": "a value",
    "CHOICE": "a value",
    "WORD": "a word",
    "PACKAGED": "a name",
    "_COLON": "`:`",
    "DISTRIBUTION": "a distribution",
    "$END": "the end of the line",
    "_EQ": "`=`",
    "_COMMA": "`,`",
    "_LPAR": "`(`",
    "FIGURE": f"{', '.join(_FIGURES[:-1])} or {_FIGURES[-1]}",
    "PER_SAMPLE": "`per sample`",
    "UNCERTAIN": f"a setting ({', '.join(UNCERTAIN)})",
}
FUNCTIONS: Final = ("min", "max", "ceil", "floor", "log2")
DISTRIBUTIONS: Final = ("normal", "lognormal", "uniform", "exponential", "gamma", "poisson")
#: Rules in which a number is a count, which words follow.
_CONTINUED_BY: Final = (
    *("batch", "communicator", "cadence", "layout", "prefetch", "evaluate", "ranks", "requests", "restore", "shape"),
    *("shuffle", "sync", "writers"),
)

#: Units of networks: Gbit/s, Gbps, Gb/s. They count bits, so a rate in bytes is an eighth.
BITS: Final = re.compile(r"(?i:([kmgtp]?)i?(?:bits?(?:/s|ps)?|bps))|([kKMGTP])i?b/s", re.ASCII)
_EIGHTHS: Final = {"": "0.125 B", "k": "125 B", "M": "125 kB", "G": "125 MB", "T": "125 GB", "P": "125 TB"}


def unit_hint(word: str) -> str:
    """Return a hint for an unknown unit."""
    bits = BITS.fullmatch(word)
    if bits is None:
        return suggest_word(word, UNITS)
    prefix = (bits[1] or bits[2] or "").upper().replace("K", "k")
    what, rate = ("rates", "/s") if word.endswith("s") and not word.endswith("bits") else ("sizes", "")
    return f"{what} are in bytes: 1 {prefix}bit{rate} is {_EIGHTHS[prefix]}{rate}"


def _syntax_mistake(rule: str, phrase: Span, error: Any) -> Mistake:
    offset: int = getattr(error, "pos_in_stream", None) or 0
    text = phrase.text
    token = getattr(error, "token", None)
    at_end = token is not None and token.type == "$END"
    # The list of the error itself is too long: it has tokens that cannot follow in this place.
    before = _parser().parse_interactive(text if at_end else text[:offset], start=rule)
    before.exhaust_lexer()
    expected: set[str] = before.accepts()  # type: ignore[no-untyped-call]
    if rule in _CONTINUED_BY and "UNIT" in expected:
        expected -= {"UNIT"}
    if rule == "uncertain" and not expected & _QUANTITY and "WORD" in expected:
        expected = expected - {"WORD"} | {"UNCERTAIN"}
    if at_end:
        here = phrase.end_span() if text else phrase
        return mistake("E003", "the phrase ends too early", here, _list_expected(expected))
    # If a number may follow, `-` is a minus; elsewhere it is the hyphen of a word like `mpi-collective`.
    found = (None if expected & _QUANTITY else _HYPHENED.match(text, offset)) or _WORD.match(text, offset)
    word = found[0] if found else text[offset:]
    here = Span(phrase.source, phrase.start + offset, phrase.start + offset + len(word))
    keyword = suggest_word(word, _keywords(expected))
    if "_X" in expected and re.match(r"[xX\u00d7][0-9$(]", text[offset:]):
        return mistake("E003", f"cannot read `{word}` here", here, "expected a space behind `x`")
    if "UNIT" in expected and not keyword and re.match(r"[^\W\d]", word):
        return mistake("E002", f"unknown unit `{word}`", here, "not a unit", hint=unit_hint(word))
    if "FUNCTION" in expected and text[offset + len(word) :].lstrip().startswith("("):
        known = FUNCTIONS + DISTRIBUTIONS if "DISTRIBUTION" in expected else FUNCTIONS
        keyword = keyword or suggest_word(word, known)
    message = f"cannot read `{word}` here" if word.strip() else "cannot read this"
    return mistake("E003", message, here, _list_expected(expected), hint=keyword)


def _keyword(terminal: str) -> str:
    """Return the word of the language that a terminal of the grammar matches."""
    return terminal.strip("_").lower().replace("_", "-")


def _keywords(expected: set[str]) -> list[str]:
    """Return the words of the language among the expected tokens."""
    words = [_keyword(name) for name in sorted(expected - _DESCRIBED.keys() - _QUANTITY - _SILENT)]
    return [*words, *(EXPECTABLE if "FIGURE" in expected else ())]


def _list_expected(names: Iterable[str]) -> str:
    names = set(names)
    words = {_DESCRIBED.get(name, f"`{_keyword(name)}`") for name in names - _QUANTITY - _SILENT}
    if names >= {"NUMBER", "PARAM"}:
        words.add("a quantity")
    ordered = sorted(words, key=lambda word: (word == "the end of the line", not word.startswith("`"), word))
    if not ordered:
        return ""
    return f"expected {', '.join(ordered[:-1])} or {ordered[-1]}" if len(ordered) > 1 else f"expected {ordered[0]}"
