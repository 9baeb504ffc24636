"""Each rule finds a fault that is planted for it in a clean run, and nothing else finds anything in that run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.audit.rules import NOTE, OBJECTION
from dliosim.audit.setup_text import describe_setup
from dliosim.audit.verdict import RULES, Audit, audit_json, audit_results, audit_text
from dliosim.errors import UsageError
from dliosim.report.reader.bundle import write_bundle
from dliosim.report.reader.load import load_results
from tests.audit.sample import Content, load_runs, phase, repetitions, write_runs
from tests.examples import examples
from tests.pictures.sample import write_comparison
from tests.report.reader.test_results import HOSTILE, places_in

Plant = Callable[[list[Content]], object]

PAGE = Path(__file__).parents[2] / "docs/audit.md"
GB = 10**9


def answer(run: Content, **changed: object) -> None:
    """Change the answer of the loop."""
    run["answer"][0].update(changed)


def reason(kind: str, **values: object) -> list[Content]:
    return [{"kind": kind, "values": values}]


def epochs(run: Content, **changed: object) -> None:
    """Change all epochs of the loop."""
    for one in phase(run, "train")["epochs"]:
        one.update(changed)


def uncounted(run: Content, **changed: object) -> None:
    """Let the kernel count no reads of the loop."""
    epochs(run, device_bytes=None)
    why = reason("uncounted", drains=False, amount=1, memory=2)
    answer(run, **{"source": "unknown", "from_storage": False, "reasons": why, **changed})


def restore(run: Content, **changed: object) -> None:
    phase(run, "restore")["files"].update(changed)


def slower(run: Content, times: float) -> None:
    """Let reads make the loop take that many times as long, without any change of what was computed."""
    for one in phase(run, "train")["epochs"]:
        one.update({name: one[name] * times for name in ("seconds", "loop_seconds")}, utilization=0.5)


def without_null(runs: list[Content]) -> None:
    for run in runs:
        epochs(run, null_seconds=None)


def order(runs: list[Content]) -> None:
    """Let the last run read in order, and half as fast."""
    runs[-1]["overrides"] = [["train.shuffle", "off"]]
    runs[-1]["digest"] = "0" * 16
    slower(runs[-1], 2.0)


def rule_of(name: str) -> str:
    [severity] = (one.severity for one in RULES if one.name == name)
    return severity


#: What to change in five clean runs; the first of them has the fault.
FAULTS: dict[str, Plant] = {
    "no-storage": lambda runs: runs[0].update(modelled="small"),
    "partial-run": lambda runs: runs[0].update(partial={"signal": "", "verbs_done": 1, "verbs": 2, "loops": []}),
    "cold-share": lambda runs: (
        epochs(runs[0], device_bytes=GB // 100),
        answer(runs[0], source="mixed", from_storage=False, reasons=reason("partly_cached", most=0.5)),
    ),
    "working-set": lambda runs: uncounted(runs[0]),
    "restore-from-cache": lambda runs: restore(runs[0], device_bytes=1_000_000),
    "fsync-off": lambda runs: phase(runs[0], "save").update(fsync=False),
    "no-verdict": lambda runs: answer(runs[0], verdict="cannot say", reasons=reason("too_short", steps=3, time=0.1)),
    "core-waits": lambda runs: epochs(runs[0], core_wait_seconds={"mean": 0.5, "min": 0.5, "max": 0.5}),
    "few-steps": lambda runs: epochs(runs[0], steps=3),
    "link-speed": lambda runs: runs[0]["environment"]["details"].update({"network links": "100 Mb/s"}),
    "verify-run": lambda runs: runs[0].update(verify=True),
    "expectation-missed": lambda runs: runs[0]["expectations"][0].update(held=False),
    "part-of-model": lambda runs: phase(runs[0], "save").update(part_of="scale 200", whole_times=200.0, whole_ranks=8),
    "hints-refused": lambda runs: phase(runs[0], "train").update(hints_asked={"striping_factor": "8"}),
    "server-cache": lambda runs: answer(runs[0], reasons=reason("server")),
    "few-epochs": lambda runs: answer(runs[0], epochs=[1]),
    "oversleep": lambda runs: epochs(runs[0], oversleep_share=0.04),
    "load-of-cores": lambda runs: runs[0]["environment"].update(ranks_per_node=4),
    "results-place": lambda runs: runs[0]["environment"]["details"].pop("results on"),
    "scale": lambda runs: runs[0].update(overrides=[["scale", "4"]]),
    "few-runs": lambda runs: runs.__delitem__(slice(2, None)),
    "wide-spread": lambda runs: runs[1]["answer"][0]["storage_utilization"].update(mean=0.9, low=0.9),
    "tool-ceiling": lambda runs: epochs(runs[0], utilization=0.5),
    "no-null-run": without_null,
    "random-faster": order,
}


def test_every_rule_of_runs_has_a_planted_fault() -> None:
    assert {*FAULTS, "no-winner"} == {one.name for one in RULES}
    assert len(RULES) == len({one.name for one in RULES})


def test_a_clean_run_is_fit_to_publish(tmp_path: Path) -> None:
    audits = audit_results(load_runs(tmp_path, repetitions()))
    assert [one.verdict for one in audits] == ["fit to publish: no objection, 0 notes"] * 5


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_rule_alone(name: str, tmp_path: Path) -> None:
    runs = repetitions()
    FAULTS[name](runs)
    audit, *_ = audit_results(load_runs(tmp_path, runs))
    found = {one.rule.name for one in audit.findings}
    # Reads that are not counted are a second fault, and a described storage is none that a run could be repeated on.
    assert found == {name, *({"server-cache"} if name == "working-set" else ())} | found & {"few-runs"}
    assert audit.objections == len(found) - sum(rule_of(one) == NOTE for one in found)
    assert all(one.text and one.mend and "{" not in one.mend for one in audit.findings)


def test_what_is_enough_is_not_found(tmp_path: Path) -> None:
    """The other side of bounds: data of 5 times the memory, links that carry the rate, a restore after a drop."""
    runs = repetitions()
    memory = runs[0]["environment"]["whole_memory_per_node"]
    uncounted(runs[0])
    epochs(runs[0], bytes=6 * memory, bytes_moved=6 * memory, distinct_bytes=6 * memory)
    runs[1]["environment"]["details"]["network links"] = "10000 Mb/s"
    restore(runs[2], device_bytes=None)
    epochs(runs[3], steps=11)
    answer(runs[4], epochs=[1, 2, 3], verdict="too close to say")
    found = [[each.rule.name for each in one.findings] for one in audit_results(load_runs(tmp_path, runs))]
    assert found == [["server-cache"], [], [], [], []]


def test_what_the_verdict_already_says_is_one_objection(tmp_path: Path) -> None:
    runs = repetitions()
    FAULTS["core-waits"](runs)
    answer(runs[0], verdict="cannot say", reasons=reason("core_wait", share=0.4, by_ranks=True, by_readers=False))
    FAULTS["few-steps"](runs[1:])
    FAULTS["no-verdict"](runs[1:])
    found = [[each.rule.name for each in one.findings] for one in audit_results(load_runs(tmp_path, runs))]
    assert found == [["no-verdict"], ["no-verdict"], [], [], []]


@pytest.mark.parametrize(
    ("share", "known", "expected"),
    [(0.0, True, []), (0.5, True, ["restore-from-cache"]), (None, False, ["restore-from-cache"])],
)
def test_a_restore_that_is_not_counted_is_judged_by_what_the_page_cache_had(
    share: float | None, known: bool, expected: list[str], tmp_path: Path
) -> None:
    runs = repetitions()
    examined = 20_000_000 if known else 0
    restore(runs[0], device_bytes=None, examined_bytes=examined, resident_bytes=int((share or 0) * examined))
    audit, *_ = audit_results(load_runs(tmp_path, runs))
    assert [one.rule.name for one in audit.findings] == expected


def test_an_unknown_memory_proves_nothing(tmp_path: Path) -> None:
    runs = repetitions()
    uncounted(runs[0])
    for run in runs:
        run["environment"]["whole_memory_per_node"] = 0
    restore(runs[1], device_bytes=None, examined_bytes=0)
    found = [[each.rule.name for each in one.findings] for one in audit_results(load_runs(tmp_path, runs))]
    assert found == [["working-set", "server-cache"], ["restore-from-cache"], [], [], []]


def test_warm_ups_copies_and_interrupted_runs_are_no_repetitions(tmp_path: Path) -> None:
    runs = repetitions(6)
    FAULTS["wide-spread"](runs)  # run-1 would be far from the others
    places = write_runs(tmp_path, runs)
    (tmp_path / "run-1").rename(tmp_path / "warm_up_1")
    places[1] = str(tmp_path / "warm_up_1")
    fit, warmed = "fit to publish: no objection, 0 notes", "not judged: a run to warm up"
    found = audit_results(load_results([*places, places[0]], with_arrays=False))
    assert [one.verdict for one in found] == [fit, warmed, *[fit] * 4, f"not judged: the same run as {places[0]}"]
    bundle = tmp_path / "a.zip"
    write_bundle(bundle, list(map(Path, places)))
    again = audit_results(load_results([str(bundle)], with_arrays=False))
    assert [one.verdict for one in again] == [fit, warmed, *[fit] * 4]
    few = audit_results(load_results([places[0], places[0], places[2], places[1]], with_arrays=False))
    assert [[each.rule.name for each in one.findings] for one in few] == [["few-runs"], [], ["few-runs"], []]
    FAULTS["partial-run"](runs)
    (tmp_path / "run-0/results.json").write_text(json.dumps(runs[0]))
    some = audit_results(load_results([places[0], *places[2:4]], with_arrays=False))
    assert [[each.rule.name for each in one.findings] for one in some] == [["partial-run"], ["few-runs"], ["few-runs"]]


def test_what_to_type_works_on_the_storage_itself(tmp_path: Path) -> None:
    runs = repetitions(1)
    without_null(runs)
    runs[0].update(modelled="small")
    words = ["--storage", "small", "--repeat", "3", "--warm-up", "1", "--null", "--storage=x"]
    runs[0]["arguments"] = ["run", "clean.dlio", *words, "-D", "scale=1"]
    [audit] = audit_results(load_runs(tmp_path, runs))
    [mend] = [one.mend for one in audit.findings if one.rule.name == "no-storage"]
    assert mend == "on the storage itself: dliosim run clean.dlio -D scale=1"
    assert "no-null-run" not in {one.rule.name for one in audit.findings}


def null_of(run: Content) -> Content:
    """The same run without I/O, half as long."""
    slower(run, 0.5)
    for one in phase(run, "train")["epochs"]:
        one.update(utilization=0.99, bytes_per_second=None)
    run.update(null=True)
    answer(run, source="null", from_storage=False, verdict="not a storage result", reasons=reason("nothing_read"))
    return run


def test_a_run_without_io_shows_the_limit_and_is_not_judged_itself(tmp_path: Path) -> None:
    runs = repetitions(6)
    without_null(runs)
    slower(runs[0], 1.0)
    null_of(runs[5])
    first, *_, last = audit_results(load_runs(tmp_path, runs))
    assert first.findings == () and last.verdict == "not judged: shows the limit of the tool"


def test_a_run_without_io_of_other_settings_is_named(tmp_path: Path) -> None:
    runs = repetitions(6)
    without_null(runs)
    null_of(runs[5]).update(digest="0" * 16)
    [finding] = audit_results(load_runs(tmp_path, runs))[0].findings
    assert finding.rule.name == "no-null-run" and "that has these settings" in finding.text


def test_a_run_without_io_alone_is_no_result(tmp_path: Path) -> None:
    [audit] = audit_results(load_runs(tmp_path, [null_of(repetitions(1)[0])]))
    assert [one.rule.name for one in audit.findings] == ["no-storage"]


def test_a_run_as_fast_as_without_io_measured_the_tool(tmp_path: Path) -> None:
    runs = repetitions(6)
    without_null(runs)
    null_of(runs[5])
    slower(runs[0], 0.54)
    found = {one.rule.name for one in audit_results(load_runs(tmp_path, runs))[0].findings}
    assert found == {"tool-ceiling"}


def test_runs_on_another_file_system_are_no_repetitions_but_share_the_run_without_io(tmp_path: Path) -> None:
    runs = repetitions(6)
    without_null(runs)
    for run in runs[3:]:
        run["environment"]["file_systems"][0].update(kind="lustre", directory="/lustre")
        slower(run, 2.0)
        answer(run, storage_utilization={"mean": 0.5, "low": 0.5, "high": 0.5})
    null_of(runs[5])
    found = [[each.rule.name for each in one.findings] for one in audit_results(load_runs(tmp_path, runs))]
    assert found == [[]] * 3 + [["few-runs"]] * 2 + [[]]


COMPARISON: Content = {"details": {"results on": "another file system than the data"}}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"modelled": "small"}, ["no-winner"]),
        ({"answer": {"verdict": "not judged", "use": None}}, ["no-winner"]),
        ({"answer": {"verdict": "cannot say"}}, ["no-winner"]),  # though it has a variant to use
        ({"answer": {"verdict": "use any", "use": None}}, []),
        ({"answer": {"limits": reason("core_wait_included", share=0.2)}}, ["no-winner"]),
    ],
)
def test_a_comparison_needs_an_answer(changed: Content, expected: list[str], tmp_path: Path) -> None:
    write_comparison(tmp_path)
    content = json.loads((tmp_path / "compare.json").read_text())
    content["environment"].update(COMPARISON)
    content["answer"].update({"reasons": reason("few_repetitions", repetitions=2, least=3.0)})
    content["answer"].update(changed.pop("answer", {}))
    (tmp_path / "compare.json").write_text(json.dumps(content | changed))
    [audit] = audit_results(load_results([str(tmp_path)], with_arrays=False))
    assert [one.rule.name for one in audit.findings] == expected


def faulty(place: Path) -> list[Audit]:
    runs = repetitions()
    FAULTS["core-waits"](runs)
    FAULTS["core-waits"](runs[1:])
    FAULTS["scale"](runs)
    return audit_results(load_runs(place, runs))


def test_the_text_says_what_to_type_once_for_all_results_that_share_a_fault(tmp_path: Path) -> None:
    text = audit_text(faulty(tmp_path))
    assert text.splitlines()[0] == f"{tmp_path}/run-0: 1 objection, 1 note"
    assert text.splitlines()[2] == f"{tmp_path}/run-2: fit to publish: no objection, 0 notes"
    assert re.findall(r"^(\w+: [\w-]+) \(.*?(\d) results?", text, re.MULTILINE) == [
        ("objection: core-waits", "2"),
        ("note: scale", "1"),
    ]
    assert text.count("reader: dliosim run clean.dlio --dir /scratch/data\n") == 1


def test_the_json_has_every_finding_with_its_source(tmp_path: Path) -> None:
    content = json.loads(audit_json(faulty(tmp_path)[0]))
    assert content["objections"] == 1
    assert [(one["name"], one["severity"]) for one in content["findings"]] == [
        ("core-waits", OBJECTION),
        ("scale", NOTE),
    ]
    assert all(one["source"] and one["text"] and one["mend"] for one in content["findings"])


def test_a_hostile_text_of_the_link_speed_is_no_speed(tmp_path: Path) -> None:
    runs = repetitions()
    runs[0]["environment"]["details"]["network links"] = "inf 9e999"
    places = write_runs(tmp_path, runs)
    assert audit_results(load_results(places, with_arrays=False))[0].findings == ()


@settings(max_examples=examples(400))
@given(data=st.data())
def test_any_one_value_of_the_results_is_judged_or_refused(data: st.DataObject) -> None:
    runs = repetitions(2)
    holder, key = data.draw(st.sampled_from(list(places_in(runs[0]))))
    holder[key] = data.draw(HOSTILE)
    with TemporaryDirectory() as place, suppress(UsageError):
        results = load_runs(Path(place), runs)
        assert audit_text(audit_results(results)).startswith(f"{place}/run-0: ")
        assert "".join(map(audit_json, audit_results(results))).count("\n") == 2
        assert describe_setup(results[:1])


def test_the_page_lists_all_rules() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    written = [(one.name, (one.check.__doc__ or "").removeprefix("Find ").rstrip("."), one.source) for one in RULES]
    assert rows == written, "\n".join(f"| `{name}` | {finds} | {source} |" for name, finds, source in written)
