"""Load files into a document: recognise statements by their first word, follow includes and extends."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dliosim.language.diagnostics import Attempt, Diagnostic, Mistake, collect, mistake
from dliosim.language.source import MAX_BYTES, SourceText, Span, UnreadableFile, find_source, read_source
from dliosim.language.syntax import ast, declarations
from dliosim.language.syntax.block_splitter import Statement, block_needed, mend_braces, split_statements
from dliosim.language.syntax.parser import SyntaxNode, parse

VERSIONS: Final = ("1",)
MAX_CHAIN: Final = 16  # files, each included by the one before
_HEADER_KINDS: Final = frozenset(
    (
        "NAME",
        "STRING",
        "from",
        "with",
        "AFRESH",
        "on_ranks",
        "FIGURE",
        "at_least",
        "at_most",
        "ranks",
        "first",
        "restored",
        "converted",
        "target",
        "in_background",
    )
)


#: Loops of a pattern, evaluations included: forecasting one takes milliseconds.
MOST_LOOPS = 1000


@dataclass(slots=True)
class Loader:
    """Loads a pattern with the files that it includes and extends; a statement with a mistake is left out."""

    #: all findings so far
    found: list[Diagnostic] = field(default_factory=list)
    #: the main file, once it is read
    document: ast.Document | None = None
    _included: set[str] = field(default_factory=set)
    _room: int = MAX_BYTES

    def load(self, path: Path, keys: Sequence[str] = ()) -> ast.Document:
        """Return the document of the main file, of a workload file of DLIO with overrides of its `keys`."""
        try:
            source = self._read_text(path, keys)
        except UnreadableFile as error:
            self.found.append(Diagnostic("E103", f"cannot read the pattern: {error}", file=f"{path}{error.place}"))
            return ast.Document(SourceText(str(path), ""), incomplete=True)
        document = self.document = self._load_file(source, (os.path.realpath(path),))
        self._check_loops(document)
        return document

    def _load_file(self, source: SourceText, chain: tuple[str, ...], *, included: bool = False) -> ast.Document:
        reading = _FileLoad(self, ast.Document(source), chain, included)
        try:
            statements = _strip_version(source, split_statements(source))
        except Mistake as error:
            whole = Attempt("dlio", "", source.span(0, len(source.text)))
            self.found.append(error.note_attempt(whole).diagnostic)
            reading.document.incomplete = True
            return reading.document
        # `extends` comes first, wherever its line is. A file that both include then belongs to the base: the `set`
        # lines of the base need it, and this file finds it there.
        for statement in sorted(statements, key=lambda statement: ast.split_head(statement.span, ["extends"]) is None):
            self.catch_mistake(lambda statement=statement: reading.take_statement(statement))  # type: ignore[misc]
        return ast.merge_documents(reading.base, reading.document, self.found)

    def _read_text(self, path: Path, keys: Sequence[str] = ()) -> SourceText:
        """Return the text of a file, within the bytes that are left; raise UnreadableFile."""
        source = read_source(path, str(path), self._room, keys)
        self._room -= min(self._room, len(source.text.encode()))
        return source

    def catch_mistake(self, action: Callable[[], None]) -> None:
        """Call `action`, and collect its mistake if it raises one."""
        try:
            action()
        except Mistake as error:
            collect(self.found, error.diagnostic)

    def open_document(self, quoted: Span, chain: tuple[str, ...], *, included: bool) -> ast.Document | None:
        """Return the document of an included or extended file; None if it is included already."""
        path = find_source(Path(quoted.source.name).parent, quoted.text[1:-1])
        name = str(path)
        try:
            source = self._read_text(path)
        except UnreadableFile as error:
            raise mistake("E103", f"cannot read {quoted.text}: {error}", quoted, f"looked for {name}") from None
        real = os.path.realpath(name)
        if real in chain:
            members = [Path(member).name for member in (*chain[chain.index(real) :], real)]
            raise mistake("E103", "files that include each other", quoted, " -> ".join(members))
        if included and real in self._included:
            return None
        if len(chain) > MAX_CHAIN:
            raise mistake("E103", f"more than {MAX_CHAIN} files that include each other", quoted, "too long a chain")
        self._included.add(real)
        return self._load_file(source, (*chain, real), included=included)

    def _check_loops(self, document: ast.Document) -> None:
        """Report E102 for two loops of one name, and E113 for more than MOST_LOOPS loops.

        Files that extend each other may make two such loops together.
        """
        first: dict[str, ast.PatternBlock] = {}
        for number, loop in enumerate(document.loops()):
            if number == MOST_LOOPS:
                text, hint = f"a pattern has at most {MOST_LOOPS:_} loops", "`repeat N { ... }` does the same again"
                collect(self.found, mistake("E113", text, loop.place, "one too many", hint=hint).diagnostic)
            other = first.setdefault(loop.name, loop)
            if other is not loop:
                place = loop.header["NAME"].span if "NAME" in loop.header else loop.place
                hint = "give one of them another name" if loop.place.source is not other.place.source else ""
                collect(self.found, ast.duplicate_mistake("loop", loop.name, place, other.place, hint).diagnostic)


def _strip_version(source: SourceText, statements: list[Statement]) -> list[Statement]:
    if not statements:
        hint = "write `dlio 1`, then `workload NAME`; `dliosim patterns` says where there are whole patterns"
        raise mistake("E005", "the file is empty", source.span(0, 0), "expected `dlio 1`", hint=hint)
    head = ast.split_head(statements[0].span, ["dlio"])
    if head is None:
        word = ast.first_word(statements[0].span)
        hint = "a pattern begins with `dlio 1` and `workload NAME`; `dliosim patterns` says where there are whole ones"
        if any(ast.split_head(one.span, ["dlio"]) for one in statements):
            hint = "move the line `dlio 1` above this one"
        elif re.match(r"(dlio|version)", word.text):
            hint = "write `dlio 1`"
        elif ast.split_head(statements[0].span, declarations.STATEMENTS):
            hint = "add a line `dlio 1` above this one"
        raise mistake("E005", "the first statement must be `dlio 1`", word, "expected `dlio 1`", hint=hint)
    if head[2].text not in VERSIONS:
        shown = head[2] if head[2].text else head[1]
        message = f"unknown language version `{head[2].text}`"
        raise mistake("E005", message, shown, "not a version", hint=f"write `dlio {VERSIONS[-1]}`")
    return statements[1:]


# ---- one file -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _FileLoad:
    """One file while it is read: its own document, and the document that it extends."""

    #: reads files and collects mistakes
    loader: Loader
    #: what this file says itself
    document: ast.Document
    #: real paths of the files that lead to this one
    chain: tuple[str, ...]
    #: True for `include`, False for the main file and `extends`
    included: bool
    #: the document that it extends
    base: ast.Document | None = None
    #: place of its `extends` line
    extends: Span | None = None
    #: loops without a name so far, by keyword
    names: Counter[str] = field(default_factory=Counter)

    def take_statement(self, statement: Statement) -> None:
        """Take a statement of the file; raise Mistake."""
        try:
            self._take_statement(statement)
        except Mistake as error:
            # A name that is not defined may be that of a block which is left out.
            self.document.incomplete |= statement.body is not None
            raise _note_phrase(error, statement) from None

    def _take_statement(self, statement: Statement) -> None:
        head, place, phrase = _split_known_head(statement, declarations.STATEMENTS, "")
        if self.included and head not in declarations.INCLUDABLE:
            nouns = ", ".join(declarations.NOUNS)
            hint = f"an included file may have param, {nouns} and include; `extends` takes a workload"
            raise mistake("E103", f"an included file has a `{head}` line", place, "not a noun", hint=hint)
        _check_block(statement, head, place)
        if head in declarations.VERBS:
            self.document.verbs.append(self._build_verb(statement, head, place, phrase))
        elif head in declarations.NOUNS:
            self._take_noun(statement, head, phrase)
        elif head in ("include", "extends"):
            quoted = parse("file", phrase).only_child.span
            self._extend(place, quoted) if head == "extends" else self._include(quoted)
        else:
            self._take_line(head, place, phrase)

    def _take_line(self, head: str, place: Span, phrase: Span) -> None:
        document = self.document
        if head == "dlio":
            raise ast.duplicate_mistake("statement", "dlio", place, document.source.span(0, 0))
        if head == "seed":
            if document.seed is not None:
                raise ast.duplicate_mistake("setting", "seed", place, document.seed.place)
            document.seed = ast.Setting("seed", place, phrase)
            return
        try:
            node = parse(declarations.STATEMENTS[head], phrase)
        except Mistake:
            document.broken |= {ast.first_word(phrase).text} if head == "param" else set()
            raise
        if head == "workload":
            if document.workload is not None:
                raise ast.duplicate_mistake("statement", "workload", place, document.workload.span)
            document.workload = node
        elif head == "set":
            document.sets.append((node.children[0].span, node.children[1].span))
        elif head == "param":
            name, value = node.children[:2]
            domain = next((child for child in node.children if child.kind in ("one_of", "between")), None)
            if value.text.endswith(","):
                comma = Span(value.span.source, value.span.end - 1, value.span.end)
                document.broken.add(name.text)
                raise mistake("E003", "a comma behind the value", comma, "the comma is too much")
            if name.text in document.params:
                raise ast.duplicate_mistake("parameter", name.text, name.span, document.params[name.text].place)
            if name.text in ("ranks", "nodes", "ranks_per_node"):
                raise mistake("E102", f"`${name.text}` is built in", name.span, "choose another name")
            own = not self.included
            document.params[name.text] = ast.Param(name.text, name.span, value.span, value.span, domain, own)
        else:
            header = _header(node)
            loop = header["NAME"].text if "NAME" in header else ""
            block = ast.PatternBlock("expect", f"{header['FIGURE'].text} {loop}", phrase, header)
            document.expects.append(block)

    def _extend(self, place: Span, quoted: Span) -> None:
        if self.extends is not None:
            raise ast.duplicate_mistake("statement", "extends", place, self.extends)
        self.extends = place
        base = self._open_file(quoted)
        if base is not None:
            for param in base.params.values():
                param.own = False
            for block in base.nouns.values():
                block.own = False
            self.base = base

    def _include(self, quoted: Span) -> None:
        found = self._open_file(quoted, included=True)
        if found is None:
            return
        for name, param in found.params.items():
            if name in self.document.params:
                raise ast.duplicate_mistake("parameter", name, self.document.params[name].place, param.place)
            self.document.params[name] = param
        for name, noun in found.nouns.items():
            if name in self.document.nouns:
                raise ast.duplicate_mistake(noun.kind, name, self.document.nouns[name].place, noun.place)
            self.document.nouns[name] = noun

    def _open_file(self, quoted: Span, *, included: bool = False) -> ast.Document | None:
        try:
            found = self.loader.open_document(quoted, self.chain, included=included)
        except Mistake:
            self.document.incomplete = True
            raise
        if found is not None:
            self.document.incomplete |= found.incomplete
            self.document.broken |= found.broken
        return found

    def _take_noun(self, statement: Statement, head: str, phrase: Span) -> None:
        header = _header(parse(head, phrase))
        name = header["NAME"]
        block = ast.PatternBlock(head, name.text, name.span, header, own=not self.included)
        if name.text in self.document.nouns:
            raise ast.duplicate_mistake(head, name.text, name.span, self.document.nouns[name.text].place)
        self.document.nouns[name.text] = block
        self._take_settings(block, statement)

    def _build_verb(self, statement: Statement, head: str, place: Span, phrase: Span) -> ast.PatternBlock:
        rule = declarations.VERBS.get(head, head)
        # A phrase that may be a parameter (`pause $gap`) is parsed when it is evaluated.
        header = (
            {"phrase": SyntaxNode("phrase", phrase)} if rule in ("quantity", "count") else _header(parse(rule, phrase))
        )
        if "on_ranks" in header:
            raise future_keyword("on", header["on_ranks"].span)
        name = header["NAME"].text if "NAME" in header else ""
        if head in declarations.LOOPS and not name:
            self.names[head] += 1
            name = head if self.names[head] == 1 else f"{head}{self.names[head]}"
        block = ast.PatternBlock(head, name, place, header)
        if "ranks" in header:  # `restore C written by N ranks` is a line of its block
            written = header["ranks"].span
            block.layers[-1].append(ast.Setting("written by", written, written))
        if "restored" in header:  # and so is `restore C each once`
            each, (word, _) = header["restored"].span, header["restored"].children
            block.layers[-1].append(ast.Setting("each", word.span, replace(each, start=word.span.end).trim()))
        if "in_background" in header:  # and so is `stage D to ROOT in the background`
            when = header["in_background"].span
            block.layers[-1].append(ast.Setting("copy", when, when))
        if head == "repeat":
            for inner in statement.body or ():
                self.loader.catch_mistake(lambda inner=inner: self._add_inner_verb(block, inner))  # type: ignore[misc]
        else:
            self._take_settings(block, statement)
        return block

    def _add_inner_verb(self, block: ast.PatternBlock, statement: Statement) -> None:
        head, place, phrase = _split_known_head(statement, declarations.VERBS, "repeat")
        try:
            _check_block(statement, head, place)
            block.body.append(self._build_verb(statement, head, place, phrase))
        except Mistake as error:
            raise _note_phrase(error, statement) from None

    def _take_settings(self, block: ast.PatternBlock, statement: Statement) -> None:
        for line in statement.body or ():
            before = len(self.loader.found)
            self.loader.catch_mistake(lambda line=line: self._take_setting(block, line))  # type: ignore[misc]
            block.broken |= len(self.loader.found) > before

    def _take_setting(self, block: ast.PatternBlock, line: Statement) -> None:
        known: dict[str, str] = dict(declarations.SETTINGS[block.kind])
        if block.kind == "train":
            known["evaluate"] = "evaluate"
        head, place, phrase = _split_known_head(line, known, block.kind)
        if head == "evaluate":
            _check_block(line, head, place)
            try:
                block.body.append(self._build_verb(line, head, place, phrase))
            except Mistake as error:
                raise _note_phrase(error, line) from None
            return
        if line.opened is not None and head == "model":
            phrase = self._take_inline_model(line, phrase)
        elif line.opened is not None:
            raise _block_mistake(line, head)
        block.layers[-1].append(ast.Setting(head, place, phrase))

    def _take_inline_model(self, line: Statement, phrase: Span) -> Span:
        """Take a model that a checkpoint describes in its own block; return the place of its name.

        The name is `transformer` unless one is given.
        """
        unnamed = phrase.text == "transformer"
        header = {"NAME": SyntaxNode("NAME", phrase)} if unnamed else _header(parse("model", phrase))
        name = header["NAME"].span
        first = self.document.nouns.get(name.text)
        if first is not None:
            raise ast.duplicate_mistake(
                "model", name.text, name, first.place, "write `model NAME transformer {`" if unnamed else ""
            )
        block = self.document.nouns[name.text] = ast.PatternBlock(
            "model", name.text, name, header, own=not self.included
        )
        self._take_settings(block, line)
        return name


def _note_phrase(error: Mistake, statement: Statement) -> Mistake:
    """Return a mistake in the phrase of a statement with that phrase."""
    found = ast.split_head(statement.span, [*declarations.STATEMENTS, "evaluate"])
    if found is None or error.diagnostic.code not in ("E002", "E003"):
        return error
    return error.note_attempt(Attempt(found[0], "", found[2]))


def future_keyword(word: str, span: Span) -> Mistake:
    """Return the E003 for a word that is reserved for a later version."""
    message = f"{declarations.RESERVED[word]} is kept for a later version of the language"
    return mistake("E003", message, span, "not in version 1", hint=f"leave `{span.text}` out")


def _split_known_head(statement: Statement, known: dict[str, str], kind: str) -> tuple[str, Span, Span]:
    found = ast.split_head(statement.span, known)
    if found is not None:
        return found
    word = ast.first_word(statement.span)
    if word.text in declarations.RESERVED:
        raise future_keyword(word.text, word)
    elsewhere = ast.split_head(
        statement.span, {head for settings in declarations.SETTINGS.values() for head in settings}
    )
    if elsewhere is not None and kind != "repeat":
        raise foreign_setting(statement, elsewhere[0], kind, elsewhere[1])
    raise unknown_setting(statement, word, kind, known)


def unknown_setting(statement: Statement, word: Span, kind: str, known: dict[str, str]) -> Mistake:
    """Return the E001 for an unknown word, with the words that are valid there."""
    what = "setting" if kind and kind != "repeat" else "statement"
    where = f" in `{kind}`" if kind else ""
    listed = f"{what}s here: {', '.join(sorted(known))}"
    message, attempt = f"unknown {what} `{word.text}`{where}", Attempt("", kind, statement.span)
    return mistake("E001", message, word, f"not a {what}", hint=listed, attempt=attempt)


def foreign_setting(statement: Statement, head: str, kind: str, place: Span) -> Mistake:
    """Return the E210 for a setting that other kinds of block take."""
    where = f"`{kind}` does not take `{head}`" if kind else f"`{head}` stands outside of a block"
    hint = f"`{head}` is a setting of {', '.join(f'`{home}`' for home in declarations.block_kinds(head))}"
    return mistake("E210", where, place, "not taken here", hint=hint, attempt=Attempt("", kind, statement.span))


def _check_block(statement: Statement, head: str, place: Span) -> None:
    if head in declarations.MUST_OPEN and statement.opened is None:
        raise block_needed(statement.span, head)
    if head not in declarations.MAY_OPEN and statement.opened is not None:
        raise _block_mistake(statement, head)


def _block_mistake(statement: Statement, head: str) -> Mistake:
    """Return the E003 for a block that a line does not take; `${name}` looks like one."""
    place = statement.opened or statement.span
    line = place.source.line(place.source.position(place.start)[0]).strip()
    return mistake("E003", f"`{head}` takes no block", place, "expected the end of the line", hint=mend_braces(line))


def _header(node: SyntaxNode) -> dict[str, SyntaxNode]:
    return {child.kind if child.kind in _HEADER_KINDS else "value": child for child in node.children}
