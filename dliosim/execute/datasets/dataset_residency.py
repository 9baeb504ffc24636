"""How much of a data set is in the page cache, and what is said of a file of it that is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.context import Session
from dliosim.execute.datasets.dataset_manifest import damage_error
from dliosim.execute.residency import MOST_READ, Residency, measure_residency, resident_share
from dliosim.model import Dataset


def measure_dataset_residency(session: Session, dataset: Dataset) -> Residency:
    """As `resident_before_reading`, of a complete data set; nothing without I/O."""
    if session.options.null:
        return Residency()
    return measure_residency(session, lambda: resident_dataset_share(session, dataset, MOST_READ))


def resident_dataset_share(session: Session, dataset: Dataset, most: int) -> tuple[int, int]:
    """As `resident_share`, of a data set."""
    with report_damage(dataset):
        return resident_share(session, dataset.layout.files, most, file_paths(session, dataset))


def file_paths(session: Session, dataset: Dataset) -> Callable[[int], Path]:
    """The path of each file of a data set."""
    directory, name = session.files(dataset)
    return lambda file: directory / name(file)


@contextmanager
def report_damage(dataset: Dataset) -> Iterator[None]:
    """A block in which a file that is not there is said to be damage of the data set, with the remedy."""
    try:
        yield
    except ExecutionError as error:
        if error.code == "R401":
            raise damage_error(dataset, error.message) from error
        raise
