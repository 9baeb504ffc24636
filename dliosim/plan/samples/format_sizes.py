"""The format of a data set as planning asks for it: what each sample takes in its file, and what lies around them."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Format, Framed
from dliosim.formats.raw import RAW
from dliosim.formats.registry import format_for
from dliosim.model.dataset import Dataset
from dliosim.plan.samples.sample_to_file import aligned

#: Types of formats, and whether they are framed.
_KNOWN: dict[type[Format], bool] = {}


def is_framed(dataset: Dataset) -> bool:
    """Whether every byte of the data set's files has its place before it is written."""
    return not dataset.source and _of_framed(format_for(dataset)) is not None


def framed(dataset: Dataset) -> Framed:
    """The format of such a data set; PlanError where only the files know."""
    if dataset.format == "raw":  # most plans, and the hottest path
        return RAW
    form = _of_framed(format_for(dataset))
    if form is None:
        raise PlanError(f"data set `{dataset.name}`: only its files know where samples lie in {dataset.format}")
    return form


def _of_framed(form: Format) -> Framed | None:
    """The format, if it is such a one."""
    kind = type(form)
    if kind not in _KNOWN:  # to look for all methods takes 20 us
        _KNOWN[kind] = isinstance(form, Framed)
    return cast(Framed, form) if _KNOWN[kind] else None


def header_bytes(dataset: Dataset) -> int:
    """Bytes before sample 0 of every file."""
    return framed(dataset).header(dataset)


def room(dataset: Dataset, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes from where samples of these sizes begin to where the next ones do."""
    form = framed(dataset)
    return aligned(form.stride(dataset, sizes), form.align(dataset))


def samples_overlap(dataset: Dataset) -> bool:
    """Whether reading a sample takes bytes of the next one, too: those of `indexed` have a token in common."""
    sizes = np.array([dataset.fixed_size or 1])
    return bool((framed(dataset).length(dataset, sizes) > room(dataset, sizes)).any())
