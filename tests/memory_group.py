"""Control groups that limit memory, where the machine lets tests make some."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def memory_group(limit: int, name: str = "dliosim-test") -> Iterator[Path | None]:
    """Make a group below that of this process, of version 1 or 2, with a limit in bytes; None where none can be made.

    A process enters it by its number in `cgroup.procs`.
    """
    found = re.search(r"^\d+:([^:]*,)?memory(,[^:]*)?:/?(.*)$", _own_groups(), re.MULTILINE)
    unified = re.search(r"^0::/?(.*)$", _own_groups(), re.MULTILINE)
    above, file = (_ROOT / "memory" / found[3], "memory.limit_in_bytes") if found else (_ROOT, "memory.max")
    group = (above / unified[1] if unified and not found else above) / name
    made = False
    try:
        group.mkdir()
        made = True
        (group / file).write_text(f"{limit}\n")
    except OSError:
        if made:
            group.rmdir()
        yield None
        return
    try:
        yield group
    finally:
        until = monotonic() + 10
        while made:  # the last process may be ending still
            try:
                group.rmdir()
                made = False
            except OSError:
                if monotonic() > until:
                    raise
                sleep(0.05)


def _own_groups() -> str:
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""
