from __future__ import annotations

import numpy as np

from dliosim.formats.contract_tests import sample_ranges
from dliosim.formats.protocols import ENCODED, Column, FileIndex


def test_units_with_different_numbers_of_samples_are_found_by_their_first_samples() -> None:
    offset, length = np.array([10, 40, 90]), np.array([30, 50, 10])
    whole = Column(5, 1, ENCODED, 50, offset, length, first=np.array([0, 3, 8]))
    index = FileIndex(9, 100, (whole,))
    assert [sample_ranges(index, sample) for sample in (0, 2, 3, 7, 8)] == [
        [(10, 30)],
        [(10, 30)],
        [(40, 50)],
        [(40, 50)],
        [(90, 10)],
    ]
    rows = Column(5, 1, 10, 50, offset, length, first=np.array([0, 3, 8]))
    assert sample_ranges(FileIndex(9, 100, (rows,)), 7) == [(80, 10)]
