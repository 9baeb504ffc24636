"""A figure that is declared once is everywhere."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dliosim.measure.figures.declaration import Part, figure, latency_kinds, make_summary, result_figures, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary
from dliosim.measure.figures.summary import reduce_epoch
from dliosim.measure.rank.records import Column, EpochRecord, VerbRecord, column_names
from dliosim.measure.reducer import Reducer
from dliosim.measure.results.phase import LoopPhase
from dliosim.report.files.results import results_content
from dliosim.report.reader.typed_json import read_json, read_object
from dliosim.report.run import loops
from tests.measure.ranks import on_ranks
from tests.report.sample import blank_summary, run, spread
from tests.scripts.fidelity import script

#: Of no loop.
NO_LATENCIES = dict.fromkeys(latency_kinds(EpochSummary))

write_figures = script("write_figures")


@dataclass(slots=True)
class WiderRecord(EpochRecord):
    """A record with one more column."""

    #: seeking tapes
    seek_ns: Column = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WiderSummary(EpochSummary):
    """A summary with one more figure by its type, and one more formula."""

    #: seeking tapes
    seek_seconds: Part = figure("seeking\ntapes", "times", optional=True)
    #: least time of any rank to seek tapes
    least_seek_seconds: float = figure(of=lambda ranks: ranks.least["seek_ns"] * 1e-9)


def summarise_wider(record: WiderRecord, reducer: Reducer) -> WiderSummary | None:
    reduced = reduce_epoch(record, reducer)
    return reduced and make_summary(WiderSummary, reduced)


def test_a_figure_that_is_declared_is_measured_written_read_shown_and_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [WiderRecord(0, 0, wall_ns=10**9, seek_ns=seek) for seek in (2 * 10**9, 4 * 10**9)]
    summary, nothing = on_ranks(summarise_wider, records)
    assert nothing is None and summary is not None
    assert (summary.seek_seconds.mean, summary.seek_seconds.max, summary.least_seek_seconds) == (3.0, 4.0, 2.0)
    monkeypatch.setattr(write_figures, "RANK_COLUMNS", column_names(WiderRecord, "Column"))
    assert "seek_ns" in column_names(WiderRecord, "Column")
    assert "seek_seconds" in time_parts(WiderSummary)
    phase = LoopPhase("train", "train", 1.0, epochs=(summary,))
    (written,) = results_content(run(phases=(phase,)))["phases"][0]["epochs"]
    assert written["seek_seconds"] == {"mean": 3.0, "min": 2.0, "max": 4.0}
    file = tmp_path / "epoch.json"
    file.write_text(json.dumps(written))
    found = read_object(WiderSummary, read_json(file), ranks=2, null=False)
    assert (found.seek_seconds, found.least_seek_seconds) == (summary.seek_seconds, 2.0)
    monkeypatch.setattr(loops, "EpochSummary", WiderSummary)
    assert "seeking" in loops.loop_tables([phase], NO_LATENCIES, "")
    monkeypatch.setitem(write_figures.SUMMARIES, "epoch", WiderSummary)
    schema = write_figures.fill_schema(json.loads(write_figures.SCHEMA.read_text()))["$defs"]["epoch"]
    assert schema["properties"]["seek_seconds"] == {"$ref": "#/$defs/spread"}
    assert {"seek_seconds", "least_seek_seconds"} < {*schema["required"]}
    table = write_figures.draw_table("parts of the wall time").splitlines()
    assert "| seeking tapes | `seek_seconds` | `seek_ns` | seeking tapes |" in table
    assert blank_summary(WiderSummary, seek_seconds=spread(1.0)).least_seek_seconds == 0.0


def test_an_optional_column_is_left_out_where_the_figure_is_0() -> None:
    (shown,) = [one for one in result_figures(WiderSummary, "times") if one.name == "seek_seconds"]
    assert (shown.heading, shown.optional) == ("seeking\ntapes", True)
    phase = run().phases[4]
    assert "arrival" not in loops.loop_tables([phase], NO_LATENCIES, "")
    waited = tuple(replace(one, arrival_wait_seconds=spread(0.1)) for one in phase.epochs)
    assert "arrival" in loops.loop_tables([replace(phase, epochs=waited)], NO_LATENCIES, "")


def test_the_schema_has_the_figures_as_they_are_declared() -> None:
    schema = json.loads(write_figures.SCHEMA.read_text(encoding="utf-8"))
    assert write_figures.fill_schema(schema) == schema, "type: scripts/dev/write_figures.py"


def test_the_tables_of_the_page_have_the_figures_as_they_are_declared() -> None:
    page = write_figures.PAGE.read_text(encoding="utf-8")
    assert write_figures.fill_page(page) == page, "type: scripts/dev/write_figures.py"


def test_every_column_that_ranks_reduce_is_used_by_a_figure() -> None:
    used = {column for kind in (EpochSummary, VerbSummary) for column in write_figures.list_columns(kind)}
    kinds = ("Column", "PartColumn", "InnerColumn")
    columns = {name for kind in (EpochRecord, VerbRecord) for name in column_names(kind, *kinds)}
    # Each rank makes its utilization of these.
    assert columns - used == {"nominal_ns"}
