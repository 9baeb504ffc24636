"""Pieces of an HTML page: every text is escaped here, and a page loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from dliosim.report.text_table import Table, split_columns

_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 66rem; padding: 2rem 1.5rem 4rem; background: #fff; color: #222;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .6rem; padding-top: .8rem; border-top: 2px solid #222; }
h3 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
h4 { font-size: 1rem; margin: 0 0 .3rem; }
h1, h2, h3, p, li { overflow-wrap: anywhere; }
p, li { max-width: 52rem; }
a { color: #0b5394; }
nav ul { list-style: none; padding: 0; margin: .8rem 0; columns: 2; }
nav > ul > li { break-inside: avoid; }
nav li li { padding-left: 1.2rem; font-size: .92rem; }
nav ul ul { margin: 0; columns: 1; }
/* A shadow at an edge beyond which there is more. */
.scroll { overflow-x: auto; margin: .4rem 0 1rem; background:
  linear-gradient(90deg, #fff 30%, #fff0) left/2.5rem 100% no-repeat local,
  linear-gradient(270deg, #fff 30%, #fff0) right/2.5rem 100% no-repeat local,
  linear-gradient(90deg, #0004, #0000) left/.8rem 100% no-repeat scroll,
  linear-gradient(270deg, #0004, #0000) right/.8rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
.title { color: #555; font-size: .9rem; margin: 1.4rem 0 0; }
th, td { padding: .18rem .2rem .18rem .95rem; text-align: right; vertical-align: bottom; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td:first-child { white-space: normal; min-width: 9rem; max-width: 20rem; }
thead th { border-bottom: 1.5px solid #222; white-space: pre-line; }
tr.separate td { border-top: 1px solid #bbb; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.2rem; font-size: .88rem; margin: .6rem 0; }
dt { color: #555; } dd { margin: 0; overflow-wrap: anywhere; }
.answer { border-left: 6px solid #767676; background: #f5f5f5; padding: .6rem 1rem; margin: 1rem 0; list-style: none; }
.answer.good { border-color: #007a52; background: #eaf6f0; }
.answer.bad { border-color: #b33c00; background: #fdf0ea; }
.answer.open { border-color: #967000; background: #fbf5e0; }
.answer dl { font-size: 1rem; margin: .3rem 0; } .answer dt { font-weight: 600; }
.answer code { display: block; background: #fff; border: 1px solid #ccc; padding: .3rem .5rem; font-size: .85rem; }
ul.answer li { margin: .5rem 0; }
.where { color: #555; font-size: .9rem; margin: 0; }
strong.good { color: #005c3c; } strong.bad { color: #9c2f00; } strong.open { color: #6b5000; }
.missed { color: #9c2f00; font-weight: 600; padding-left: 1.4rem; }
figure { margin: 1.8rem 0 2.4rem; break-inside: avoid; }
figure img { display: block; width: 100%; min-width: 44rem; max-width: 58rem; height: auto; }
figcaption { font-size: .88rem; color: #444; max-width: 52rem; margin-top: .4rem; }
figcaption p { margin: .25rem 0; }
.warnings { border-left: 4px solid #D55E00; padding: .1rem 0 .1rem .9rem; margin: 1rem 0; list-style: none;
  font-size: .92rem; }
.warnings li { margin: .25rem 0; }
.faint { color: #666; font-size: .9rem; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .8rem; line-height: 1.4; }
@media screen and (max-width: 47rem) {
  .scroll.wide::before,
  figure .scroll::before { content: "What is wider than the screen scrolls sideways"; display: block; position: sticky;
    left: 0; color: #0b5394; font-size: .85rem; }
}
@media (max-width: 40rem) {
  body { padding: 1rem .9rem 3rem; } nav ul { columns: 1; } nav > ul > li { margin: .35rem 0; }
  nav li li { display: inline-block; }
  dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; }
  /* Several columns fit, and rows keep their names while the others are scrolled. */
  table { font-size: .72rem; } th, td { padding-left: .5rem; }
  th:first-child, td:first-child { position: sticky; left: 0; background: #fff; min-width: 5.5rem; max-width: 7rem;
    white-space: normal; overflow-wrap: anywhere; padding-right: .4rem; }
  thead th { max-width: 6rem; overflow-wrap: break-word; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav { display: none; } h2 { break-before: page; } h3, h4 { break-after: avoid; } .scroll { overflow: visible; }
  figure img { min-width: 0; } table { font-size: 7.5pt; } pre { white-space: pre-wrap; }
}
"""


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
        links.append(f"<li>{_link(section.title, anchor)}{_list_links(inner)}</li>")
        body += [_heading(2, section.title, anchor), *pieces]
        for (name, to), (_, below) in zip(inner, parts, strict=True):
            body += [_heading(3, name, to), *below]
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    head = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        f"<h1>{_text(title)}</h1>",
    ]
    nav = f"<nav><ul>{''.join(links)}</ul></nav>"
    return "\n".join([*head, *answer, nav, *body, "</body>", "</html>", ""])


def _heading(level: int, text: str, anchor: str) -> str:
    return f'<h{level} id="{anchor}">{_text(text)}</h{level}>'


def _link(text: str, anchor: str) -> str:
    return f'<a href="#{anchor}">{_text(text)}</a>'


def _list_links(entries: Sequence[tuple[str, str]]) -> str:
    return f"<ul>{''.join(f'<li>{_link(*one)}</li>' for one in entries)}</ul>" if entries else ""


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
