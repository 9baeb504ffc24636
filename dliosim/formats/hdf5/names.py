"""Find the data sets of an HDF5 file that hold its samples.

Links are not followed: they lead to other names or files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from h5py import h5d, h5g, h5l, h5o, h5s

from dliosim.errors import ExecutionError
from dliosim.formats.unsupported import cure_names

_MOST_OBJECTS: Final = 100_000
_MOST_SHOWN: Final = 8


def find_datasets(file: Any, path: Path, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return names and data sets (h5py.h5d.DatasetID): `names`; else `records`, `records_0`, ...; else the longest.

    The longest is the one with most samples, along its first dimension. Raises ExecutionError [R401] where a name is
    missing, is a link or no data set, or where several are the longest.
    """
    root = h5g.open(file.id, b"/")
    found = names or _find_record_names(root) or (_find_longest(root, path),)
    return [(name, _find_dataset(root, path, name)) for name in found]


def _find_record_names(root: Any) -> tuple[str, ...]:
    if _is_dataset(root, "records"):
        return ("records",)
    found: list[str] = []
    for part in count():
        name = f"records_{part}"
        if not _is_dataset(root, name):
            return tuple(found)
        found.append(name)
    raise AssertionError("count ends")


def _is_dataset(root: Any, name: str) -> bool:
    raw = name.encode()
    if not root.links.exists(raw) or root.links.get_info(raw).type != h5l.TYPE_HARD:
        return False
    return isinstance(h5o.open(root, raw), h5d.DatasetID)


def _find_dataset(root: Any, path: Path, name: str) -> Any:
    here = root
    steps = name.strip("/").split("/")
    for place, step in enumerate(steps):
        if step in ("", ".", ".."):
            raise ExecutionError(f"{path}: `{name}` is no name of a data set: `{step}` in it leads nowhere", "R401")
        raw = step.encode()
        if not isinstance(here, h5g.GroupID) or not here.links.exists(raw):
            raise ExecutionError(f"{path} has no data set `{name}`{_list_present(root, path)}", "R401")
        if here.links.get_info(raw).type != h5l.TYPE_HARD:
            so_far = "/".join(steps[: place + 1])
            raise ExecutionError(f"{path}: `{so_far}` is a link, and links are not followed", "R401")
        here = h5o.open(here, raw)
    if not isinstance(here, h5d.DatasetID):
        raise ExecutionError(f"{path}: `{name}` is no data set", "R401")
    return here


def _list_present(root: Any, path: Path) -> str:
    """Return the first data sets of the file, as the end of a message about a missing one."""
    names = [name for name, _ in islice(_walk_datasets(root, path), _MOST_SHOWN + 1)]
    shown = ", ".join(f"`{name[:60]}`" for name in names[:_MOST_SHOWN])
    return f", and these: {shown}{', ...' if len(names) > _MOST_SHOWN else ''}" if names else ""


def _find_longest(root: Any, path: Path) -> str:
    """Return the data set with the longest first dimension; ExecutionError where a virtual one may be longer."""
    rows: dict[str, int] = {}
    virtual: dict[str, str] = {}
    for name, dset in _walk_datasets(root, path):
        if dset.get_create_plist().get_layout() == h5d.VIRTUAL:
            virtual[name] = describe_virtual(dset)  # its shape would open the files that it is made of
            continue
        space = dset.get_space()
        if space.get_simple_extent_type() == h5s.SIMPLE:
            rows[name] = int(space.shape[0])
    if virtual:
        name, text = next(iter(virtual.items()))
        others = f", or name those of this file to read{cure_names(sorted(rows))}" if rows else ""
        raise ExecutionError(f"{path}: data set `{name}` {text}{others}", "R401")
    if not rows:
        raise ExecutionError(f"{path} has no data set with samples; links to other files are not followed", "R401")
    most = max(rows.values())
    best = sorted(name for name, count in rows.items() if count == most)
    if len(best) > 1:
        shown = ", ".join(f"`{name}`" for name in best[:_MOST_SHOWN])
        more = f" and {len(best) - _MOST_SHOWN} more" if len(best) > _MOST_SHOWN else ""
        text = f"{path} has several data sets of {most} samples"
        raise ExecutionError(f"{text}, {shown}{more}: name those to read{cure_names(best)}", "R401")
    return best[0]


def describe_virtual(dset: Any) -> str:
    """Return that a data set is virtual, and what to read in its place: files, or data sets of the same file (`.`)."""
    create = dset.get_create_plist()
    sources = [
        (create.get_virtual_filename(i), create.get_virtual_dsetname(i))
        for i in range(min(create.get_virtual_count(), _MOST_OBJECTS))
    ]
    found = dict.fromkeys(f"`{(name if file == '.' else file)[:60]}`" for file, name in sources)
    shown = ", ".join(islice(found, _MOST_SHOWN)) + (", ..." if len(found) > _MOST_SHOWN else "")
    return f"is virtual: its samples are elsewhere; read {shown or 'the files that it is made of'}"


def _walk_datasets(root: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield all data sets with their names, those of outer groups first.

    HDF5's own walk (H5Ovisit) also asks for the size of every object's index, and crashes where that index is damaged.
    """
    waiting, seen, groups = deque([("", root)]), 0, {root}
    while waiting:
        before, group = waiting.popleft()
        for raw in _link_names(group, path, _MOST_OBJECTS - seen):
            seen += 1
            if group.links.get_info(raw).type != h5l.TYPE_HARD:
                continue
            name, found = before + raw.decode("utf-8", "replace"), h5o.open(group, raw)
            if isinstance(found, h5g.GroupID):
                if found not in groups:  # groups may hold each other
                    groups.add(found)
                    waiting.append((f"{name}/", found))
            elif isinstance(found, h5d.DatasetID):
                yield name, found


def _link_names(group: Any, path: Path, most: int) -> list[bytes]:
    names: list[bytes] = []

    def take(name: bytes) -> bool | None:
        names.append(name)
        return True if len(names) > most else None

    stopped, _ = group.links.iterate(take)
    if stopped:
        raise ExecutionError(f"{path} has more than {_MOST_OBJECTS} groups and data sets: name those to read", "R401")
    return names
