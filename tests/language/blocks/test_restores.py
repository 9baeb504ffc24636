"""`each once`: the number of checkpoints is that of the saves above, whatever saves them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.language.unparse import explain_pattern
from dliosim.model import Job, Repeat, Restore, Save
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.forecast.forecast import forecast

HEAD = """dlio 1
workload each
dataset d {
    samples  40
    size     1 kB
    path     "d"
}
checkpoint c {
    part     w 1 MB total
    path     "c"
}
prepare d
"""

LOOP = "train {\nread d\nbatch 2 per rank\n"

#: Verbs, and how often each saves `c` in a job of two ranks: an epoch has 10 steps.
SAVING = {
    "save c": 1,
    "save c\nsave c": 2,
    "pause 1 s": 0,
    f"{LOOP}epochs 5\ncheckpoint c every 2 epochs from 1\n}}": 3,
    "train {\nsteps 7\nepochs 2\ncheckpoint c every 3 steps\n}": 4,
    f"{LOOP}epochs 2\ncheckpoint c every 4 steps\ncheckpoint c at end\n}}": 5,
}


def restores(place: Path, verbs: str) -> list[Restore]:
    place.write_text(HEAD + verbs)
    verb_list = compile_pattern(place, [], Job(2))[0].verbs
    return [verb for verb, _ in flatten_verbs(verb_list) if isinstance(verb, Restore)]


@given(st.lists(st.tuples(st.sampled_from(list(SAVING)), st.integers(1, 4), st.integers(1, 3)), max_size=4))
def test_each_once_counts_what_is_saved_above_it(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[str, int, int]]
) -> None:
    place = tmp_path_factory.getbasetemp() / "each.dlio"
    text, saved = "save c\n", 1
    for verbs, times, outer in drawn:
        text += f"repeat {outer} {{\nrepeat {times} {{\n{verbs}\n}}\n}}\n"
        saved += SAVING[verbs] * times * outer
    found = restores(place, text + "restore c each once\nsave c\nrestore c each of 1 once\nrestore c\n")
    assert [verb.each for verb in found] == [saved, 1, 0]
    place.write_text(HEAD + text + "repeat 2 {\n    restore c each once\n}\n")
    workload = compile_pattern(place, [], Job(2))[0]
    (planned,) = (phase for phase in forecast(workload).phases if phase.verb == "restore")
    assert (planned.times, planned.bytes.total) == (2 * saved, 1_000_000)


def test_what_explain_writes_restores_the_same(tmp_path: Path) -> None:
    place, again = tmp_path / "each.dlio", tmp_path / "again.dlio"
    place.write_text(HEAD + "repeat 3 {\n    save c\n}\nrestore c each once {\n    pause uniform(1 s, 2 s)\n}\n")
    again.write_text(explain_pattern(place, [], Job(2)))
    one, other = (compile_pattern(each, [], Job(2))[0] for each in (place, again))
    assert one.verbs == other.verbs
    assert isinstance(one.verbs[1], Repeat) and one.verbs[1].body == (Save("c"),)


def test_another_job_says_how_many(tmp_path: Path) -> None:
    place = tmp_path / "each.dlio"
    assert restores(place, "restore c each of 7 once\n")[0].each == 7
    assert restores(place, "save c\nrestore c written by 8 ranks each of 7 once\n")[0].each == 7
    with pytest.raises(PatternError, match="nothing above saves `c`"):
        restores(place, "save c\nrestore c written by 8 ranks each once\n")
