"""Loops that may read the copies of the nodes, and others."""

from __future__ import annotations

import pytest

from dliosim.language.diagnostics import PatternError
from tests.language.conftest import Patterns

TEXT = """
dataset universe {{
    samples  64
    size     4 KiB
    layout   shared file
    path     "universe"
}}
stage universe to local
train {{
    read         universe
    api          mpi-collective
    communicator {}
}}
"""


@pytest.mark.parametrize(
    ("communicator", "nodes", "refused"),
    [
        ("world", 2, True),
        ("4 ranks", 2, True),
        ("2 ranks", 2, True),
        ("1 rank", 2, False),
        ("node", 2, False),
        ("world", 1, False),
    ],
)
def test_ranks_open_a_copy_together_only_on_their_node(
    communicator: str, nodes: int, refused: bool, patterns: Patterns
) -> None:
    text, codes = TEXT.format(communicator), []
    try:
        patterns.workload(text, nodes=nodes)
    except PatternError as error:
        codes = [each.code for each in error.diagnostics if each.is_error]
    assert codes == ["E211"] * refused
