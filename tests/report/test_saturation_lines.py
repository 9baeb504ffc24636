"""The answer of a search for the most accelerators: its verdict, its reason and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dliosim.measure.results.run_summary import Advice, Answer, Reason, Spread
from dliosim.measure.results.verdicts import CANNOT_SAY, FEEDS, STARVES, TOO_CLOSE
from dliosim.measure.saturation import Point, Saturation, make_saturation
from dliosim.report.run.saturation_lines import saturation_lines
from tests.report import sample

GOAL = 0.9
WAIT = Reason("core_wait", {"share": 0.37, "by_readers": False, "by_ranks": True})


def answer(mean: float, verdict: str = "") -> Answer:
    alone = Spread(mean, mean - 0.02, mean + 0.02)
    verdict = verdict or (FEEDS if alone.low >= GOAL else STARVES if alone.high < GOAL else TOO_CLOSE)
    reasons, advice = ((WAIT,), (Advice("wait_for_quiet"),)) if verdict == CANNOT_SAY else ((), ())
    return Answer("train", verdict, reasons, "device", True, (1,), GOAL, alone, alone, None, None, advice)


def search(busy: dict[int, Answer], most: int, ceiling: int, idle: float = 0.99) -> Saturation:
    points = [Point(number, 1, one, 1) for number, one in busy.items()]
    return make_saturation(points, most, ceiling, {max(ceiling, 1): idle})


def lines(found: Saturation, *arguments: str) -> str:
    begun = replace(sample.run(), ranks=4, arguments=("saturate", "a.dlio", *arguments))
    return " ".join(saturation_lines(begun, found).split())


@pytest.mark.parametrize(
    ("busy", "said"),
    [
        ({1: answer(0.99), 2: answer(0.97), 4: answer(0.5), 3: answer(0.8)}, "feeds 2 accelerators: busy 97 %, goal"),
        ({1: answer(0.99), 2: answer(0.97), 4: answer(0.5), 3: answer(0.89)}, "feeds 2 accelerators (2 to 3): busy"),
        ({1: answer(0.3)}, "does not feed 1 accelerator: it is busy 30 %"),
        ({1: answer(0.99), 2: answer(0.5, CANNOT_SAY)}, "cannot say (1 to 2): 1 accelerator busy 99 %"),
    ],
)
def test_the_verdict_says_what_is_sure(busy: dict[int, Answer], said: str) -> None:
    assert f"ANSWER {said}" in lines(search(busy, 4, 4))


def test_the_next_number_is_close_or_misses() -> None:
    fed = {1: answer(0.99), 2: answer(0.97)}
    assert "WHY storage is the limit: 3 accelerators are busy 80 %;" in lines(search({**fed, 3: answer(0.8)}, 4, 4))
    close = lines(search({**fed, 3: answer(0.89)}, 4, 4))
    assert "3 accelerators are busy 89 % (87 % to 91 %), too close to say;" in close


def test_waits_for_cores_are_the_reason_and_the_advice() -> None:
    text = lines(search({1: answer(0.99), 2: answer(0.5, CANNOT_SAY)}, 4, 4))
    assert "WHY ranks waited 37 % of the loop for a core" in text
    assert "NOTE storage may be the limit: 2 accelerators are busy 50 %" in text
    assert "TRY repeat this when the machine is quiet" in text


def test_ranks_that_cannot_even_be_one_accelerator_say_nothing_of_storage() -> None:
    text = lines(search({1: answer(0.78, STARVES)}, 4, 0, idle=0.53))
    assert "ANSWER cannot say: 1 accelerator busy 78 %" in text
    assert "WHY these ranks are the limit: 1 accelerator that reads nothing is busy 53 %" in text


def test_more_ranks_are_advised_without_the_options_that_kept_them_few() -> None:
    text = lines(search({1: answer(0.99), 2: answer(0.98)}, 2, 2), "--most", "2", "--output", "out")
    assert "ANSWER feeds at least 2 accelerators" in text
    assert text.endswith("TRY start more ranks; each is an accelerator: mpiexec -n 8 dliosim saturate a.dlio")
