"""JSON that somebody else may have written: bounded before it is parsed, as a few bytes of it can take a hundred."""

from __future__ import annotations

import json
from typing import NoReturn

#: Bytes: a run of ten thousand epochs writes 25 MB, a checkpoint of half a million files 30 MB.
LARGEST = 64 << 20

#: Lists and objects: as many files has a checkpoint at most, and ten thousand epochs have a tenth of that.
_MOST_ROOMS = 1 << 20

#: Values in these.
_MOST_VALUES = 3 << 20


def check_json_size(data: bytes) -> None:
    """Raise ValueError where a text is larger than any of ours, or would take much over half a GB (574 MB measured)."""
    # Those in texts count, too: there are few, and to look is cheap.
    rooms, values = data.count(b"[") + data.count(b"{"), data.count(b",")
    for found, most, what in (
        (len(data), LARGEST, "bytes"),
        (rooms, _MOST_ROOMS, "lists and objects"),
        (values, _MOST_VALUES, "values"),
    ):
        if found > most:
            raise ValueError(f"it has {found} {what}, and dliosim writes none of more than {most}")


def parse_json(data: bytes) -> object:
    """What a text holds; ValueError where it is no JSON, nested too deeply, or too much (`check_json_size`)."""
    check_json_size(data)
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
