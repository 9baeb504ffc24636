"""Storage-limited utilization of single epochs: there is none of an epoch that memory gave."""

from __future__ import annotations

from dliosim.measure.answers.sources import epoch_source
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.run_summary import Answer


def storage_alone(epoch: EpochSummary, answer: Answer | None) -> float | str | None:
    """Return the storage-limited utilization of an epoch that counts for an answer, else what gave its bytes.

    Epochs are numbered over all runs of their loop. None where there is no utilization, or no answer.
    """
    if epoch.storage_utilization is None or answer is None:
        return None
    if answer.source in ("memory", "null"):
        return answer.source
    if epoch.epoch in answer.epochs:
        return epoch.storage_utilization
    source = epoch_source(epoch)
    return "mixed" if source == "device" else source
