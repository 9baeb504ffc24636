"""Sentences of reasons and advice: each kind that the code makes has its sentence, with all of its values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dliosim
from dliosim.measure.results.run_summary import Advice, Reason
from dliosim.report.answer_sentences import list_values, plain_content, sentence

SOURCES = [*Path(dliosim.__file__).parent.glob("measure/**/*.py"), *Path(dliosim.__file__).parent.glob("compare/*.py")]


def made_kinds() -> Iterator[tuple[str, str, tuple[str, ...] | None]]:
    """Yield file, kind and names of values of each reason and advice that the code makes; None for no literal names."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Reason", "Advice", "change") and node.args:
                first, values = node.args[0], node.args[1] if len(node.args) > 1 else ast.Dict([], [])
                names: tuple[str, ...] | None = None
                if ast.unparse(node.func) == "change":
                    names = tuple(one.arg or "" for one in node.keywords)
                elif isinstance(values, ast.Dict) and all(isinstance(key, ast.Constant) for key in values.keys):
                    names = tuple(key.value for key in values.keys if isinstance(key, ast.Constant))
                for one in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                    if isinstance(one, ast.Constant):
                        yield path.name, one.value, names


MADE = sorted(set(made_kinds()), key=str)


@pytest.mark.parametrize(("file", "kind", "names"), MADE)
def test_every_kind_that_is_made_has_a_sentence_with_its_values(
    file: str, kind: str, names: tuple[str, ...] | None
) -> None:
    required = {name for name, _, is_required in list_values(kind) if is_required}
    known = {name for name, _, _ in list_values(kind)}
    assert names is None or required <= set(names) <= known


def test_most_values_are_named_where_they_are_made() -> None:
    assert len([names for _, _, names in MADE if names is not None]) > 0.8 * len(MADE) > 30


def test_a_limit_of_0_is_a_limit_and_a_count_is_whole() -> None:
    reason = Reason("goal_in_interval", {"low": 0.0, "high": 0.95})
    assert sentence(reason).endswith("of this run: 0 % to 95.0 %")
    assert sentence(Advice("more_memory", {"ranks": 0})) == "use nodes with more memory"
    few = Reason("few_repetitions", {"repetitions": 3, "least": 6})
    assert sentence(few) == "3 repetitions: at least 6 are needed"


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
