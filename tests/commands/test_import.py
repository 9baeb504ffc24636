"""`dliosim import`: overrides of DLIO's keys anywhere in its line."""

from __future__ import annotations

import pytest

from dliosim.commands.misuse import describe_misuse
from dliosim.commands.parser import Misuse, parse_words


@pytest.mark.parametrize(
    "line",
    [
        "import w.yaml --dlio main ++train.epochs=7 ~metric.au",
        "import w.yaml ++train.epochs=7 --dlio main ~metric.au",
        "import ++train.epochs=7 --dlio main w.yaml ~metric.au",
        "import --dlio main w.yaml ++train.epochs=7 ~metric.au",
    ],
)
def test_overrides_stand_anywhere(line: str) -> None:
    parsed = parse_words(line.split())
    assert (parsed.file, parsed.dlio, parsed.override) == ("w.yaml", "main", ["++train.epochs=7", "~metric.au"])


def test_an_override_without_plus_may_follow_an_option() -> None:
    words = ["import", "w.yaml", "--as-run", "workload.train.epochs=7"]
    assert parse_words(words).override == ["workload.train.epochs=7"]


def test_what_to_type_instead_keeps_overrides() -> None:
    words = ["import", "w.yaml", "--dlo", "main", "++workload.train.epochs=7"]
    with pytest.raises(Misuse) as error:
        parse_words(words)
    said = describe_misuse(words, str(error.value))
    assert said.endswith("write `dliosim import w.yaml --dlio main ++workload.train.epochs=7`")
