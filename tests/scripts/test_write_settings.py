"""The tables of settings in docs/reference.md."""

from __future__ import annotations

import re

from dliosim.language.syntax.declarations import SETTINGS
from tests.scripts.fidelity import script

write_settings = script("write_settings")
PAGE = write_settings.PAGE.read_text(encoding="utf-8")


def test_the_page_shows_the_settings_as_they_are_declared() -> None:
    assert write_settings.fill_page(PAGE) == PAGE, "type: scripts/dev/write_settings.py"


def test_each_setting_has_a_row_in_a_table_of_its_block_or_of_access() -> None:
    shown = {
        (found[2], found[3]): write_settings.write_table(found[2], found[3])
        for found in write_settings.MARKS.finditer(PAGE)
    }
    rows = {kind: "".join(table for (one, _), table in shown.items() if one == kind) for kind, _ in shown}
    rows |= {
        "infer": rows["train"] + rows["infer"],
        "evaluate": rows["train"],
        "prepare": next(line for line in PAGE.splitlines() if line.startswith("| `prepare D`")),
    }
    missing = [
        (kind, keyword)
        for kind, settings in SETTINGS.items()
        for keyword in settings
        if not re.search(rf"[|;] `{keyword}[ `]", rows[kind] + rows["access"])
    ]
    assert missing == []
