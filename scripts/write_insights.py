#!/usr/bin/env python
"""Write the insights and the names of `--json` into docs/analyze.md, as they are declared.

    scripts/write_insights.py           write them into the page
    scripts/write_insights.py --show    print them

Insights are those of dliosim/analyze/insights/rules.py. Names are the fields of the figures, and their meaning the
comments of these fields.
"""

from __future__ import annotations

import argparse
import inspect
import re
from dataclasses import fields
from pathlib import Path

from dliosim.analyze.figures.access import Access, Direction
from dliosim.analyze.figures.breakdown import FileKind, Function, Layer, Sizes
from dliosim.analyze.figures.job import Figures, Job, MpiWait
from dliosim.analyze.figures.ranks import Rank, Straggler
from dliosim.analyze.figures.time_split import Bandwidth, Split, Spread, TimeSplit
from dliosim.analyze.insights.jobs import Change, FleetRow
from dliosim.analyze.insights.rules import INSIGHTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "analyze.md"

#: What has a table of names, by what the table is of.
RECORDS = {
    "a job": Figures,
    "`job`": Job,
    "`split` and `epochs`": TimeSplit,
    "`union`": Split,
    "each of `ranks` in `split`": Spread,
    "each of `functions`": Function,
    "`sizes` of a function": Sizes,
    "each of `layers`": Layer,
    "`access`": Access,
    "`read` and `write` of `access`": Direction,
    "each of `files`": FileKind,
    "each of `ranks`": Rank,
    "`straggler`": Straggler,
    "`mpi_wait`": MpiWait,
    "`bandwidth`": Bandwidth,
    "each of `times` and `others`, of two jobs": Change,
    "a line for each of several jobs": FleetRow,
}


def write_insights() -> str:
    """Return the table of insights."""
    rows = ["| insight | found if | figure | from | try | run of dliosim |", "|---|---|---|---|---|---|"]
    for one in INSIGHTS:
        figure, cure = one.figure.replace("|", "\\|"), one.cure.replace("|", "\\|")
        own = f"`{one.own.format(loop='train', checkpoint='model', readers=4)}`" if one.own else ""
        rows.append(f"| `{one.name}`: {one.about} | {one.threshold} | {figure} | {one.source} | {cure} | {own} |")
    return "\n".join(rows)


def read_comments(record: type) -> dict[str, str]:
    """Return the comment of each field: behind it, or above it."""
    source = inspect.getsource(record)
    above = re.findall(r"^ {4}#: (.*)\n {4}(\w+):", source, re.MULTILINE)
    behind = re.findall(r"^ {4}(\w+): [^\n]*?  #: (.*)$", source, re.MULTILINE)
    return {name: text for text, name in above} | dict(behind)


def _plain(comment: str) -> str:
    """Return a comment for readers of JSON, in a cell of a table."""
    return re.sub(r"\bNone\b", "null", comment).replace("|", "\\|")


def write_names() -> str:
    """Return a table of the names of each record."""
    tables = []
    for title, record in RECORDS.items():
        comments = read_comments(record)
        rows = [f"| {title} | |", "|---|---|"]
        rows += [f"| `{one.name}` | {_plain(comments[one.name])} |" for one in fields(record)]
        tables.append("\n".join(rows))
    return "\n\n".join(tables)


def fill_page(page: str) -> str:
    """Return the page with what is between its marks."""
    for name, text in (("insights", write_insights()), ("names", write_names())):
        marks = f"<!-- {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{marks[0]}.*?{marks[1]}", re.DOTALL)
        page, count = pattern.subn(lambda _, text=text, marks=marks: "\n".join((marks[0], text, marks[1])), page)
        if count != 1:
            raise SystemExit(f"{PAGE.name}: {marks[0]} is there {count} times, and must be once")
    return page


def main() -> None:
    """Write the page, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print the tables")
    if parser.parse_args().show:
        print(write_insights(), write_names(), sep="\n\n")
    else:
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
