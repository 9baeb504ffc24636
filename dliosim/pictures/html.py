"""Pieces of an HTML page: every text is escaped here, and a page loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import quote

from dliosim.report.text_table import Table, split_columns

# What stands for itself in the address of a picture: nothing that ends it, or would be markup.
_UNQUOTED = " =':;,/.*-+!{}"

# Characters of a row that a phone has room for.
_PHONE = 50

# Names of rows are wrapped at about as many characters.
_NAME = 40


# A blank between a number and its unit, or between an epoch and its number.
_BLANK = re.compile(r"(?<=\d) (?=(?:%|[kMGTP]?i?B(?:/s)?|[num]?s|min|h)(?!\w))|(?<=\bepoch) (?=\d)")


def _text(text: str) -> str:
    """Return a text as HTML, in which no line ends between a number and its unit."""
    return _BLANK.sub("\N{NO-BREAK SPACE}", escape(text))


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of a page, its content, and its subsections; sections without content are left out."""

    title: str  #: text of the heading
    pieces: Sequence[str] = ()  #: HTML below the heading
    parts: Sequence[tuple[str, Sequence[str]]] = ()  #: headings below it, each with its HTML


def page(title: str, answer: Sequence[str], sections: Sequence[Section]) -> str:
    """Return a whole page: the answer, links to the sections, then these in their order: pictures, tables, conditions.

    Its policy forbids scripts, and content from elsewhere.
    """
    body: list[str] = []
    links: list[str] = []
    for section in sections:
        pieces, parts = list(filter(None, section.pieces)), [one for one in section.parts if any(one[1])]
        if not pieces and not parts:
            continue
        anchor = f"section-{len(links) + 1}"
        inner = [(name, f"{anchor}-{number}") for number, (name, _) in enumerate(parts, 1)]
        inside = "".join(f"<li>{_link(*one)}</li>" for one in inner)
        links.append(f"<li>{_link(section.title, anchor)}{inside and f'<ul>{inside}</ul>'}</li>")
        body += [_heading(2, section.title, anchor), *pieces]
        for (name, to), (_, below) in zip(inner, parts, strict=True):
            body += [_heading(3, name, to), *below]
    filled = {"answer": "\n".join(answer), "links": "".join(links), "body": "\n".join(body)}
    style, whole = (Path(__file__).with_name(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "html"))
    return Template(whole).substitute(filled, title=escape(title), heading=_text(title), style=style)


def _heading(level: int, text: str, anchor: str) -> str:
    return f'<h{level} id="{anchor}">{_text(text)}</h{level}>'


def _link(text: str, anchor: str) -> str:
    return f'<a href="#{anchor}">{_text(text)}</a>'


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph; `kind` is a class of the style."""
    return f"<p{_class(kind)}>{_text(text)}</p>"


def items(texts: Sequence[str], kind: str = "") -> str:
    """Return a list, or nothing if there are no texts."""
    return f"<ul{_class(kind)}>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>" if texts else ""


def definitions(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names and values."""
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(value)}</dd>' for name, value in pairs)}</dl>"


def collapse_text(summary: str, text: str) -> str:
    """Return a long text with its line breaks, hidden until it is opened."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def answer(title: str, rows: Sequence[tuple[str, str]], verdict: str, kind: str) -> str:
    """Return names and texts of an answer, the verdict in colour. Lines of a text after the first are commands."""

    def text(words: str) -> str:
        first, *commands = words.split("\n")
        first = _text(first)
        mark = escape(verdict)
        if mark and first.startswith(mark):
            first = f'<strong class="{kind}">{mark}</strong>{first.removeprefix(mark)}'
        return first + "".join(f"<code>{escape(command)}</code>" for command in commands)

    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{text(words)}</dd>" for name, words in rows)
    return f'<div class="answer {kind}">{paragraph(title.replace("  ", " · "), "where")}<dl>{pairs}</dl></div>'


def verdicts(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Return a list of verdicts: label, verdict, its class, and figures."""
    lines = "".join(
        f'<li>{_text(label)}: <strong class="{kind}">{escape(verdict)}</strong>{_text(text)}</li>'
        for label, verdict, kind, text in rows
    )
    return f'<ul class="answer">{lines}</ul>' if rows else ""


def table(content: Table) -> str:
    """Return a table in parts that are no wider than the page, as on a terminal; names of rows are wrapped."""
    brief = [row and (row[0][:_NAME], *row[1:]) for row in content.rows]
    parts = split_columns(content.headings, brief, content.groups)
    return paragraph(content.title, "title") + "\n".join(_table_part(content, [0, *columns]) for columns in parts)


def _table_part(content: Table, columns: Sequence[int]) -> str:
    """Return some columns of a table; a `LINE` is a rule between rows."""
    head = "".join(f"<th>{escape(content.headings[column])}</th>" for column in columns)
    body, is_separate = [], False
    for row in content.rows:
        if row:
            cells = "".join(f"<td>{escape(row[column])}</td>" for column in columns)
            body.append(f"<tr{_class('separate' if is_separate else '')}>{cells}</tr>")
        is_separate = not row
    rows = "\n".join(body)
    longest = [[max(cell.split("\n"), key=len) for cell in row] for row in (content.headings, *content.rows) if row]
    width = sum(max(len(row[column]) for row in longest) + 2 for column in columns)
    kind = "scroll wide" if width > _PHONE else "scroll"
    return f'<div class="{kind}"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>'


def picture(title: str, caption: str, svg: bytes) -> str:
    """Return a picture with its caption. As an image, its SVG cannot run scripts, and its ids cannot conflict."""
    data = quote(svg, safe=_UNQUOTED)
    how, _, formula = caption.partition(" Formula: ")
    figure_text = f"<p>{_text(how)}</p>" + (f"<p>Formula: {_text(formula)}</p>" if formula else "")
    return (
        f'<figure><h4>{escape(title)}</h4><div class="scroll"><img alt="{escape(title)}" '
        f'src="data:image/svg+xml,{data}"></div><figcaption>{figure_text}</figcaption></figure>'
    )


def _class(kind: str) -> str:
    return f' class="{escape(kind)}"' if kind else ""
