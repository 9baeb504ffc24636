"""The memory of this node, as far as control groups let this process have it. It needs no MPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")

#: A control group in messages.
_GROUP = "the control group of this job"


@dataclass(frozen=True, slots=True)
class _GroupFiles:
    """The names of what a control group says of its memory; each for the group and all groups below it."""

    limit: str  #: file with the limit
    used: str  #: file with the use
    cached: str  #: lines of its memory.stat with cached bytes that can be dropped


_UNIFIED = _GroupFiles("memory.max", "memory.current", "(?:in)?active_file")
_VERSION_1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_(?:in)?active_file")


def whole_memory() -> int | None:
    """Return the bytes of memory of this node, or the limit of this process's control groups; None if unknown."""
    return _smallest(_read_meminfo("MemTotal"), cgroup_limit(_own_groups(), _CGROUPS))


def available_memory() -> int | None:
    """Return the bytes of memory that this node, or this process's control groups, can still give; None if unknown."""
    return find_free_memory()[0]


def find_free_memory() -> tuple[int | None, str]:
    """Return the bytes of memory that can still be given, None if unknown, and what has them.

    That is this node, or a control group of this process if that has less.
    """
    node, group = _read_meminfo("MemAvailable"), cgroup_memory(_own_groups(), _CGROUPS)
    return _smallest(node, group), "the node" if group is None or (node is not None and node < group) else _GROUP


def cgroup_limit(groups: str, root: Path) -> int | None:
    """Return the memory limit of control groups in bytes; None if there is no limit. Arguments as `cgroup_memory`."""
    return _smallest(*(_read_limit(group, files) for group, files in _limiting_groups(groups, root)))


def cgroup_memory(groups: str, root: Path) -> int | None:
    """Return the bytes that the memory limits of control groups leave; None if there is no limit.

    `groups` is the text of /proc/self/cgroup; `root` is where the hierarchies, of version 1 or 2, are mounted. The
    least of a group and of all above it counts: batch systems limit the job, and leave the groups of its tasks without
    a limit.
    """
    return _smallest(*(_read_headroom(group, files) for group, files in _limiting_groups(groups, root)))


def _own_groups() -> str:
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""


def _limiting_groups(groups: str, root: Path) -> Iterator[tuple[Path, _GroupFiles]]:
    """Yield the directory of each control group that may limit memory: the own ones, and all above them."""
    for number, controllers, group in re.findall(r"^(\d+):([^:]*):/?(.*)$", groups, re.MULTILINE):
        if number == "0":
            top, files = root, _UNIFIED
        elif "memory" in controllers.split(","):
            top, files = root / "memory", _VERSION_1
        else:
            continue
        own = top / group
        yield from ((each, files) for each in (own, *own.parents) if each.is_relative_to(top))


def _read_limit(group: Path, files: _GroupFiles) -> int | None:
    """Return the limit of one control group in bytes; None if it has none."""
    try:
        return int((group / files.limit).read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _read_headroom(group: Path, files: _GroupFiles) -> int | None:
    """Return the bytes that the limit of one control group leaves; None if it has none."""
    most = _read_limit(group, files)
    try:
        taken = int((group / files.used).read_text())
        spare = re.findall(rf"^{files.cached} (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return None if most is None else max(0, most - taken + sum(map(int, spare)))


def _read_meminfo(name: str) -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else None


def _smallest(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)
