"""The share of a data set that is in the page cache, and the error of a file of it that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dliosim.errors import ExecutionError
from dliosim.execute.datasets.dataset_manifest import damage_error
from dliosim.execute.phases.context import Session
from dliosim.execute.phases.residency import MOST_READ, Residency, measure_residency, resident_share
from dliosim.model import Dataset


def measure_dataset_residency(session: Session, dataset: Dataset) -> Residency:
    """Measure the residency of a complete data set, as `measure_residency` does; nothing without I/O."""
    if session.options.null:
        return Residency()
    return measure_residency(session, lambda: resident_dataset_share(session, dataset, MOST_READ))


def resident_dataset_share(session: Session, dataset: Dataset, most: int) -> tuple[int, int]:
    """Return the bytes of a data set in the page cache, and the bytes examined, as `resident_share` does."""
    with report_damage(dataset):
        return resident_share(session, dataset.layout.files, most, session.files(dataset).path)


@contextmanager
def report_damage(dataset: Dataset) -> Iterator[None]:
    """Raise an [R401] of the block, such as that of a missing file, as damage of the data set, with the remedy."""
    try:
        yield
    except ExecutionError as error:
        if error.code == "R401":
            raise damage_error(dataset, error.message) from error
        raise
