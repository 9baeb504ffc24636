"""The output and the files of a comparison."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.compare.experiment import VariedSetting
from dliosim.compare.pass_figures import LOOP
from dliosim.readable import ABSENT, percent
from dliosim.report.compare.results import (
    COMPARE,
    ROWS,
    comparison_content,
    comparison_json,
    format_rows,
    write_comparison,
)
from dliosim.report.compare.tables import _STALL_COLUMNS, comparison_report, variant_legend
from dliosim.report.reader.results import parse_comparison
from tests.compare.sample import answered, cold, measured, outcome

GOLDEN = Path(__file__).with_name("compare.txt")


def test_the_report_is_the_golden_one() -> None:
    first, second, last = cold(1.0, 1.3, 0.8, two_phase="engaged").measured
    made = outcome((first, second, replace(last, api="mpi-collective")), caches="cold", without_saves=True)
    assert comparison_report(*answered(made)) == GOLDEN.read_text()


def test_a_saved_comparison_without_variants_or_bytes_has_its_tables() -> None:
    made = comparison_content(*answered(outcome(measured((1.0, 2.0)))))
    assert variant_legend(parse_comparison(made | {"variants": []})) == []
    (column,) = [one for one in _STALL_COLUMNS if one.heading == "GB"]
    assert column.cell(replace(parse_comparison(made).variants[0], figures={"bytes": None})) == ABSENT


def test_long_labels_become_numbers_that_a_legend_explains() -> None:
    first, second = measured((1.0, 2.0))
    long = replace(second, label="api=mpi-collective, hints=two-phase 16 aggregators buffer 64 MiB")
    text = comparison_report(*answered(outcome((first, long))))
    assert f"(2) {long.label}" in text and "Time of (1)" in text
    assert max(map(len, text.splitlines())) <= 120


def test_two_names_give_a_table_of_rates_with_holes() -> None:
    variants = measured((1.0, 2.0, 3.0))
    places = ((("x", "1"), ("y", "a")), (("x", "1"), ("y", "b")), (("x", "2"), ("y", "a")))
    swept = tuple(replace(one, values=values) for one, values in zip(variants, places, strict=True))
    made = outcome(swept, varied=(VariedSetting("x", ("1", "2")), VariedSetting("y", ("a", "b"))))
    lines = comparison_report(*answered(made)).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("train: samples/s by x (down)"))
    first, second = lines[start + 3].split(), lines[start + 4].split()
    assert len(first) == 3 and second[0] == "2" and second[2] == "-"


def test_every_pass_is_a_row_in_the_order_in_which_they_ran() -> None:
    made = outcome(measured((1.0, 2.0)))
    rows = list(csv.DictReader(format_rows(made.passes, LOOP).splitlines()))
    assert [int(row["position"]) for row in rows] == list(range(18))
    assert [row["counts"] for row in rows].count("0") == 2
    # Nothing is rounded: statistics can be made again from the rows.
    exact = {one.position: one.figures["seconds"] for variant in made.measured for one in variant.passes}
    assert all(float(row["seconds"]) == exact[int(row["position"])] for row in rows)


def test_decoding_has_columns_only_where_a_variant_did_any() -> None:
    plain = comparison_report(*answered(outcome(measured((1.0, 2.0)))))
    assert "proces-" not in plain and "decode" not in plain
    inline = measured((1.0, 2.0), decode_seconds=0.25, processing_seconds=0.5, preprocess_seconds=0.25)
    text = comparison_report(*answered(outcome(inline)))
    assert "proces-" in text and "decode" in text and "pre-" in text
    share = inline[1].share("processing_seconds")
    assert share == pytest.approx(4.0 / sum(one.figures["seconds"] + 0.5 for one in inline[1].block_passes))
    assert f"processing {percent(share, 3)}" in " ".join(comparison_report(*answered(outcome(inline[::-1]))).split())
    variants = comparison_content(*answered(outcome(inline)))["variants"]
    assert [one["processing_share"] for one in variants] == [0.0, pytest.approx(share)]


def test_rows_have_what_decoding_took_and_waits_for_cores_at_their_end() -> None:
    rows = format_rows(
        outcome(measured((1.0, 2.0), decode_seconds=0.25, processing_seconds=0.5, preprocess_seconds=0.125)).passes,
        LOOP,
    ).splitlines()
    last = ["decode_seconds", "preprocess_seconds", "processing_seconds", "core_wait_share"]
    assert rows[0].split(",")[-4:] == last
    found = {tuple(row.split(",")[-4:]) for row in rows[1:]}
    assert found == {("0.0", "0.0", "0.0", ""), ("0.25", "0.125", "0.5", "")}


def test_the_rows_have_every_percentile_that_the_verdict_speaks_of() -> None:
    made = outcome(measured((1.0, 2.0)))
    row = next(csv.DictReader(format_rows(made.passes, LOOP).splitlines()))
    first = next(one for variant in made.measured for one in variant.passes if one.position == 0)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        assert float(row[f"batch_latency_{name}_seconds"]) == first.latency.quantile(share) * 1e-9


def test_the_json_holds_the_same_passes_and_the_verdict(tmp_path: Path) -> None:
    made = outcome(measured((1.0, 2.0)))
    write_comparison(tmp_path, *answered(made))
    content = json.loads((tmp_path / COMPARE).read_text())
    assert (tmp_path / ROWS).read_text() == format_rows(made.passes, LOOP)
    assert content == json.loads(json.dumps(comparison_content(*answered(made))))
    second = content["variants"][1]
    assert second["verdict"] == "slower" and second["ratio"] == pytest.approx(0.5, rel=0.1)
    assert second["ratio_low"] < second["ratio"] < second["ratio_high"] < 1
    assert len(second["passes"]) == 9 and content["answer"]["use"] == "api=a"


def test_parts_of_the_time_that_no_rank_spent_have_no_column() -> None:
    plain = comparison_report(*answered(outcome(measured((1.0, 2.0)))))
    assert "check-" not in plain and "utili-" not in plain
    busy = comparison_report(*answered(outcome(measured((1.0, 2.0), checkpoint_seconds=0.5, utilization=0.9))))
    assert "check-" in busy and "utili-" in busy


def test_rows_of_a_variant_that_failed_later_are_kept() -> None:
    variants = measured((1.0, 2.0, 3.0))
    made = outcome(variants[:2], passes=tuple((one.label, one.passes) for one in variants))
    rows = list(csv.DictReader(format_rows(made.passes, LOOP).splitlines()))
    assert {row["variant"] for row in rows} == {"api=a", "api=b", "api=c"}


def test_json_for_scripts_is_the_answer_on_one_line(tmp_path: Path) -> None:
    made, answer = answered(cold(1.0, 2.0))
    found = json.loads(comparison_json(made.name, answer, tmp_path))
    assert (found["name"], found["results"], found["answer"]["use"]) == ("cosmoflow", str(tmp_path), "api=a")
    assert found["answer"] == json.loads(json.dumps(comparison_content(made, answer)))["answer"]
