#!/usr/bin/env python
"""Draw the packages of dliosim and the rooms of execute/ with their imports, as graphs that GitHub renders.

    scripts/dev/draw_house.py           write them into docs/dev/architecture.md
    scripts/dev/draw_house.py --show    print them

An arrow means "imports". Arrows that others imply are left out: of `a -> b -> c` and `a -> c` the last one.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import grimp

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dev" / "architecture.md"

#: Packages that have a graph. Modules that all others import (names, units, errors) are not in the first graph.
DRAWN = ("dliosim", "dliosim.execute")
LEFT_OUT = {"errors", "boundedjson", "lazy_numpy", "mincore", "plugins", "readable", "units", "io_errors", "safe_open"}


def list_imports(package: str) -> dict[str, set[str]]:
    """Return what each package or module right below `package` imports of the others."""
    graph = grimp.build_graph("dliosim")
    below = {name for name in graph.find_children(package) if name.rsplit(".", 1)[-1] not in LEFT_OUT}
    for name in below:
        graph.squash_module(name)
    return {name: graph.find_modules_directly_imported_by(name) & below - {name} for name in below}


def drop_implied(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without those that a longer way has, too. Raises RecursionError where there is a circle."""

    def reach(name: str) -> set[str]:
        return {far for near in imports[name] for far in {near, *reach(near)}}

    return {name: near - {far for one in near for far in reach(one)} for name, near in imports.items()}


def draw(package: str) -> str:
    """Return the graph of a package in Mermaid's language."""
    lines = ["```mermaid", "graph TD"]
    for name, near in sorted(drop_implied(list_imports(package)).items()):
        lines.extend(f"    {name.rsplit('.', 1)[-1]} --> {one.rsplit('.', 1)[-1]}" for one in sorted(near))
    return "\n".join([*lines, "```"])


def fill_page(page: str) -> str:
    """Return the page with each graph between its marks."""
    for package in DRAWN:
        marks = f"<!-- graph of {package} -->", f"<!-- end of {package} -->"
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
        graph = "\n".join((marks[0], draw(package), marks[1]))
        page, count = pattern.subn(lambda _, graph=graph: graph, page)
        if count != 1:
            raise SystemExit(f"{PAGE.name}: {marks[0]} is there {count} times, and must be once")
    return page


def main() -> None:
    """Write the graphs, or print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the graphs and leave the page as it is")
    if parser.parse_args().show:
        print(*(draw(package) for package in DRAWN), sep="\n\n")
    else:
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
