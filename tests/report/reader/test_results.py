"""results.json and compare.json read back, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.boundedjson import LARGEST
from dliosim.errors import UsageError
from dliosim.measure.figures import aggregate
from dliosim.measure.results.phase import LoopPhase, LoopProgress, PartialProgress
from dliosim.measure.results.run_summary import RunSummary, select_epochs
from dliosim.report.compare.results import comparison_content
from dliosim.report.files.results import results_content, write_partial
from dliosim.report.phase_titles import title_of
from dliosim.report.reader.load import SavedComparison, SavedRun, label_results, load_results
from dliosim.report.reader.results import ComparisonResult, read_comparison, read_run
from dliosim.report.reader.typed_json import read_json
from dliosim.report.run.warnings import warnings_of
from dliosim.report.side_by_side import format_side_by_side
from tests.compare.sample import answered
from tests.compare.stall_sample import saves, stalled
from tests.examples import examples
from tests.pictures.sample import comparison, write_comparison, write_run
from tests.report.sample import run

Content = dict[str, Any]


def saved(path: Path, content: Content) -> Path:
    file = path / "results.json"
    file.write_text(json.dumps(content))
    return file


def test_a_run_read_back_writes_the_same_results_but_for_latencies_of_several_epochs(tmp_path: Path) -> None:
    written = results_content(run())
    found, latencies = read_run(saved(tmp_path, written))
    again = results_content(found)
    for content in (written, again):
        del content["loops"]
    assert again == written
    loop, answer = run().phases[4], run().answers[0]
    assert list(latencies) == [title_of(phase) for phase in run().loops]
    assert latencies[title_of(loop)] == aggregate.latencies(select_epochs(loop.epochs, answer))


def test_readers_are_threads_in_results_that_do_not_say_what_they_are(tmp_path: Path) -> None:
    content = results_content(run())
    del content["phases"][4]["reader_processes"]
    assert not read_run(saved(tmp_path, content))[0].loops[0].reader_processes
    content["phases"][4]["reader_processes"] = True
    assert read_run(saved(tmp_path, content))[0].loops[0].reader_processes
    content["phases"][4]["reader_processes"] = 1
    with pytest.raises(UsageError, match=r"phases\[4\].reader_processes is not true or false"):
        read_run(saved(tmp_path, content))


@pytest.mark.parametrize(
    ("signal", "when"), [("SIGTERM", "when SIGTERM arrived"), ("", "when it was last written, before the run ended")]
)
def test_partial_results_are_read_back_and_say_what_they_have(tmp_path: Path, signal: str, when: str) -> None:
    loops = (LoopProgress("train", 3, 5), LoopProgress("evaluate", 1, None))
    ended = replace(run(), answers=(), partial=PartialProgress(signal, 2, 4, loops))
    write_partial(lambda: tmp_path, ended)
    (found,) = load_results([str(tmp_path)], with_arrays=True)
    assert isinstance(found, SavedRun) and found.run.partial == ended.partial
    assert warnings_of(found.run)[0] == (
        "these are partial results: 2 of 4 verbs, 3 of 5 epochs of train, 1 epoch of evaluate were done "
        f"{when}; later work is not included"
    )
    assert "\nepochs that count" not in format_side_by_side([found])
    saved(tmp_path, results_content(run()))
    (whole,) = load_results([str(tmp_path)], with_arrays=False)
    assert isinstance(whole, SavedRun) and whole.run.partial is None
    (tmp_path / "results.json").rename(tmp_path / "results.partial.json")
    with pytest.raises(UsageError, match="does not say how much of the run it has"):
        load_results([str(tmp_path)], with_arrays=False)


def test_results_of_another_version_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """Also those whose figures are others."""
    other = results_content(run()) | {"schema_version": 1, "phases": [{"name": "train"}]}
    with pytest.raises(UsageError) as found:
        read_run(saved(tmp_path, other))
    assert found.value.message == (
        f"{tmp_path / 'results.json'}: schema_version is 1, and this dliosim reads 10: make the results again with "
        "this dliosim, or read them with the one whose `dliosim_version` they have"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.pop("ranks"), "ranks is missing"),
        (lambda one: one.update(ranks=0), "ranks is not between 1 and"),
        (lambda one: one.update(ranks=True), "ranks is not a whole number"),
        (lambda one: one.update(ranks=1 << 80), "ranks is not between 0 and"),
        (lambda one: one.update(ranks=1 << 40), "ranks is not between 1 and 4194304"),
        (lambda one: one.update(nodes=5), "nodes is not between 1 and 4"),
        (lambda one: one.update(schema_version=1), "schema_version is 1, and this dliosim reads 10"),
        (lambda one: one.update(seconds=-1), "seconds is not between 0 and"),
        (lambda one: one.update(seconds=10**400), "seconds is not between 0 and"),
        (lambda one: one.update(null="no"), "null is not true or false"),
        (lambda one: one.update(phases={}), "phases is not a list"),
        (lambda one: one.update(phases=[3]), "phases[0] is not an object"),
        (lambda one: one.update(name="n" * 10_001), "name is longer than 10000 characters"),
        (lambda one: one.update(overrides=[["a"]]), "overrides[0] does not have 2 values"),
        (lambda one: one.update(arguments=["a", 3]), "arguments[1] is not a text"),
        (
            lambda one: one["phases"][4]["epochs"][1].update(bytes=1.5),
            "phases[4].epochs[1].bytes is not a whole number",
        ),
        (
            lambda one: one["phases"][4]["epochs"][0]["tool_seconds"].pop("max"),
            "phases[4].epochs[0].tool_seconds.max is missing",
        ),
        (lambda one: one["phases"][4]["epochs"][0].update(order_hash="-1"), "order_hash is not 16 hexadecimal digits"),
        (lambda one: one["loops"].pop(), "loops does not have evaluate universe"),
        (lambda one: one["answer"].pop(), "answer does not have one entry a loop"),
        (lambda one: one["answer"][0].update(source="heaven"), "answer has a source or an epoch that train does not"),
        (lambda one: one["answer"][0].update(epochs=[6]), "answer has a source or an epoch that train does not"),
        (lambda one: one["answer"][0].update(goal="high"), "answer[0].goal is not a number"),
        (lambda one: one["environment"].update(details={"a": []}), "environment.details.a is not a text"),
        (lambda one: one.update(mtbf_seconds=0), "mtbf_seconds is not above 0"),
        (lambda one: one.update(mtbf_seconds="4 h"), "mtbf_seconds is not a number"),
        (lambda one: one.update(restart_seconds=1e30), "restart_seconds is not between 0 and"),
        (lambda one: one["phases"][4].update(kind="trian"), "phases[4].kind is not known: trian"),
        (lambda one: one["phases"][1].update(within=["train"]), "phases[1].within is not a text"),
        (lambda one: one["phases"][1].update(fsync=1), "phases[1].fsync is not true or false"),
        (lambda one: one["phases"][1].update(commit="c" * 10_001), "commit is longer than 10000 characters"),
        (
            lambda one: one["phases"][1]["files"]["stall_seconds"].update(max="soon"),
            "phases[1].files.stall_seconds.max is not a number",
        ),
        (lambda one: one["phases"][1]["files"].update(drain_bytes=-1), "files.drain_bytes is not between 0 and"),
        (lambda one: one["phases"][4]["epochs"][4].update(flush_steps=0.5), "flush_steps is not a whole number"),
        (
            lambda one: one["phases"][4]["epochs"][4].update(clear_step_seconds=-1),
            "clear_step_seconds is not between 0 and",
        ),
    ],
)
def test_a_wrong_value_is_named_by_file_and_key(tmp_path: Path, change: Callable[[Content], object], said: str) -> None:
    content = json.loads(json.dumps(results_content(run())))
    change(content)
    with pytest.raises(UsageError) as found:
        read_run(saved(tmp_path, content))
    assert f"{tmp_path / 'results.json'}: " in str(found.value)
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ('{"seconds": NaN}', "is not JSON: NaN is no number of JSON"),
        ("[" * 100_000, "is not JSON: nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "is not JSON"),
        ("[1]", "does not hold an object"),
        ("\xff", "is not JSON"),
    ],
)
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"results\.json") as found:
        read_json(path)
    assert said in str(found.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with path.open("wb") as stream:
        stream.truncate(LARGEST + 1)
    with pytest.raises(UsageError, match=f"has {LARGEST + 1} bytes, and dliosim writes none above"):
        read_json(path)


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "results.json")
    with pytest.raises(UsageError, match="is not a file"):
        load_results([str(tmp_path)], with_arrays=False)


def message(given: Path) -> str:
    with pytest.raises(UsageError) as found:
        load_results([str(given)], with_arrays=False)
    return str(found.value)


def test_what_is_no_directory_of_results_says_what_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"{tmp_path} has neither results.json nor compare.json: name a directory" in message(tmp_path)
    assert f"{tmp_path / 'nowhere'}: there is no such directory: " in message(tmp_path / "nowhere")
    assert "`mpiexec -n 4 dliosim run cosmoflow` writes one" in message(tmp_path)
    (tmp_path / "file").touch()
    assert f"{tmp_path / 'file'} is a file: name a directory that" in message(tmp_path / "file")


def test_directories_with_results_below_the_one_named_are_suggested(tmp_path: Path) -> None:
    write_run(tmp_path / "on-2", ranks=1, steps=2, epochs=1)
    write_comparison(tmp_path / "methods")
    (tmp_path / "logs").mkdir()
    assert f"but 2 directories in it (methods, on-2): name {tmp_path}/*/" in message(tmp_path)
    (tmp_path / "run_1").mkdir()
    (tmp_path / "run_1/results.json").write_text("{}")
    assert f"name {tmp_path}/run_*/" in message(tmp_path)


def test_a_file_of_results_leads_to_its_directory(tmp_path: Path) -> None:
    write_comparison(tmp_path / "out")
    said = f"{tmp_path / 'out' / 'compare.json'} is a file: name its directory, {tmp_path / 'out'}"
    assert message(tmp_path / "out" / "compare.json").endswith(said)


def test_texts_lose_what_would_move_a_cursor_or_break_svg(tmp_path: Path) -> None:
    content = {**results_content(run()), "name": "a\x1b[2Jb\u202ec\ud800", "pattern": "one\ntwo\x07"}
    found, _ = read_run(saved(tmp_path, content))
    assert found.name == "a\ufffd[2Jb\ufffdc\ufffd"
    assert found.pattern == "one\ntwo\ufffd"


def labels_of(*runs: RunSummary | ComparisonResult) -> list[str]:
    return label_results(runs, [f"place/{i}" for i in range(len(runs))])


def test_labels_are_the_workload_and_what_differs() -> None:
    one = run()
    assert labels_of(one) == ["cosmoflow"]
    assert labels_of(one, replace(one, name="unet3d", ranks=8)) == ["cosmoflow", "unet3d"]
    changed = replace(one, ranks=8, overrides=(("epochs", "5"), ("train.readers", "8 by batch")))
    assert labels_of(one, changed) == ["cosmoflow, 4 ranks", "cosmoflow, 8 ranks, train.readers=8 by batch"]
    collective = tuple(replace(phase, api="mpi-collective") for phase in one.loops[:1])
    expected = ["cosmoflow, posix, mpi-independent", "cosmoflow, mpi-collective"]
    assert labels_of(one, replace(one, phases=collective)) == expected
    shared = one.pattern + "layout shared file\n"
    assert labels_of(one, replace(one, pattern=shared)) == ["cosmoflow", "cosmoflow, layout shared file"]
    other = "".join(f"{line}\n" for line in "abcdefghijklmnopqrstuvwxyz" * 2)
    assert labels_of(one, replace(one, pattern=other)) == ["cosmoflow, pattern A", "cosmoflow, pattern B"]


def test_labels_have_all_that_differs_and_an_api_once() -> None:
    api = [replace(phase, api="mpi-collective") if isinstance(phase, LoopPhase) else phase for phase in run().phases]
    given = tuple((name, "mpi-collective and more") for name in ("first.setting", "second.setting", "third.setting"))
    other = run(phases=tuple(api), overrides=(*given, ("api", "mpi-collective")))
    long = ", ".join("=".join(pair) for pair in given)
    assert labels_of(run(), other)[1] == f"cosmoflow, mpi-collective, {long}"


def test_labels_of_equal_runs_have_the_time_of_their_start_and_are_all_different() -> None:
    one = run()
    again = replace(one, started="2025-01-02T04:00:00+00:00")
    assert labels_of(one, again) == ["cosmoflow, 2025-01-02 03:04:05", "cosmoflow, 2025-01-02 04:00:00"]
    assert labels_of(one, one) == ["cosmoflow, 2025-01-02 03:04:05 #1", "cosmoflow, 2025-01-02 03:04:05 #2"]
    long = replace(one, name="n" * 200)
    assert labels_of(long, replace(long, ranks=2)) == [f"{'n' * 37}..., 4 ranks", f"{'n' * 37}..., 2 ranks"]
    assert all(len(label) <= 240 for label in labels_of(one, replace(one, overrides=(("files", "9" * 300),))))


def test_labels_of_comparisons_say_what_was_compared(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_comparison(tmp_path / name)
    write_run(tmp_path / "run", ranks=1, steps=2, epochs=1)
    given = [str(tmp_path / name) for name in ("a", "b", "run")]
    what = "resnet50: variants of loop train main"
    assert [one.label for one in load_results(given, with_arrays=False)] == [
        f"{what}, {given[0]}",
        f"{what}, {given[1]}",
        "cosmoflow",
    ]


def test_a_comparison_is_read_with_its_variants(tmp_path: Path) -> None:
    write_comparison(tmp_path)
    (found,) = load_results([str(tmp_path)], with_arrays=True)
    assert isinstance(found, SavedComparison)
    last = found.comparison.variants[-1]
    assert (last.ratio, last.ratio_low, last.ratio_high, last.verdict) == (1.62, 1.44, 1.81, "faster")
    assert last.settings == (("api", "mpi-collective"), ("layout", "shared file"))
    assert found.comparison.not_run[0].label == "api=mpi-collective, layout=file per sample"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "better"}, "variants[1].verdict is none of faster"),
        ({"ratio": 0.0}, "variants[1].ratio is below 1e-09"),
        ({"ratio_low": 0.9}, "variants[1].ratio is not between ratio_low and ratio_high"),
    ],
)
def test_a_wrong_variant_is_named(tmp_path: Path, change: Content, said: str) -> None:
    content = comparison()
    content["variants"][1].update(change)
    (tmp_path / "compare.json").write_text(json.dumps(content))
    with pytest.raises(UsageError) as found:
        read_comparison(tmp_path / "compare.json")
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ranks": 0}, "ranks is not between 1 and 4194304"),
        ({"ranks": 1 << 40}, "ranks is not between 1 and 4194304"),
        ({"nodes": 5}, "nodes is not between 1 and 4"),
        ({"repetitions": 2.5}, "repetitions is not a whole number"),
    ],
)
def test_counts_of_a_comparison_that_no_job_has_are_refused(tmp_path: Path, change: Content, said: str) -> None:
    (tmp_path / "compare.json").write_text(json.dumps(comparison(**change)))
    with pytest.raises(UsageError) as found:
        read_comparison(tmp_path / "compare.json")
    assert found.value.message == f"{tmp_path / 'compare.json'}: {said}"


@pytest.mark.parametrize("calls", [1e24, 0.5, 1 << 63])
def test_counts_of_calls_of_a_save_are_whole_numbers(tmp_path: Path, calls: float) -> None:
    content = comparison_content(*answered(saves(stalled((1.0, 2.0)))))
    file = saved(tmp_path, content)
    assert read_comparison(file).variants[1].figures["calls"] == 240
    content["variants"][1]["calls"] = calls
    with pytest.raises(UsageError, match=r"variants\[1\]\.calls is not "):
        read_comparison(saved(tmp_path, content))


def test_epochs_of_all_runs_of_a_loop_count_on(tmp_path: Path) -> None:
    whole = run()
    evaluate = whole.phases[5]
    saved(tmp_path, results_content(run(phases=(evaluate, whole.phases[4], evaluate))))
    (found,) = load_results([str(tmp_path)], with_arrays=True)
    assert isinstance(found, SavedRun)
    assert [loop.title for loop in found.loops] == ["evaluate universe", "train"]
    assert [epoch.epoch for epoch in found.loops[0].epochs] == [1, 2]
    assert found.missing == ("ranks.h5", "timeline.h5")


def places_in(value: object) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a JSON value with each key or index in it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places_in(value[key])  # type: ignore[index]


HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=9),
    st.sampled_from([2**63, -1, 0, 10**400, 1e300, [], {}, [[]], [{}], {"a": {}}]),
)  # fmt: skip


@settings(max_examples=examples(400))
@given(st.sampled_from(["results.json", "compare.json"]), st.data())
def test_whatever_one_value_is_a_file_is_shown_or_refused_by_name(name: str, data: st.DataObject) -> None:
    """Tables can show all that the reader accepts."""
    content = json.loads(json.dumps(results_content(run()) if name == "results.json" else comparison()))
    inside, key = data.draw(st.sampled_from(list(places_in(content))))
    if isinstance(inside, dict) and data.draw(st.booleans()):
        del inside[key]
    else:
        inside[key] = data.draw(HOSTILE)
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(json.dumps(content))
        try:
            shown = format_side_by_side(load_results([folder], with_arrays=False))
        except UsageError as error:
            assert error.message.startswith(f"{Path(folder) / name}: ")
        else:
            assert shown
