"""The grammar: its packaged tables, its keywords, and its collisions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from lark import Lark

from dliosim.language.syntax.build import TABLES, build_tables, grammar_text, parser_options, table_identity
from dliosim.language.syntax.parser import _restore_int_keys

TEXT = grammar_text()


def load(text: str) -> Any:
    return json.loads(text, object_hook=_restore_int_keys)


def shape(table: dict[str, Any], memo: dict[int, Any]) -> list[Any]:
    """A parse table without the numbers of its states, which differ from build to build: walked from each start."""
    tokens, states = table["tokens"], table["states"]
    numbers: dict[int, int] = {}
    walked: list[Any] = []
    queue = [state for _, state in sorted(table["start_states"].items())]
    while queue:
        state = queue.pop(0)
        if state in numbers:
            continue
        numbers[state] = len(numbers)
        row: list[Any] = []
        for name, (reduces, argument) in sorted((tokens[token], action) for token, action in states[state].items()):
            if reduces:
                rule = memo[argument["@"]]
                row.append(
                    (
                        name,
                        json.dumps([rule["origin"], rule["expansion"], rule["alias"], rule["order"]], sort_keys=True),
                    )
                )
            else:
                row.append((name, argument))
                queue.append(argument)
        walked.append((state, row))
    return [
        [(name, numbers[target] if isinstance(target, int) else target) for name, target in row] for _, row in walked
    ]


def test_the_packaged_tables_belong_to_the_grammar() -> None:
    packaged = load(TABLES.read_text(encoding="utf-8"))
    assert packaged["grammar"] == table_identity(TEXT)["grammar"], "run `python -m dliosim.language.syntax.build`"


def test_the_packaged_tables_are_those_that_the_grammar_gives() -> None:
    packaged, built = load(TABLES.read_text(encoding="utf-8")), load(build_tables(TEXT))
    shapes = [shape(each["data"]["parser"]["parser"], each["memo"]) for each in (packaged, built)]
    assert shapes[0] == shapes[1], "run `python -m dliosim.language.syntax.build`"
    terminals = [sorted(map(plain, found["memo"].values())) for found in (packaged, built)]
    assert terminals[0] == terminals[1]


def plain(entry: dict[str, Any]) -> str:
    """A terminal or rule as text, without the width of its expression, whose greatest value is the interpreter's."""
    pattern = {name: value for name, value in entry.get("pattern", {}).items() if name != "_width"}
    return json.dumps({**entry, "pattern": pattern}, sort_keys=True)


def test_no_two_terminals_collide_where_both_may_stand() -> None:
    Lark(TEXT, **parser_options(), strict=True)


def test_every_keyword_is_a_whole_word() -> None:
    keywords = re.findall(r"^_?[A-Z_]+\.2: /(.*)/$", TEXT, re.MULTILINE)
    assert len(keywords) > 50
    assert [keyword for keyword in keywords if not keyword.endswith((r"\b", ")"))] == []


def test_the_parser_is_ready_in_a_fraction_of_a_second() -> None:
    # Generous: this is about loading tables instead of building them, and about what is imported on the way.
    program = (
        "import time; begun = time.perf_counter()\n"
        "from dliosim.language.syntax.parser import _parser\n"
        "_parser(); print(time.perf_counter() - begun)"
    )
    seconds = min(
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout) for _ in range(3)
    )
    assert seconds < 1.0


def test_without_tables_the_parser_is_built_in_memory(tmp_path: Any) -> None:
    program = (
        "import pathlib\n"
        "from dliosim.language import source\nfrom dliosim.language.syntax import parser\n"
        f"parser.TABLES = pathlib.Path({str(tmp_path)!r}) / 'none.json'\n"
        "text = source.SourceText('x', '8 per rank')\n"
        "print(parser.parse('batch', text.span(0, 10)).kind)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "per_rank\n"
