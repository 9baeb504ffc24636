"""Figures that a trace of dliosim has from the results of its run: cores, waits for them, where bytes came from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.analyze.figures.job import Figures, add_run
from dliosim.analyze.insights.rules import Finding, judge
from dliosim.analyze.report.first_screen import cure_lines, format_analysis
from dliosim.analyze.report.page import page
from dliosim.cli import main
from dliosim.measure.results.machine import Environment
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import RunSummary
from dliosim.report.files.results import write_results
from tests.analyze.rows import MS, Row, compute, figures, read, view
from tests.report.sample import epoch, run, spread
from tests.trace.test_file import write

MIB = 1 << 20

#: 100 MiB, which the second epoch reads again; nothing is next to its compute.
ROWS = [
    row
    for at in (0, 1)
    for row in (
        Row("epoch", 1000 * at * MS, 900 * MS, layer="application", name="train", epoch=at + 1),
        read(1000 * at * MS, 400 * MS, moved=100 * MIB, epoch=at + 1),
        compute((1000 * at + 400) * MS, 500 * MS),
    )
]


def results(device: float | None = 0.0, waited: float = 0.0, cores: int = 64) -> RunSummary:
    """A run of `ROWS` on 2 ranks of a node; shares: of the bytes of the device, of the time of waits for cores."""
    epochs = [
        epoch(
            index,
            bytes=100 * MIB,
            amplification=1.0,
            storage_amplification=device,
            loop_seconds=0.9,
            core_wait_seconds=spread(0.9 * waited),
        )
        for index in (0, 1)
    ]
    environment = Environment("MPICH 4", cores, 2, 1 << 34, 0.0)
    return run(phases=(LoopPhase("train", "train", 1.8, epochs=tuple(epochs)),), environment=environment)


def found(summary: RunSummary, readers: str = "0") -> tuple[Figures, dict[str, Finding], str]:
    one = add_run(figures(ROWS, ranks=2, source="dliosim", settings={"train": {"readers": readers}}), summary)
    judged = judge(one)
    screen = " ".join(format_analysis(one, judged, False).split())
    return one, {each.insight.name: each for each in judged}, screen


@pytest.mark.parametrize(("device", "is_met"), [(0.0, False), (0.5, False), (1.0, True), (None, True)])
def test_bytes_that_the_page_cache_gave_again_are_no_reason_for_a_cache(device: float | None, is_met: bool) -> None:
    one, insights, _ = found(results(device))
    assert one.access.read.from_device == (None if device is None else round(device * 200 * MIB))
    assert insights["read-again"].is_met == is_met


def test_bytes_of_devices_are_not_those_of_a_trace_of_a_part_of_a_run() -> None:
    part = figures(ROWS[:3], ranks=2, source="dliosim")
    assert add_run(part, results(1.0)).access.read.from_device is None


@pytest.mark.parametrize(("cores", "advised"), [(64, 4), (8, 3), (2, 1), (1, 1)])
def test_readers_are_advised_that_have_a_core_each(cores: int, advised: int) -> None:
    assert f"-D train.readers={advised} " in found(results(cores=cores))[2]
    assert "-D train.readers" not in found(results(cores=cores), str(advised))[2]


def test_a_run_that_waits_for_cores_is_advised_to_free_some_and_not_to_read_ahead_more() -> None:
    screen = found(results(waited=0.3, cores=2), "1")[2]
    assert "TRY use fewer ranks or readers, or more cores: ranks waited 30 % of the loop for a core" in screen
    assert "read ahead" not in screen
    few = found(results(waited=0.3, cores=2), "0")[2]
    assert "no more than have a core: ranks waited 30 % of the loop for a core -D train.readers=1" in few
    assert "for a core" not in found(results(waited=0.01, cores=2), "1")[2]


def test_a_run_that_waited_for_cores_says_so_above_all_insights() -> None:
    one, insights, screen = found(results(waited=0.3, cores=2), "1")
    warning = "warning: ranks waited 30 % of the loop for a core: all times include such waits"
    assert f"{warning} INSIGHTS" in screen
    assert warning.replace(" %", "\xa0%") in page(view(ROWS, ranks=2), one, list(insights.values()))


def test_a_rank_that_may_have_waited_for_a_core_is_given_one_before_its_disk_is_suspected() -> None:
    uneven = [*ROWS, read(0, 100 * MS, process=1, moved=100 * MIB, epoch=1)]
    for waited, said in (0.3, True), (0.01, False):
        one = add_run(figures(uneven, ranks=2, source="dliosim"), results(waited=waited))
        (insight,) = (each for each in judge(one) if each.insight.name == "uneven-time")
        assert insight.is_met
        assert cure_lines(insight, one)[0].startswith("first give each rank and reader a core, as ranks waited") == said


def test_bytes_out_of_memory_are_not_called_those_of_storage() -> None:
    assert "105 MB of the 210 MB read came from the device; the rest came from memory" in found(results(0.5))[2]
    assert "memory gave" not in found(results(1.0))[2]
    answer = replace(run().answers[0], loop="train", source="memory")
    uncounted = results(None)
    assert "the bytes of train came from memory" in found(replace(uncounted, answers=(answer,)))[2]
    assert "from memory" not in found(replace(uncounted, answers=(replace(answer, source="device"),)))[2]


def test_results_next_to_a_trace_are_read_and_damaged_ones_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "trace.h5", [5, 5])
    for content, cores in ("run", 1), ("{", 0), (None, 0):
        if content == "run":
            write_results(tmp_path, run(), [], [])
        elif content is None:
            (tmp_path / "results.json").unlink()
        else:
            (tmp_path / "results.json").write_text(content)
        assert main(["analyze", "--json", str(tmp_path / "trace.h5")]) == 0
        assert json.loads(capsys.readouterr().out)["job"]["reader_cores"] == cores
