#!/usr/bin/env python
"""Write the tables of settings in docs/reference.md from the fields of the model that declare the settings.

    scripts/dev/write_settings.py           write them into the page
    scripts/dev/write_settings.py --show    print them

A table stands between `<!-- settings of KIND -->`, or `<!-- settings of KIND: the keywords -->` for some of them, and
`<!-- end of settings -->`. The comment of a field is the meaning of its setting.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import MISSING, fields
from pathlib import Path

from dliosim.language.setting_words import read_comment
from dliosim.language.settings.phrases import write_phrase
from dliosim.language.syntax.declarations import BLOCKS, SETTINGS, TOKEN, Declaration, list_settings
from dliosim.model import EXPECTABLE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
MARKS = re.compile(r"(<!-- settings of (\w+)(?:: ([^>]*))? -->\n).*?(<!-- end of settings -->)", re.DOTALL)

#: How tables show the values of phrases.
SHOWN = {
    "COUNT": "N",
    "SIZE": "S",
    "SIZES": "S",
    "TIME": "T",
    "TIMES": "T",
    "PACE": "P",
    "RATE": "R",
    "OPENS": "N opens/s",
    "NUMBER": "X",
    "NAME": "NAME",
    "PATH": '"PATH"',
}


def write_default(setting: Declaration) -> str:
    """Return the default of a field as a phrase."""
    default = next(field.default for field in fields(setting.owner) if field.name == setting.field)
    phrase = None if default is MISSING else write_phrase(setting, default)
    return "required" if default is MISSING else f"`{phrase}`" if phrase else "none"


def write_forms(setting: Declaration) -> str:
    """Return the forms of a line, the keyword with the first one."""
    if not setting.phrase.text and setting.phrase.rule:
        return f"`{setting.keyword}`"
    texts = [TOKEN.sub(_show_token, one.text) for one in setting.alternatives]
    return ", ".join(f"`{text}`" for text in (f"{setting.keyword} {texts[0]}", *texts[1:]))


def _show_token(token: re.Match[str]) -> str:
    return SHOWN[token["value"]] if token["value"] else re.sub(r"[()]", "", token[0])


def write_table(kind: str, keywords: str | None) -> str:
    """Return the table of a kind of block, of these keywords only where there are some; of `expect` its figures."""
    if kind == "expect":
        rows = (f"| `{name}` | {one.meaning} | {one.written} |" for name, one in EXPECTABLE.items())
        return "\n".join(["| figure | meaning | bounds |", "|---|---|---|", *rows])
    settings = [one for one in list_settings(BLOCKS[kind], kind) if one.inside != "access"]
    known = {one.keyword: one for one in settings}
    lines = ["| setting | meaning | default |", "|---|---|---|"]
    for keyword in keywords.split(", ") if keywords else known:
        setting = known[keyword]
        meaning, default = read_comment(setting)
        if not meaning:
            raise SystemExit(
                f"{setting.owner.__name__}.{setting.field}: a setting needs a comment, `#:`, for its table"
            )
        mark = "*" if kind == "access" and keyword in SETTINGS["prepare"] else ""
        lines.append(f"| {write_forms(setting)}{mark} | {meaning} | {default or write_default(setting)} |")
    return "\n".join(lines)


def fill_page(page: str) -> str:
    """Return the page with the tables between their marks."""
    return MARKS.sub(lambda found: f"{found[1]}{write_table(found[2], found[3])}\n{found[4]}", page)


def main() -> None:
    """Write the tables, or print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the tables and leave the page as it is")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().show:
        print(*(write_table(found[2], found[3]) for found in MARKS.finditer(page)), sep="\n\n")
    else:
        PAGE.write_text(fill_page(page), encoding="utf-8")


if __name__ == "__main__":
    main()
