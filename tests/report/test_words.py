"""Sentences of reasons and advice: each kind that the code makes has its sentence, with all of its values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dliosim
from dliosim.measure.results.run_summary import Advice, Reason
from dliosim.report.words import list_values, plain_content, sentence

SOURCES = [*Path(dliosim.__file__).parent.glob("measure/**/*.py"), *Path(dliosim.__file__).parent.glob("compare/*.py")]


def made_kinds() -> Iterator[tuple[str, str]]:
    """Yield file and kind of each reason and advice that the code makes, and what each change of a run is called."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Reason", "Advice", "change") and node.args:
                first = node.args[0]
                for one in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                    if isinstance(one, ast.Constant):
                        yield path.name, one.value


@pytest.mark.parametrize(("file", "kind"), sorted(set(made_kinds())))
def test_every_kind_that_is_made_has_a_sentence(file: str, kind: str) -> None:
    assert all(name and hint for name, hint, _ in list_values(kind))


def test_parts_are_there_with_all_of_their_values() -> None:
    wait = Reason("core_wait", {"share": 0.2, "by_readers": False, "by_ranks": True})
    assert sentence(wait) == "ranks waited 20 % of the loop for a core"
    assert sentence(wait.extend(load=9.25)) == sentence(wait)
    text = sentence(wait.extend(load=9.25, cores=2, may_explain=True, low=0.7, high=0.95))
    assert text == (
        "ranks waited 20 % of the loop for a core (load average before: 9.2 on 2 cores), "
        "which may explain it: 70.0 % to 95.0 %"
    )


def test_what_a_sentence_takes_is_known_by_name_and_type() -> None:
    assert list(list_values("measure_bytes")) == [("amount", float, True)]
    assert list(list_values("more_memory")) == [("ranks", int, False)]
    assert ("labels", tuple[str, ...], True) in list_values("unsynced")


def test_names_of_users_are_never_taken_for_values() -> None:
    assert sentence(Reason("not_run", {"label": "{error}", "error": "[{label}]"})) == "{error} not run: [{label}]"


@pytest.mark.parametrize("wrong", [Reason("no_such_kind"), Reason("measure_bytes")])
def test_a_kind_or_a_value_that_is_missing_is_an_error(wrong: Reason) -> None:
    with pytest.raises(KeyError):
        sentence(wrong)


def test_json_has_kind_values_and_text() -> None:
    advice = Advice("more_memory", {"ranks": 2}, "dliosim run a.dlio")
    assert plain_content((advice,)) == [
        {
            "kind": "more_memory",
            "values": {"ranks": 2},
            "command": "dliosim run a.dlio",
            "text": "use nodes with more memory, or ask about 2 ranks instead",
        }
    ]
