"""Calls that fail, are short or late, wherever a run makes them: it ends as it must, and leaves nothing wrong.

A few of the cases that scripts/dev/inject_faults.py draws.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import ALL
from tests.scripts.fidelity import script
from tests.scripts.preloading import built

inject_faults = script("inject_faults")
SOURCE = script("faults.running").SOURCE


#: Seed, and the phase that its fault hits.
FAULTS = [(3, "save"), (1, "loop"), (2, "prepare"), (4, "restore")]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("library"), SOURCE)


@pytest.mark.not_under("Open MPI", reason="OMPIO makes files of its own, and does not report that closing one failed")
# The seed says the api, too.
@pytest.mark.parametrize(("seed", "phase"), FAULTS if ALL else FAULTS[:2])
def test_a_fault_ends_a_run_with_a_message_or_not_at_all(seed: int, phase: str, library: Path, tmp_path: Path) -> None:
    cases = list(inject_faults.cases(seed, tmp_path, library, (phase,), 2 if ALL else 1))
    assert cases
    for case in cases:
        assert not case.complaints, f"{case}\n" + "\n".join(f"{each.word}: {each.text}" for each in case.complaints)
