"""Data sets for tests of formats."""

from __future__ import annotations

from typing import Any

import numpy as np

from dliosim.formats.protocols import Ints
from dliosim.model import Dataset, Distribution, Layout, constant

VARYING = Distribution("uniform", (1, 1 << 20), 1, None)


def dataset(form: str, size: int | Distribution = 4096, **changes: Any) -> Dataset:
    """One of that format, of samples of one size or of sizes that vary."""
    of_sample = constant(size) if isinstance(size, int) else size
    fields: dict[str, Any] = {"name": "d", "seed": 7, "samples": 100, "path": "d", "size": of_sample, "format": form}
    return Dataset(layout=Layout("shared file", 1), **{**fields, **changes})


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)
