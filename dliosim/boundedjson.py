"""JSON: checked before it is parsed, as few bytes can take a lot of memory; and values that JSON can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

#: Bytes: a run of ten thousand epochs writes 25 MB, a checkpoint of half a million files 30 MB.
LARGEST = 64 << 20

#: Lists and objects: a checkpoint has this many files at most; ten thousand epochs have a tenth of that.
_MOST_ROOMS = 1 << 20

#: Values in these lists and objects.
_MOST_VALUES = 3 << 20


def check_json_size(data: bytes) -> None:
    """Raise ValueError if a text is larger than any that dliosim writes.

    A text within these limits takes little more than half a GB of memory (574 MB measured).
    """
    # Brackets inside strings count too: there are few of them, and counting bytes is cheap.
    rooms, values = data.count(b"[") + data.count(b"{"), data.count(b",")
    for found, most, what in (
        (len(data), LARGEST, "bytes"),
        (rooms, _MOST_ROOMS, "lists and objects"),
        (values, _MOST_VALUES, "values"),
    ):
        if found > most:
            raise ValueError(f"it has {found} {what}, and dliosim writes none of more than {most}")


def parse_json(data: bytes) -> object:
    """Return the value of a text; ValueError if it is no JSON, is nested too deeply, or is too large."""
    check_json_size(data)
    try:
        return json.loads(data, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's parser takes; ValueError."""
    raise ValueError(f"{name} is no number of JSON")


def drop_nonfinite(value: Any) -> Any:
    """Return the value with None for every number that JSON does not have (inf, nan)."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: drop_nonfinite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [drop_nonfinite(one) for one in value]
    return value
