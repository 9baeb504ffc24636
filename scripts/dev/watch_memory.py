#!/usr/bin/env python
"""Watch the memory of the ranks below a process until it ends, then print what they took at the most, as JSON.

    python scripts/dev/watch_memory.py PID RANKS PLACE

Every three seconds it reads a line of /proc/PID/status for each rank (some 15 ms of processor for 512) and
/proc/meminfo. Where the ranks have together a fiftieth more than at the last look, half a minute ago for 512, it
adds up smaps_rollup of all of them, a second of processor: this gives anonymous memory exactly, and PSS. PLACE is a
path on the file system of the data: bytes of its device are those of /proc/diskstats.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

#: Seconds from look to look, seconds a rank between sums of smaps_rollup, and the growth that asks for another.
_EACH, _PAUSE, _MORE = 3.0, 1 / 16, 1.02
_SECTOR = 512


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, those of a launcher as well."""
    with suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            yield child
            yield from descendants(child)


def kilobytes(path: str) -> dict[str, int]:
    """Return the lines `Name: N kB` of a file of /proc."""
    with suppress(OSError):
        return {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", Path(path).read_text(), re.M)}
    return {}


def device_bytes(place: Path) -> int | None:
    """Return the bytes read from the device of a path since the machine started; None where it has none."""
    device = place.stat().st_dev
    numbers = [str(os.major(device)), str(os.minor(device))]
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[:2] == numbers:
            return int(fields[5]) * _SECTOR
    return None


def main() -> None:
    job, ranks, place = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    before, read = kilobytes("/proc/meminfo"), device_bytes(place)
    cache = before["Cached"] - before["Shmem"]
    shared = rough = anonymous = largest = pss = at_look = 0
    looked = 0.0
    pids: list[int] = []
    while Path(f"/proc/{job}").exists():
        sleep(_EACH)
        now = kilobytes("/proc/meminfo")
        shared, cache = max(shared, now["Shmem"] - before["Shmem"]), min(cache, now["Cached"] - now["Shmem"])
        if len(pids) < ranks:  # ranks start no processes, launchers do
            pids = [pid for pid in descendants(job) if not any(descendants(pid))]
        total = sum(kilobytes(f"/proc/{pid}/status").get("RssAnon", 0) for pid in pids)
        rough = max(rough, total)
        if len(pids) >= ranks and total > _MORE * at_look and monotonic() > looked + _PAUSE * ranks:
            found = [kilobytes(f"/proc/{pid}/smaps_rollup") for pid in pids]
            looked, at_look, each = monotonic(), total, [one.get("Anonymous", 0) for one in found]
            if sum(each) > anonymous:
                anonymous, largest, pss = sum(each), max(each), sum(one.get("Pss", 0) for one in found)
    after = device_bytes(place)
    taken = {"mean_anonymous": anonymous / ranks, "largest_anonymous": largest, "mean_rss_anon": rough / ranks}
    taken |= {"shared": shared, "pss": pss, "least_page_cache": cache}
    device = None if read is None or after is None else after - read
    print(json.dumps({name: kib * 1024 for name, kib in taken.items()} | {"device": device}))


if __name__ == "__main__":
    main()
