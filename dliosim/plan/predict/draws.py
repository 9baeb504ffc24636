"""The draws of a prediction: the same epoch again, with other random numbers and other values of what is uncertain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from dliosim.model.counter_rng import key, uniforms
from dliosim.model.storage import HEAVIEST_TAIL, UNCERTAIN, StorageModel

#: Predictions of the same epoch with other draws of sizes, servers, latencies and compute.
DRAWS: Final = 5


def draw_storages(storage: StorageModel, seed: int) -> list[StorageModel]:
    """Return the storage of each draw: uncertain values are spread evenly over their intervals, in random order.

    So each value meets both ends of its interval, whatever the others are then.
    """
    places = np.linspace(-1.0, 1.0, DRAWS)
    orders = {name: uniforms(key(seed, "uncertain", name), np.arange(DRAWS)).argsort() for name, _ in storage.uncertain}

    def vary(draw: int) -> StorageModel:
        fields: dict[str, Any] = {}
        for name, share in storage.uncertain:
            field, factor = UNCERTAIN[name], 1 + share * float(places[orders[name][draw]])
            value = getattr(storage, field)
            fields[field] = replace(value, rate=value.rate * factor) if name == "servers" else value * factor
            if field in ("tail", "step_tail"):
                fields[field] = max(fields[field], HEAVIEST_TAIL)
        return replace(storage, **fields)

    return [vary(draw) for draw in range(DRAWS)]
