"""Encoded units of samples, decoded to be held against what was written (`--verify`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.batches.decode_preprocess import Columns
from dliosim.execute.payload.payload_format import dressing, fill_part
from dliosim.execute.payload.sample_bytes import sample_keys
from dliosim.formats.registry import format_for
from dliosim.model import Dataset
from dliosim.plan.samples.read_ranges import Stored
from dliosim.plan.samples.sample_index import DataIndex


class EncodedUnits:
    """Checks rows of `Stored` that are whole encoded units of files which this tool has written."""

    def __init__(self, dataset: Dataset, index: DataIndex, stored: Stored) -> None:
        self._dataset = dataset
        self._index = index
        self._stored = stored
        self._form = format_for(dataset)
        self._columns = Columns(index)
        self._part = (dataset.fixed_size or 0) // max(1, len(index.columns))
        self._dress = dressing(dataset)

    def is_right(self, row: int, data: memoryview) -> bool | None:
        """Whether a unit decodes to the contents of its samples; None where its format gives back something else."""
        rows = self._stored.extents
        file, number = int(rows.file[row]), int(self._stored.column[row])
        try:
            decoded = self._form.decode(self._dataset, self._columns.of(number, file), data)
        except ExecutionError:
            return False
        if decoded is None:
            return None
        column, sample = self._index.columns[number], int(rows.sample[row])
        if int(column.pieces[file]) > 1:
            begin = int(self._stored.piece[row]) * int(column.unit_bytes[file])
            length = min(int(column.unit_bytes[file]), self._part - begin)
            return self._same(sample, number * self._part + begin, decoded[:length], length)
        within = np.array([sample - int(self._index.first_sample[file])])
        _, inside, _ = column.units_of(np.array([file]), within, np.array([sample]))
        first = sample - int(inside[0])
        last = min(first + len(decoded) // self._part, int(self._index.first_sample[file + 1]))
        return first < last and all(
            self._same(one, number * self._part, decoded[(one - first) * self._part :][: self._part], self._part)
            for one in range(first, last)
        )

    def _same(self, sample: int, begin: int, found: NDArray[np.uint8], length: int) -> bool:
        expected: NDArray[np.uint8] = np.empty(length, np.uint8)
        key = int(sample_keys(self._dataset, np.array([sample]))[0])
        fill_part(self._dress, key, begin, expected.data)
        return np.array_equal(found, expected)
