"""Make tables.json, the ready-made parser, from grammar.lark: `python -m dliosim.language.syntax.build`.

Building the parser takes a second or more; loading its tables takes a few hundredths of a second. The tables are plain
JSON. A test checks that they match the grammar.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
GRAMMAR: Final = HERE / "grammar.lark"
TABLES: Final = HERE / "tables.json"


def start_rules(grammar: str) -> list[str]:
    """Return the start rules: every rule, except those that only other rules use."""
    return [name for name in re.findall(r"^([a-z_]+):", grammar, re.MULTILINE) if name not in _INNER]


_INNER: Final = {
    "value",
    "from",
    "with",
    "on_ranks",
    "bound",
    "folders",
    "samples_scope",
    "files_scope",
    "when",
    "every_steps",
    "by",
    "aggregators",
    "collective_buffer",
    "distribution",
    "clip",
    "held",
    "stage",
    "tensor",
    "pipeline",
    "data",
    "broadcast",
}


def parser_options(grammar: str) -> dict[str, Any]:
    """Return the options of the parser, also for the test that builds it with `strict`."""
    return {
        "parser": "lalr",
        "lexer": "contextual",
        "start": [*start_rules(grammar), "sum"],
        "maybe_placeholders": False,
        "propagate_positions": True,
    }


def build_tables(grammar: str) -> str:
    """Return the tables of a grammar as JSON; the numbers of the states differ from build to build."""
    from lark import Lark
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    parser = Lark(grammar, **parser_options(grammar))
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    return json.dumps({**table_identity(grammar), "data": data, "memo": memo}, separators=(",", ":")) + "\n"


def table_identity(grammar: str) -> dict[str, str]:
    """Return what identifies tables: a hash of the grammar, and the version of lark."""
    from lark import __version__

    return {"lark": __version__, "grammar": hashlib.sha256(grammar.encode()).hexdigest()}


def main() -> None:
    """Write the tables next to the grammar."""
    TABLES.write_text(build_tables(GRAMMAR.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
