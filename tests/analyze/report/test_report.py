"""The screen, the tables and the JSON of an analysis; what changed between two jobs; a fleet."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from dliosim.analyze.figures.job import Figures
from dliosim.analyze.insights.jobs import find_changes, list_fleet
from dliosim.analyze.insights.rules import INSIGHTS, judge
from dliosim.analyze.report.first_screen import LINES, explain_insight, format_analysis, format_changes
from dliosim.analyze.report.tables import analysis_json, changes_json, fleet_table, list_tables
from dliosim.report.text_table import SCREEN
from tests.analyze.insights.test_insights import CASES
from tests.analyze.rows import MS, Row, compute, figures, insight, read, write
from tests.report.test_real_runs import faults
from tests.scripts.fidelity import script


def screen(found: Figures, full: bool = False) -> str:
    return format_analysis(found, judge(found), full)


def all_at_once() -> list[Row]:
    """A job that nearly every insight is found in."""
    rows = [row for name in ("random-reads", "random-writes", "uneven-bytes") for row in CASES[name][0](60)]
    rows += [Row("open", 0, 2_000_000, 2, file="/d/b"), Row("data wait", 0, 90, 1, "application"), compute(1, 3, 1)]
    long = f"function_{'of_a_long_name_' * 20}"
    return rows + [Row("other", at, 1_000_000, 2, "application", name=f"{long}{at}") for at in range(20)]


def test_a_first_screen_fits_and_the_most_costly_insight_is_above_the_time_split() -> None:
    text = screen(figures(all_at_once()))
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= SCREEN
    assert text.index("INSIGHTS") < text.index("TRY") < text.index("union of all ranks")


def test_where_no_insight_is_found_the_screen_says_which_were_looked_at() -> None:
    text = screen(figures([read(0, 10, moved=1 << 21), write(20, 10, offset=1 << 21, moved=1 << 21)]))
    assert "NO INSIGHT" in text
    assert "small-reads" in text and "size-mix" in text
    assert "blocking-mpi-io" not in text  # nothing is known of it


def test_where_findings_concern_little_the_screen_says_so() -> None:
    rows = [read(at, 1, offset=1 + (at << 21), moved=1 << 21) for at in range(20)]
    text = screen(figures([*rows, compute(100, 10_000)]))
    assert "NOTHING COSTLY: each finding concerns less than 1 % of the job's time:" in text
    found = insight("misaligned-reads", rows).found
    assert found is not None and "100 % of 20 reads start at an offset that is not a multiple of 4 KiB" in found.words


def test_what_is_missing_stands_first_and_whole() -> None:
    text = screen(
        figures([read(0, 10)], incomplete=("reads of forked workers are missing", "the last line is cut")), True
    )
    assert text.index("incomplete: reads of forked workers are missing") < text.index("the last line is cut")


def test_a_run_of_dliosim_is_given_the_option_to_type_and_others_are_not() -> None:
    rows = [read(0, 100 * MS), compute(200 * MS, MS), Row("epoch", 0, 300 * MS, layer="application", name="train big")]
    assert "\n         -D big.readers=4\n" in screen(figures(rows, source="dliosim"))
    assert "-D " not in screen(figures(rows))


def test_readers_are_advised_to_a_run_that_has_few() -> None:
    rows = [read(0, 100 * MS, thread=thread) for thread in range(1, 6)]
    rows += [compute(200 * MS, MS), Row("epoch", 0, 300 * MS, layer="application", name="train")]
    for present, advised in ("0", True), ("1", True), ("4", False), ("8", False):
        shown = screen(figures(rows, source="dliosim", settings={"train": {"readers": present}}))
        assert "unoverlapped-io" in shown
        assert ("-D train.readers=4\n" in shown) == advised


def test_processes_are_advised_to_a_run_whose_readers_are_processes() -> None:
    rows = [read(0, 100 * MS), compute(200 * MS, MS), Row("epoch", 0, 300 * MS, layer="application", name="train")]
    for present, advised in ("1 processes", True), ("4 processes", False):
        shown = screen(figures(rows, source="dliosim", settings={"train": {"readers": present}}))
        assert ('-D train.readers="4 processes"\n' in shown) == advised


def test_what_a_run_does_already_is_not_advised() -> None:
    rows = [read(0, 100 * MS, moved=100), read(0, MS, process=1, moved=1)]
    for settings, advised in ({"shard": "by file"}, True), ({"shard": "by sample"}, False):
        shown = screen(figures(rows, source="dliosim", settings={"train": settings}))
        assert "uneven-bytes" in shown
        assert ('-D train.shard="by sample"' in shown) == advised


def test_saves_in_the_background_are_advised_for_a_checkpoint_of_the_loop() -> None:
    rows = [compute(0, 100 * MS), write(100 * MS, 50 * MS)]
    shown = screen(figures(rows, source="dliosim", settings={"train": {"checkpoint": "state"}}))
    assert "-D state.async=on" in shown
    assert "async=on" not in screen(figures(rows, source="dliosim", settings={"train": {"checkpoint": ""}}))


@pytest.mark.parametrize("one", [one for one in INSIGHTS if one.own], ids=lambda one: one.name)
def test_an_option_that_is_advised_is_taken_by_check(one: object, capsys: pytest.CaptureFixture[str]) -> None:
    import shlex

    from dliosim.cli import main

    words = shlex.split(one.own.format(loop="train", checkpoint="model", readers=4))  # type: ignore[attr-defined]
    # What the insight is found in: MPI-IO, on a shared file.
    if "api" in words[1]:
        words += ["-D", "train.readers=0", "-D", "layout=shared file"]
    if "engine" in words[1]:
        words += ["-D", "train.api=mpi-independent"]
    assert main(["check", "cosmoflow", *words]) == 0, capsys.readouterr()


def test_each_insight_is_explained_with_threshold_source_and_cure() -> None:
    for one in INSIGHTS:
        text = " ".join(explain_insight(one.name).split())
        assert max(map(len, explain_insight(one.name).splitlines())) <= SCREEN
        for part in (one.name, one.threshold, one.source, one.cure, one.figure):
            assert part in text


def test_full_has_each_part_of_the_figures() -> None:
    text = screen(figures(all_at_once()), full=True)
    for title in (
        "functions: time",
        "layers: time",
        "access, by process",
        "Darshan's bins",
        "files by purpose",
        "bandwidth of all ranks",
        "ranks, ",
    ):
        assert title in text
    assert max(map(len, text.splitlines())) <= 120


def test_many_ranks_have_rows_of_the_slowest_and_the_fastest() -> None:
    text = screen(figures([read(0, 10 + rank, process=rank) for rank in range(40)]), full=True)
    assert "of 40 the slowest 8 and the fastest 8" in text
    assert "\nrank 39 " in text and "\nrank 0 " in text and "\nrank 20 " not in text


def test_json_has_all_figures_and_no_number_that_json_does_not_have() -> None:
    one = figures([read(0, 10), read(0, 10, process=1, moved=0)])
    nan = dataclasses.replace(one, functions=(dataclasses.replace(one.functions[0], p50=float("nan")),))
    content = json.loads(analysis_json(nan, judge(one)), parse_constant=pytest.fail)
    assert {"schema_version", "insights", *(field.name for field in dataclasses.fields(Figures))} == {*content}
    assert content["functions"][0]["p50"] is None
    assert content["access"]["read"]["bins"]["0-100 B"] == 2
    assert {each["name"] for each in content["insights"]} == {each.name for each in INSIGHTS}
    schema = json.loads(script("write_insights").SCHEMA.read_text(encoding="utf-8"))
    assert list(faults(content, schema["$defs"]["Figures"], "analysis", schema)) == []


def test_changes_are_by_what_they_cost() -> None:
    first = figures(
        [read(0, 800 * MS, name="pread"), Row("open", 800 * MS, 50 * MS, file="/d/a"), compute(850 * MS, 150 * MS)]
    )
    second = figures(
        [read(0, 300 * MS, name="pread"), Row("open", 300 * MS, 150 * MS, file="/d/a"), compute(0, 150 * MS)]
    )
    changes = find_changes(first, second, judge(first), judge(second))
    costs = {one.what: one.cost for one in changes.times}
    assert costs["pread (posix)"] == pytest.approx(-0.5)
    assert costs["open (posix)"] == pytest.approx(0.1)
    assert "compute" not in costs
    assert [*map(abs, costs.values())] == sorted(map(abs, costs.values()), reverse=True)
    text = format_changes(changes, ("a", "b"))
    assert "-500 ms" in text and "+100 ms" in text and "0.375 x" in text
    assert max(map(len, text.splitlines())) <= SCREEN
    assert json.loads(changes_json(changes, ("a", "b")))["times"][0]["first"] > 0
    assert "operations" in changes.same


def test_what_one_trace_does_not_say_has_not_changed() -> None:
    first, second = figures([read(0, 10, offset=-1, moved=-1)]), figures([read(0, 10, moved=1 << 20)])
    changes = find_changes(first, second, judge(first), judge(second))
    assert not changes.others


@pytest.mark.parametrize(("ahead", "differs"), [(47, False), (60, True)])
def test_shares_are_compared_in_points(ahead: int, differs: bool) -> None:
    def job(sequential: int) -> Figures:
        offsets = np.cumsum([10_000_000, *[1000] * sequential, *[-1000] * (100 - sequential)])
        return figures([read(at * 10, 1, offset=int(one), moved=10) for at, one in enumerate(offsets)])

    first, second = job(44), job(ahead)
    changes = find_changes(first, second, judge(first), judge(second))
    assert ("sequential reads" in {one.what for one in changes.others}) == differs


def test_an_insight_that_came_and_one_that_went_are_named() -> None:
    first, second = figures(CASES["random-reads"][0](60)), figures(CASES["uneven-bytes"][0](60))
    changes = find_changes(first, second, judge(first), judge(second))
    assert "uneven-bytes" in {one.insight.name for one in changes.appeared}
    assert "random-reads" in {one.insight.name for one in changes.gone}


def test_a_job_has_no_changes_from_itself() -> None:
    one = figures(all_at_once())
    changes = find_changes(one, one, judge(one), judge(one))
    assert (changes.times, changes.others, changes.appeared, changes.gone) == ((), (), (), ())
    assert len(changes.same) >= 5
    text = format_changes(changes, ("a", "b"))
    assert "No time changed" in text and "as far as both traces say; within 5 %: ranks, operations" in " ".join(
        text.split()
    )


def test_a_fleet_has_a_row_for_each_job_by_the_slowest_ranks_io() -> None:
    jobs = [figures([read(0, 10, moved=5)]), figures([read(0, 40, moved=60), read(0, 20, process=1, moved=20)])]
    rows = list_fleet(("small", "large"), [(one, judge(one)) for one in jobs])
    assert [(one.name, one.ranks, one.bytes) for one in rows] == [("large", 2, 80), ("small", 1, 5)]
    assert rows[0].time_by_slowest == pytest.approx(40e-9)
    assert rows[0].perf_by_slowest == pytest.approx(2e9)


def test_jobs_whose_long_names_differ_in_their_middle_are_told_apart() -> None:
    one = figures([read(0, 10)])
    names = [f"a_folder_of_many_logs/application_id{number}_of_a_long_name.darshan" for number in (1, 2)]
    cells = [row[0] for row in fleet_table(list_fleet(names, [(one, judge(one))] * 2)).rows]
    assert len(set(cells)) == 2 and all("_id" in cell for cell in cells)


def test_a_job_without_a_length_has_no_bandwidth_over_time() -> None:
    shown = [table.title for table in list_tables(figures([read(0, 0)]), ())]
    assert shown and not any(title.startswith("bandwidth") for title in shown)


def test_files_of_many_kinds_have_a_row_for_those_that_took_longest() -> None:
    rows = [read(at * 10, at, file=f"/d/{at}.x{at:03}") for at in range(1, 100)]
    table = next(one for one in list_tables(figures(rows), ()) if one.title.startswith("files by"))
    assert table.title.endswith("75 more kinds took less")
    assert table.rows[0][1] == ".x099" and len(table.rows) == 24


def test_a_long_path_stays_whole() -> None:
    path = f"/a/{'folder' * 20}/app.darshan"
    assert path in screen(figures([read(0, 10)], path=path))


def test_the_page_and_the_schema_are_as_declared() -> None:
    write_insights = script("write_insights")
    page = write_insights.PAGE.read_text(encoding="utf-8")
    assert write_insights.fill_page(page) == page, "type: scripts/dev/write_insights.py"
    assert write_insights.write_schema() == write_insights.SCHEMA.read_text(encoding="utf-8")
