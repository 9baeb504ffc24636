#!/usr/bin/env python
"""Check that the figures of answers agree: needs, got, storage-limited utilization, goal, and the epochs' own figures.

    python scripts/dev/check_answers.py RESULTS ...

RESULTS are directories of `dliosim run`. Prints a line for each loop; the status is 1 where one disagrees.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from harness import orderly

#: Relative difference that rounding, and epochs of uneven samples, may make.
_CLOSE = 0.01


def find_faults(answer: dict[str, Any], epochs: list[dict[str, Any]]) -> list[str]:
    """Return what disagrees in the answer of a loop with these epochs, numbered from 1 over all of its runs."""
    alone, needs, got = (
        answer[name] and answer[name]["mean"]
        for name in ("storage_utilization", "needs_bytes_per_second", "got_bytes_per_second")
    )
    faults = []
    if needs and got and not math.isclose(got / needs, alone / answer["goal"], rel_tol=_CLOSE):
        faults.append(f"got / needs is {got / needs:.4f}, utilization / goal {alone / answer['goal']:.4f}")
    counted = [epochs[number - 1] for number in answer["epochs"]]
    known = [one["storage_utilization"] for one in counted]
    if alone is not None and not math.isclose(alone, fmean(known), rel_tol=1e-9):
        faults.append(f"storage-limited utilization is {alone:.4f}, its epochs have {fmean(known):.4f}")
    # The rank that is busy least: it left the first sync first, as `storage_utilization` counts. One that left it late,
    # for lack of a core, has so much less time in its loop, and so is busier.
    faults += [
        f"epoch {number}: {one['utilization_min']:.4f} busy is above storage-limited, {one['storage_utilization']:.4f}"
        for number, one in enumerate(epochs, 1)
        if None not in (one["utilization_min"], one["storage_utilization"])  # epochs that do not count have no latter
        and one["utilization_min"] > one["storage_utilization"] * (1 + _CLOSE)
    ]
    device = sum(one["device_bytes"] or 0 for one in counted)
    asked = sum(min(one["bytes"], one["distinct_bytes"] or one["bytes"]) for one in counted)
    if answer["source"] == "device" and device < 0.98 * asked:
        faults.append("the source is the device, which gave less than the different bytes that were asked")
    return faults


def check_results(results: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the answer of each loop of a results.json, and what disagrees in it."""
    for answer in results["answer"]:
        loops = [one for one in results["phases"] if one["name"] == answer["loop"] and one.get("epochs")]
        yield answer, find_faults(answer, [epoch for one in loops for epoch in one["epochs"]])


def main() -> int:
    """Check the directories that were given; return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="directories of results")
    status = 0
    for place in parser.parse_args().results:
        for answer, faults in check_results(json.loads((place / "results.json").read_text())):
            status = status or bool(faults)
            print(f"{place.name}: {answer['loop']}: {'; '.join(faults) or 'agrees'} ({answer['verdict']})")
    return status


if __name__ == "__main__":
    orderly(main)
