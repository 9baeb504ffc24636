"""The draws of a prediction, and the storage at both ends of what is uncertain about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dliosim.model.storage import HEAVIEST_TAIL, UNCERTAIN, StorageModel

#: Predictions of the same epoch with other draws of sizes, servers, latencies and compute.
DRAWS: Final = 5

#: Settings that are worse if they are longer; all others are rates and exponents of tails, which are worse if lower.
_TIMES: Final = ("latency", "call time", "step time")


def list_ends(storage: StorageModel) -> list[StorageModel]:
    """Return the storage with all that is uncertain at its worse end, and at its better one; none without such.

    What is uncertain may be so together, so that the range is that of the worst case and not of a chance.
    """

    def move(side: int) -> StorageModel:
        fields: dict[str, Any] = {}
        for name, share in storage.uncertain:
            field, value = UNCERTAIN[name], getattr(storage, UNCERTAIN[name])
            factor = 1 + side * share * (1 if name in _TIMES else -1)
            fields[field] = replace(value, rate=value.rate * factor) if name == "servers" else value * factor
            if name.endswith("tail"):
                fields[field] = max(fields[field], min(HEAVIEST_TAIL, value))
        return replace(storage, **fields)

    return [move(1), move(-1)] if storage.uncertain else []
