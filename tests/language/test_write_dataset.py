"""The description in a data set's manifest gives the same data set again."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.language.unparse import write_dataset
from dliosim.model import Job

PATTERNS = sorted((Path(__file__).parents[2] / "patterns").glob("*.dlio"))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda path: path.stem)
def test_what_a_manifest_describes_is_the_data_set_on_any_number_of_ranks(pattern: Path, tmp_path: Path) -> None:
    workload, _ = compile_pattern(pattern, (), Job(5, 2))
    for dataset in workload.datasets:
        text = tmp_path / "described.dlio"
        text.write_text(write_dataset(dataset))
        described, _ = compile_pattern(text, (), Job(1))
        assert described.datasets == (dataset,)
