"""Make tables.json, the ready-made parser, from the grammar: `python -m dliosim.language.syntax.build`.

Building the parser takes a second or more; loading its tables takes a few hundredths of a second. The tables are plain
JSON. A test checks that they match the grammar.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

from dliosim.language.syntax.declarations import RULES, SETTINGS, STATEMENTS
from dliosim.model import EXPECTABLE

HERE: Final = Path(__file__).parent
GRAMMAR: Final = HERE / "grammar.lark"
TABLES: Final = HERE / "tables.json"


def grammar_text() -> str:
    """Return the whole grammar: the file, the figures, rules and keywords that the model declares."""
    text = GRAMMAR.read_text(encoding="utf-8").replace("{figures}", "|".join(EXPECTABLE))
    rules = "\n".join([text, *(f"{name}: {body}" for body, name in RULES.items())])
    defined = set(re.findall(r"^(\w+)(?:\.2)?:", rules, re.MULTILINE))
    used = re.findall(r"\b_?[A-Z][A-Z_]*\b", re.sub(r"^(//|_?[A-Z]).*|\".*?\"", "", rules, flags=re.MULTILINE))
    return "\n".join([rules, *(f"{name}.2: /{_keyword(name)}\\b/" for name in sorted({*used} - defined)), ""])


def _keyword(name: str) -> str:
    word = name.strip("_").lower().replace("_", "-")
    return f"{word}?" if word.endswith("s") else word


def parser_options() -> dict[str, Any]:
    """Return the options of the parser, also for the test that builds it with `strict`."""
    rules = {rule for settings in (*SETTINGS.values(), STATEMENTS) for rule in settings.values()}
    return {
        "parser": "lalr",
        "lexer": "contextual",
        "start": sorted({*rules, "evaluate", "quantity", "sum"}),
        "maybe_placeholders": False,
        "propagate_positions": True,
    }


def build_tables(grammar: str) -> str:
    """Return the tables of a grammar as JSON; the numbers of the states differ from build to build."""
    from lark import Lark
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    parser = Lark(grammar, **parser_options())
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    return json.dumps({**table_identity(grammar), "data": data, "memo": memo}, separators=(",", ":")) + "\n"


def table_identity(grammar: str) -> dict[str, str]:
    """Return the identity of tables: a hash of the grammar, and the version of lark."""
    from lark import __version__

    return {"lark": __version__, "grammar": hashlib.sha256(grammar.encode()).hexdigest()}


def main() -> None:
    """Write the tables next to the grammar."""
    TABLES.write_text(build_tables(grammar_text()), encoding="utf-8")


if __name__ == "__main__":
    main()
