"""First lines: rows that fit in 8 lines of 80 columns, whole or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.measure.results.run_summary import Advice
from dliosim.report.answer_sentences import advice_rows
from dliosim.report.first_lines import directory_forms, first_lines, fit_rows, fit_title, name_forms

TEXTS = st.lists(st.text("ab-./%", min_size=1, max_size=30), min_size=1, max_size=30).map(" ".join)
NAMES = st.sampled_from(["ANSWER", "STORAGE", "MEMORY", "LOOP", "SAVES", "INTERVAL"])
ROWS = st.lists(st.tuples(NAMES, TEXTS), max_size=9)
COMMAND = "dliosim run pattern.dlio " + "-D files=20_000 " * 9


@given(ROWS, TEXTS)
def test_rows_are_whole_in_eight_lines_of_80_columns(rows: list[tuple[str, str]], advice: str) -> None:
    title, kept = fit_rows(
        "cosmoflow",
        [("ANSWER", "feeds"), *rows],
        advice_rows([Advice("not_run", {"label": "it", "error": advice}, COMMAND)]),
    )
    lines = first_lines(title, kept).splitlines()
    assert max(len(line) for line in lines if line != COMMAND) <= 80
    assert len(lines) <= 8 or len(kept) <= 2
    words = [word for row in kept for word in " ".join(row).split()]
    assert " ".join(lines[1:]).split() == words


def test_where_somebody_asked_how_often_to_save_that_and_the_saves_stay() -> None:
    names = ["ANSWER", "WHY", "STORAGE", "MEMORY", "LOOP", "SAVES", "RESTORES"]
    advice = advice_rows([Advice("read_data", {}, COMMAND)])

    def kept(*names: str) -> list[str]:
        return [name for name, _ in fit_rows("title", [(name, "text") for name in names], advice)[1]]

    assert kept(*names) == ["ANSWER", "WHY", "STORAGE", "MEMORY", "LOOP", "TRY"]
    assert kept(*names, "INTERVAL") == ["ANSWER", "WHY", "STORAGE", "SAVES", "INTERVAL", "TRY"]


@pytest.mark.parametrize(
    ("large", "left_out"), [([], {"SAVES", "RESTORES"}), (["SAVES"], {"RESTORES"}), (["RESTORES"], {"SAVES"})]
)
def test_what_took_much_of_the_time_has_a_ninth_line_where_eight_are_too_few(
    large: list[str], left_out: set[str]
) -> None:
    names = ["ANSWER", "WHY", "STORAGE", "MEMORY", "LOOP", "SAVES", "RESTORES"]
    title, rows = fit_rows(
        "title", [(name, "text") for name in names], advice_rows([Advice("read_data", {}, COMMAND)]), large
    )
    assert set(names) - {name for name, _ in rows} == left_out
    assert len(first_lines(title, rows).splitlines()) == 8 + bool(large)


def test_a_title_is_one_line_with_the_longest_forms_that_fit() -> None:
    api = ["posix, mpi-independent", "posix and others", ""]
    assert fit_title(["cosmoflow"], ["ext4"], api, ["/scratch/me"]) == (
        "cosmoflow  ext4  posix, mpi-independent  /scratch/me"
    )
    title = fit_title(["c" * 20], ["r" * 40], api, directory_forms("/scratch/me"))
    assert title.endswith("r  posix and others")
    ranks = ["4 ranks on 1 node: do not extrapolate"]
    long = fit_title(name_forms("n" * 99), ranks, directory_forms("/a/" + "d" * 99))
    assert len(long) <= 80 and "..." in long and not long.endswith("...")
