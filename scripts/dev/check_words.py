#!/usr/bin/env python
"""Check names, docstrings and words of the code, the tests and the docs against the house's rules.

Four rules, each with the line that breaks it: a function is an order or a thing, never a participle, a preposition
or a question word; a docstring begins with an order or a noun phrase; each field of a public dataclass or tuple has a
comment of its own; and no text uses a word of ``WORDS``, each of which stands with a plainer one. Exits with 1 where
anything is found.

    scripts/dev/check_words.py [PATH ...]
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: What to say instead, by the word that a reader from the field stumbles over.
WORDS = {
    r"beside": "next to, while",
    r"whoever|whichever one": "the rank that, any rank that",
    r"nobody": "no rank, no user",
    r"(?<!not )so many": "the number, this many",
    r"of which": "a sentence of its own",
    r"told": "given, set, known from",
    r"said of": "said about",
    r"(?:go|goes|went|going) on": "continue",
    r"in vain": "without result",
    r"lie|lies|lay|lain": "is at, is in, be stored",
    r"anew": "again",
    r"alike": "the same, equal",
    r"apart": "separate, different",
    r"amiss|hence|thereof|therein|whereof|thither": "a plain word",
}
_WORDS = {re.compile(rf"(?<![\w`.-])(?:{words})(?![\w`-])", re.IGNORECASE): better for words, better in WORDS.items()}

_QUESTIONS = {"what", "which", "who", "whose", "whom", "whether", "how", "why", "when", "where"}
_PREPOSITIONS = {
    *("of", "in", "on", "at", "by", "for", "from", "with", "without", "within", "between", "among", "before", "after"),
    *("under", "over", "into", "onto", "through", "against", "beside", "behind", "across", "during", "until", "since"),
    *("above", "below", "beyond", "along", "around", "past", "toward", "upon", "as", "than", "that"),
}
_IRREGULAR = re.compile(
    "begun bought bound broken brought built caught chosen dealt done drawn fed felt forgotten found given gone grown "
    "heard held hidden kept known laid left lent lost made meant met paid ridden risen said seen sent shown sold spent "
    "spoken spun stood stuck sunk taken thought thrown told torn understood woken won worn wound written".replace(
        " ", "|"
    )
)
#: Words in -ed that are no participles, or that the field uses as nouns and adjectives of a thing.
_NOT_PARTICIPLES = re.compile("bed|embed|exceed|feed|need|proceed|red|seed|shared|shed|speeds?")


def name_fault(name: str) -> str | None:
    """Return why a function may not have this name, or None."""
    first = name.strip("_").split("_")[0].lower()
    if first in _QUESTIONS:
        return "begins with a question word"
    if first in _PREPOSITIONS:
        return "begins with a preposition"
    if _IRREGULAR.fullmatch(first) or (first.endswith("ed") and not _NOT_PARTICIPLES.fullmatch(first)):
        return "begins with a participle"
    return None


def word_faults(text: str) -> Iterator[tuple[int, str]]:
    """Yield each listed word of a text with its line (from 0)."""
    for pattern, better in _WORDS.items():
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()), f"'{match[0]}': say {better}"


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (fault := name_fault(node.name)):
            yield node.lineno, f"{node.name}: {fault}; name it by an order or a thing"


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            first = re.split(r"\W", text, maxsplit=1)[0].lower()
            if first in _QUESTIONS | _PREPOSITIONS | {"see", "if", "and", "or", "so", "not", "is", "are", "was"}:
                line = node.body[0].lineno
                yield line, f"docstring begins with '{first}': begin with an order or a noun"


def _is_record(node: ast.AST) -> bool:
    """Return whether a node is a public class that has fields: a dataclass or a named tuple."""
    if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
        return False
    texts = [ast.unparse(one) for one in (*node.decorator_list, *node.bases)]
    return any(text.startswith("dataclass") or text == "NamedTuple" for text in texts)


def _fields(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield each public field that has no comment on its last line, on the line above it, or a string below it."""
    for record in filter(_is_record, ast.walk(tree)):
        for node, after in zip(record.body, [*record.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            near = "#:" in lines[node.end_lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#")
            if not node.target.id.startswith("_") and not near and not isinstance(after, ast.Expr):
                yield (
                    node.lineno,
                    f"{record.name}.{node.target.id}: a field has a comment of its own, #: meaning, unit, shape",
                )


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield comments and strings with their line."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == _FSTRING_MIDDLE:
                yield token.start[0], token.string


_FSTRING_MIDDLE = getattr(tokenize, "FSTRING_MIDDLE", -1)


def check_python(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the faults of one module with their lines."""
    tree = ast.parse(path.read_text())
    yield from _docstrings(tree)
    if not path.is_relative_to(ROOT / "tests"):
        yield from _names(tree)
    if path.is_relative_to(ROOT / "dliosim"):
        yield from _fields(tree, path.read_text().splitlines())
    for line, text in _texts(path):
        yield from ((line + offset, fault) for offset, fault in word_faults(text))


def check_markdown(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the faults of one page with their lines; blocks of code and output are left out."""
    text = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), path.read_text(), flags=re.M | re.S)
    yield from ((line + 1, fault) for line, fault in word_faults(text))


def check_comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the faults of a pattern's or a shell script's text, comments and strings together, with their lines."""
    yield from ((line + 1, fault) for line, fault in word_faults(path.read_text()))


#: Files that show the listed words.
_WITH_WORDS = ("check_words.py", "test_check_words.py", "glossary.md")
_CHECKS = {".py": check_python, ".md": check_markdown, **dict.fromkeys((".dlio", ".sh", ".txt"), check_comments)}


def main(arguments: list[str]) -> int:
    """Print each fault as ``path:line: fault`` and return 1 where there is any."""
    roots = [Path(argument).resolve() for argument in arguments] or [
        ROOT / name for name in ("dliosim", "scripts", "tests", "docs", "README.md", "CHANGES.md", "patterns")
    ]
    count = 0
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.name in _WITH_WORDS:
                continue
            check = _CHECKS.get(path.suffix)
            for line, fault in check(path) if check else ():
                print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line}: {fault}")
                count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
