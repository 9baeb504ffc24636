"""Recorded runs of dlio-benchmark 2.0.0: patterns of the same files plan as much, or the import says otherwise.

dlio_runs.json has DLIO's counts, as `scripts/dev/compare_dlio.py run --record` has written them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dliosim.dlio.convert import Pattern, import_pattern, report_lines
from tests.scripts.fidelity import script

compare = script("fidelity.dlio_compare")
CASES = {case.name: case for case in script("fidelity.dlio_cases").CASES}
RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("dlio_runs.json").read_text())


def imported(name: str, place: Path, as_run: bool = True) -> tuple[Pattern, str]:
    """Import a case; return its pattern, which is then in case.dlio, and all that there is to read of the import."""
    CASES[name].write(place / "case.yaml")
    pattern = import_pattern(place / "case.yaml", (), "2.0.0", as_run=as_run)
    (place / "case.dlio").write_text(pattern.text)
    return pattern, "\n".join((*report_lines(pattern), pattern.text))


def differences(recorded: dict[str, Any], place: Path) -> dict[str, str]:
    _, report = imported(recorded["case"], place)
    planned = compare.plan_counts(place / "case.dlio", recorded["ranks"], CASES[recorded["case"]].overrides)
    return dict(compare.find_differences(recorded["dlio"], planned, report))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: f"{one['case']} on {one['ranks']}")
def test_an_import_plans_what_dlio_did_or_says_what_differs(recorded: dict[str, Any], tmp_path: Path) -> None:
    assert [figure for figure, words in differences(recorded, tmp_path).items() if not words] == []


def test_every_case_was_run_on_one_rank_and_on_two() -> None:
    assert {(one["case"], one["ranks"]) for one in RECORDED} == {(name, ranks) for name in CASES for ranks in (1, 2)}


@pytest.mark.parametrize(
    "figure", ["files", "samples a file", "bytes of files", "steps", "opens", "eval steps", "saved"]
)
def test_a_count_that_is_another_is_found(figure: str, tmp_path: Path) -> None:
    (recorded,) = (one for one in RECORDED if (one["case"], one["ranks"]) == ("npz", 2))
    value = recorded["dlio"][figure]
    other = [one + 1 for one in value] if isinstance(value, list) else 2 * value
    assert differences({**recorded, "dlio": {**recorded["dlio"], figure: other}}, tmp_path)[figure] == ""


@pytest.mark.parametrize(("error", "named"), [("IndexError: list index out of range", True), ("took 100 s", False)])
def test_a_failure_of_dlio_is_only_that_which_the_report_names(error: str, named: bool, tmp_path: Path) -> None:
    recorded = {"case": "npz, an odd file", "ranks": 2, "dlio": {"fails": error}}
    assert bool(differences(recorded, tmp_path)["fails"]) == named


@pytest.mark.parametrize("name", CASES)
def test_lines_in_which_dlio_does_otherwise_than_its_file_asks_are_named(name: str, tmp_path: Path) -> None:
    texts = [imported(name, tmp_path, as_run)[0] for as_run in (False, True)]
    words, deeds = ({line.partition("#")[0].strip() for line in one.text.splitlines()[3:]} for one in texts)
    for line in deeds - words:
        assert f"`{' '.join(line.rstrip('{').split())}`" in texts[0].deeds
