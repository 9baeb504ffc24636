"""`dliosim report` without pictures: the table, and what it can do without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dliosim.cli import main
from dliosim.errors import UsageError
from dliosim.measure.figures import aggregate
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import SavePhase, Spread
from dliosim.readable import number, percent
from dliosim.report.files.results import results_content
from dliosim.report.reader.load import SavedRun, load_results
from dliosim.report.side_by_side import format_side_by_side, warnings_of_runs
from dliosim.report.text_table import WIDTH
from tests.pictures.sample import comparison, write_comparison, write_run
from tests.report.sample import epoch, flushed, run, spread

REPOSITORY = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("side_by_side.txt")


def written(place: Path) -> list[str]:
    write_run(place / "one-rank", ranks=1, steps=8, epochs=3)
    crowded = replace(run().environment, ranks_per_node=4, cores_per_node=2)
    write_run(place / "crowded", ranks=4, steps=8, epochs=3, environment=crowded, core_wait=0.02)
    write_comparison(place / "methods")
    return [str(place / name) for name in ("one-rank", "crowded", "methods")]


def test_the_tables_are_the_golden_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert format_side_by_side(load_results(written(Path()), with_arrays=False)) == GOLDEN.read_text()


def test_a_warning_that_runs_share_is_said_once_with_their_names_and_the_figures_that_differ() -> None:
    slept = [
        run(phases=(LoopPhase("train", "train", 1.0, epochs=(epoch(0, oversleep_share=each),)),)) for each in SLEPT
    ]
    runs = [SavedRun(f"run {i}", "", one, (), ()) for i, one in enumerate(slept)]
    (line,) = [one for one in warnings_of_runs(runs) if "longer than asked" in one]
    assert line.startswith("train: compute took up to ... longer than asked: ")
    assert line.endswith("does not. In run 0 (2.00 %); run 2 (30.0 %)")
    (line,) = [one for one in warnings_of_runs([runs[2], runs[2]]) if "longer than asked" in one]
    assert line.startswith("train: compute took up to 30.0 % longer") and line.endswith("does not. In all 2 results")
    (line,) = [one for one in warnings_of_runs(runs[2:]) if "longer than asked" in one]
    assert line.endswith("does not")


SLEPT = (0.02, 0.0, 0.3)


@pytest.mark.parametrize("kind", ["batch", "request"])
def test_latencies_are_those_of_all_epochs_that_count_together(tmp_path: Path, kind: str) -> None:
    """99 of 100 latencies of the last epoch are short, but most of one before it are long: the p99 of all is long."""
    many, few = [1_000_000] * 990 + [2_000_000] * 10, [1_000_000] * 10 + [50_000_000] * 90
    histograms = [Histogram([9_000_000_000] * 7), Histogram(few), Histogram(many), Histogram(many)]
    epochs = tuple(epoch(i, **{f"{kind}_latency": one}) for i, one in enumerate(histograms))
    # Of two runs of a loop epochs count on.
    phases = tuple(LoopPhase("train", "train", 1.0, epochs=some) for some in (epochs[:2], epochs[2:]))
    answers = (replace(run().answers[0], epochs=(2, 3, 4)),)
    (tmp_path / "results.json").write_text(json.dumps(results_content(replace(run(phases=phases), answers=answers))))
    (one,) = load_results([str(tmp_path)], with_arrays=False)
    assert row_of(format_side_by_side([one]), f"{kind} p99") == ["50.0 ms"]


def test_saves_have_rows_of_how_long_they_held_ranks_and_were_flushed(tmp_path: Path) -> None:
    background = SavePhase("state", "save", 0.9, verb=flushed(0.02, 0.88), within="train")
    write_run(tmp_path / "background", ranks=1, steps=8, epochs=3)
    (one,) = load_results([str(tmp_path / "background")], with_arrays=False)
    assert isinstance(one, SavedRun)
    text = format_side_by_side([replace(one, run=replace(one.run, phases=(*one.run.phases, background)))])
    assert row_of(text, "stall of state") == ["20.0 ms"]
    assert row_of(text, "flush of state") == ["880 ms"]
    assert "flush of model" not in text
    assert "stall of model" not in text  # it is the time of the save, which the table of files has
    assert "stall of" not in format_side_by_side([replace(one, run=replace(one.run, phases=(), answers=()))])


def test_only_blocking_saves_of_the_same_job_stand_next_to_background_saves(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ranks=1, steps=8, epochs=3)
    (one,) = load_results([str(tmp_path / "run")], with_arrays=False)
    assert isinstance(one, SavedRun)
    in_background = SavePhase("state", "save", 0.9, verb=flushed(0.02, 0.88), within="train")
    blocking = SavePhase("state", "save", 0.9, verb=flushed(0.9, 0.0), within="train")
    job, same, other = (
        replace(one, run=replace(one.run, name=name, phases=(*one.run.phases, save)))
        for name, save in (("job", in_background), ("job", blocking), ("other", blocking))
    )
    assert row_of(format_side_by_side([job, same]), "stall of state") == ["20.0 ms", "900 ms"]
    assert row_of(format_side_by_side([job, same]), "flush of state") == ["880 ms", "-"]
    assert "900 ms" not in " ".join(row_of(format_side_by_side([job, other]), "stall of state"))


def test_a_comparison_has_a_column_of_decoding_where_a_variant_did_any(tmp_path: Path) -> None:
    assert "proces-" not in shown_of(tmp_path, comparison())
    found = comparison()
    found["variants"][1]["processing_share"] = 0.125
    assert "proces-" in shown_of(tmp_path, found) and "12.5" in shown_of(tmp_path, found)


def shown_of(place: Path, content: dict[str, Any]) -> str:
    (place / "compare.json").write_text(json.dumps(content))
    return format_side_by_side(load_results([str(place)], with_arrays=False))


def test_decoding_has_rows_where_there_was_any(tmp_path: Path) -> None:
    plain = written(tmp_path)[:1]
    assert "processing" not in format_side_by_side(load_results(plain, with_arrays=False))
    (one,) = load_results(plain, with_arrays=False)
    assert isinstance(one, SavedRun)
    (loop,) = one.loops
    half = spread(0.5 * (loop.epochs[1].io_busy_seconds.mean))
    epochs = [replace(each, decode_seconds=half, depth=1.0) for each in loop.epochs]
    read_ahead = replace(loop, epochs=tuple(epochs), phases=(replace(loop.phases[0], readers=1),))
    text = format_side_by_side([replace(one, loops=(read_ahead,))])
    assert row_of(text, "readers' time decoding") == ["33.3 %"]
    inline = [replace(each, processing_seconds=each.compute_seconds) for each in loop.epochs]
    text = format_side_by_side([replace(one, loops=(replace(loop, epochs=tuple(inline)),))])
    assert row_of(text, "time in processing") == row_of(text, "time in compute")


def test_no_line_is_wider_than_a_terminal_and_every_result_has_its_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = []
    for index in range(9):
        given.append(f"a-result-with-quite-a-long-name-{index}")
        write_run(Path(given[-1]), ranks=1, steps=2, epochs=1)
    text = format_side_by_side(load_results(given, with_arrays=False))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert all(f"#{index + 1}" in text for index in range(9))


def row_of(text: str, name: str) -> list[str]:
    """The cells of the first row of that name."""
    line = next(line for line in text.splitlines() if line.startswith(f"{name}  "))
    return re.split(" {2,}", line.strip())[1:]


def shown(place: Path, *names: str) -> str:
    return format_side_by_side(load_results([str(place / name) for name in names], with_arrays=False))


def test_overrides_and_patterns_that_differ_have_rows(tmp_path: Path) -> None:
    pattern = 'dlio 1\nworkload w "w"\n# a comment\ntrain:\n  readers {}\n'
    for name, readers, overrides in (
        ("a", 0, (("files", "64"), ("epochs", "2"))),
        ("b", 4, (("files", "100"), ("epochs", "2"))),
        ("c", 4, (("epochs", "2"),)),
    ):
        write_run(tmp_path / name, 1, 2, 1, overrides=overrides, pattern=pattern.format(readers))
    text = shown(tmp_path, "a", "b", "c")
    assert row_of(text, "pattern") == ["A", "B", "B"]
    assert row_of(text, "-D files") == ["64", "100", "-"]
    assert row_of(text, "readers 0") == ["yes", "-", "-"]
    assert row_of(text, "readers 4") == ["-", "yes", "yes"]
    assert "-D epochs" not in text
    equal = shown(tmp_path, "b", "b")
    assert "\npattern " not in equal
    assert "-D" not in equal


def test_variants_with_long_labels_have_numbers_and_a_legend(tmp_path: Path) -> None:
    content = comparison()
    for index, one in enumerate(content["variants"]):
        one["label"] = f"api=mpi-collective, hints=two-phase, {index + 1} aggregators, buffer 16 MiB"
    content["reference"] = content["variants"][0]["label"]
    write_comparison(tmp_path / "cmp", **content)
    text = shown(tmp_path, "cmp")
    assert "\n\n(1) api=mpi-collective, hints=two-phase, 1 aggregators, buffer 16 MiB\n(2) api=" in text
    assert row_of(text, "(1)")[-1] == "reference"
    assert row_of(text, "(5)")[-1] == "faster"


def test_the_directory_of_each_label_stands_above_the_tables(tmp_path: Path) -> None:
    for ranks in (1, 2):
        write_run(tmp_path / f"on-{ranks}", ranks, 2, 1)
    text = shown(tmp_path, "on-1", "on-2")
    places = f"cosmoflow, 1 rank: {tmp_path / 'on-1'}\ncosmoflow, 2 ranks: {tmp_path / 'on-2'}\n"
    assert text.startswith(f"{places}\ncosmoflow, 1 rank:\ncosmoflow  ")
    assert row_of(text, "workload") == ["cosmoflow", "cosmoflow"]
    assert shown(tmp_path, "on-1").startswith("cosmoflow  1 rank on 1 node")


def test_a_loop_has_its_answer_and_rows_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "a", ranks=2, steps=8, epochs=3)
    (one,) = load_results([str(tmp_path / "a")], with_arrays=False)
    assert isinstance(one, SavedRun)
    (loop,) = one.loops
    assert loop.answer is not None
    rates = {"needs_bytes_per_second": Spread(2.91e9, 2e9, 3e9), "got_bytes_per_second": Spread(1.97e9, 1e9, 2e9)}
    answer = replace(loop.answer, verdict="does not feed", source="device", epochs=(1,), **rates)
    text = format_side_by_side([replace(one, loops=(replace(loop, answer=answer),))])
    assert row_of(text, "answer") == ["does not feed"]
    assert row_of(text, "needs") == ["2.91 GB/s"]
    assert row_of(text, "got") == ["1.97 GB/s"]
    assert row_of(text, "from") == ["device"]
    assert row_of(text, "most steps' last rank spent most in") == ["reads, 75 % of steps"]
    assert "bound by" not in text
    assert row_of(text, "epochs that count") == ["1"]
    first = loop.epochs[:1]
    assert row_of(text, "GB/s asked with all waits") == [number(aggregate.bytes_per_second(first) * 1e-9)]
    assert row_of(text, "utilization with all waits") == [percent(aggregate.utilization(first), 3)]
    assert row_of(text, "time in data wait") == [percent(aggregate.time_shares(first)["data wait"], 3)]
    assert "moved / asked" not in text
    assert "more ranks than cores" not in text
    moved = tuple(replace(each, bytes_moved=2 * each.bytes) for each in loop.epochs)
    assert row_of(format_side_by_side([replace(one, loops=(replace(loop, epochs=moved),))]), "moved / asked") == [
        "2.000"
    ]


def test_rates_are_all_bytes_by_all_time_and_waits_for_cores_have_a_row_and_no_mark(tmp_path: Path) -> None:
    text = shown(Path(written(tmp_path)[0]).parent, "one-rank", "crowded")
    (found,) = load_results([str(tmp_path / "one-rank")], with_arrays=False)
    assert isinstance(found, SavedRun)
    counted = found.loops[0].answer_epochs
    rate = sum(epoch.bytes for epoch in counted) / sum(epoch.loop_seconds for epoch in counted)
    assert row_of(text, "GB/s asked with all waits")[0] == number(rate * 1e-9)
    assert "over the epochs that count for the answer" in " ".join(text.split())
    assert all(cell.endswith("%") for cell in row_of(text, "of these waiting for a core"))
    assert "?" not in text


def test_a_result_without_a_loop_has_no_column_in_its_table(tmp_path: Path) -> None:
    write_run(tmp_path / "a", ranks=1, steps=2, epochs=1)
    write_run(tmp_path / "b", ranks=1, steps=2, epochs=1)
    path = tmp_path / "b" / "results.json"
    path.write_text(
        path.read_text()
        .replace('"kind": "train"', '"kind": "infer"')
        .replace('"name": "train"', '"name": ""')
        .replace('"title": "train"', '"title": "infer"')
        .replace('"loop": "train"', '"loop": ""')
    )
    text = format_side_by_side(load_results([str(tmp_path / "a"), str(tmp_path / "b")], with_arrays=False))
    train, infer = text.split("train: over the")[1].split("infer: over the")
    rows = [row_of(part, "samples/s with all waits") for part in (train, infer)]
    assert [len(row) for row in rows] == [1, 1]
    assert "-" not in rows[0] + rows[1]


def python(code: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True)


def test_neither_table_nor_page_import_mpi(tmp_path: Path) -> None:
    # On a new machine matplotlib makes a list of fonts first, and says so on standard error where that takes long.
    pytest.importorskip("matplotlib.font_manager")
    write_run(tmp_path / "a", ranks=1, steps=2, epochs=1)
    code = (
        "import sys; from dliosim.cli import main; sys.modules['mpi4py'] = None\n"
        "status = main(['report', 'a']) + main(['report', 'a', '--html', 'a.html'])\n"
        "sys.exit(status or 'matplotlib.pyplot' in sys.modules)"
    )
    done = python(code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_matplotlib_the_table_works_and_pictures_say_what_to_install(tmp_path: Path) -> None:
    write_run(tmp_path / "a", ranks=1, steps=2, epochs=1)
    code = "import sys; from dliosim.cli import main; sys.modules['matplotlib'] = None; sys.exit(main({}))"
    assert "samples/s with all waits" in python(code.format("['report', 'a']"), cwd=tmp_path).stdout
    for option in ("'--html', 'a.html'", "'--png', 'out'"):
        done = python(code.format(f"['report', 'a', {option}]"), cwd=tmp_path)
        assert done.returncode == 2
        assert "pip install '.[report]'" in done.stderr
        assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_page_is_never_written_over_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, ranks=1, steps=2, epochs=1)
    before = (tmp_path / "results.json").read_bytes()
    assert main(["report", str(tmp_path), "--html", str(tmp_path / "results.json")]) == UsageError.exit_code
    assert "name a file that ends in .html" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_bytes() == before


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "a", ranks=1, steps=2, epochs=1)
    code = "import sys; from dliosim.cli import main; sys.exit(main(['report', 'a', '--html', 'nowhere/a.html']))"
    done = python(code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "error: nowhere/a.html cannot be written: No such file or directory\n")


def test_broken_results_are_an_error_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text('{"schema_version": "1"}')
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'results.json'}: schema_version is not a whole number\n"


def test_a_page_for_which_there_is_no_room_leaves_the_one_before(tmp_path: Path) -> None:
    write_run(tmp_path / "a", ranks=1, steps=2, epochs=1)
    (tmp_path / "a.html").write_text("the page before")
    code = (
        "import resource, sys; from dliosim.cli import main; import matplotlib.font_manager\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "sys.exit(main(['report', 'a', '--html', 'a.html']))"
    )
    done = python(code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "error: a.html cannot be written: File too large\n")
    assert (tmp_path / "a.html").read_text() == "the page before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.html"]
