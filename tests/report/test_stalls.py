"""The output and the files of a comparison of saves or restores, and the files read back."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.compare.experiment import VariedSetting
from dliosim.compare.pass_figures import STALL
from dliosim.errors import UsageError
from dliosim.pictures.catalogue import comparison_gallery, draw_pictures
from dliosim.pictures.html_report import page
from dliosim.report.compare.results import format_rows, write_comparison
from dliosim.report.compare.tables import comparison_report
from dliosim.report.reader.load import SavedComparison, load_results
from dliosim.report.side_by_side import format_side_by_side
from tests.compare.sample import answered
from tests.compare.stall_sample import saves, stalled


def written(place: Path, **changed: object) -> SavedComparison:
    """A comparison of saves, written and read back."""
    made = saves(stalled((1.0, 0.5, 4.0), **changed))
    place.mkdir(exist_ok=True)
    write_comparison(place, *answered(made))
    (found,) = load_results([str(place)], with_arrays=True)
    assert isinstance(found, SavedComparison)
    return found


def test_the_report_has_stalls_and_their_parts() -> None:
    text = comparison_report(*answered(saves(stalled((1.0, 0.5)))))
    assert "cosmoflow: save state, 2 variants, 8 passes of each" in text
    assert "before each pass" not in text  # nothing is read
    (row,) = [line for line in text.splitlines() if line.startswith("writers=all") and line.endswith("faster")]
    assert " 579 ms " in row
    assert "sync" in text and "com-" in text and "stage" not in text and "samples" not in text
    assert max(map(len, text.splitlines())) <= 120
    assert "stage" in comparison_report(*answered(saves(stalled((1.0, 0.5), stage_seconds=0.25, flush_seconds=1.0))))


def test_two_names_give_a_table_of_stalls() -> None:
    variants = stalled((1.0, 2.0, 3.0))
    places = ((("x", "1"), ("y", "a")), (("x", "1"), ("y", "b")), (("x", "2"), ("y", "a")))
    swept = tuple(replace(one, values=values) for one, values in zip(variants, places, strict=True))
    text = comparison_report(
        *answered(saves(swept, varied=(VariedSetting("x", ("1", "2")), VariedSetting("y", ("a", "b")))))
    )
    assert "save state: stall by x (down) and y (across)" in text


def test_rows_have_every_pass_and_nothing_is_rounded() -> None:
    made = saves(stalled((1.0, 0.5)))
    rows = list(csv.DictReader(format_rows(made.passes, STALL).splitlines()))
    exact = {each.position: each.figures["stall_seconds"] for one in made.measured for each in one.passes}
    assert {int(row["position"]): float(row["stall_seconds"]) for row in rows} == exact
    assert {row["resident_share"] for row in rows} == {""}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    found = written(tmp_path).comparison
    content = json.loads((tmp_path / "compare.json").read_text())
    assert (content["what"], content["checkpoint"], found.what, found.is_stall_comparison) == (
        "save",
        "state",
        "save state",
        True,
    )
    second = found.variants[1]
    assert second.verdict == "faster" and second.seconds == tuple(content["variants"][1]["seconds"])
    stall = second.figures["stall_seconds"]
    assert stall == content["variants"][1]["stall_seconds"] == pytest.approx(0.58, rel=0.01)
    assert second.figures["calls"] == 240


def test_tables_and_pictures_show_stalls_and_no_rates_of_samples(tmp_path: Path) -> None:
    found = written(tmp_path)
    text = format_side_by_side([found])
    assert "cosmoflow: variants of save state" in text and "samples" not in text and "rename" in text
    shown = comparison_gallery(found.comparison)
    assert [one.name for one in shown.pictures] == ["ratios"] and "stall" in shown.pictures[0].caption
    (figure,) = [figure for _, figure in draw_pictures(shown.pictures)]
    axes = figure.axes[0]
    assert axes.get_xlabel() == "stall of writers=into file per rank / stall"
    assert all(label.get_text().rpartition("\n")[2].endswith("s") for label in axes.get_yticklabels())
    assert "Stall of the job" in page([found])


def test_columns_of_what_no_rank_did_are_left_out(tmp_path: Path) -> None:
    assert "to ranks" not in format_side_by_side([written(tmp_path / "none")]).replace("all ranks into", "")
    assert "to ranks" in format_side_by_side([written(tmp_path / "sent", send_seconds=0.5)])


@pytest.mark.parametrize(
    ("change", "said"),
    [({"what": "delete"}, "what is none of loop, save, restore"), ({"checkpoint": None}, "checkpoint is not a text")],
)
def test_a_wrong_kind_is_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    written(tmp_path)
    content = json.loads((tmp_path / "compare.json").read_text())
    (tmp_path / "compare.json").write_text(json.dumps(content | change))
    with pytest.raises(UsageError, match=said):
        load_results([str(tmp_path)], with_arrays=True)


def test_a_variant_without_passes_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    content = json.loads((tmp_path / "compare.json").read_text())
    content["variants"][0]["seconds"] = []
    (tmp_path / "compare.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"variants\[0\].seconds is empty"):
        load_results([str(tmp_path)], with_arrays=True)
