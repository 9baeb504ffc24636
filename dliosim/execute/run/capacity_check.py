"""Whether all that a run will write fits, asked before it begins: a disk that is full later costs hours of results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints.checkpoint_store import numbers, unfinished_bytes
from dliosim.execute.context import Session
from dliosim.execute.datasets.dataset_manifest import what_is_wrong
from dliosim.execute.datasets.prepare import present_bytes, total_bytes
from dliosim.execute.node.free_space import require_space
from dliosim.model import Checkpoint, Prepare
from dliosim.model.verbs import flat
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast.checkpoint_counts import certain_saves


@dataclass(frozen=True, slots=True)
class _Need:
    """Bytes to be written to a place below a root; `reusable` counts those that lie there and will be written over."""

    root: Path
    place: Path
    what: str
    size: int
    reusable: Callable[[], int]


def require_room(sessions: Sequence[Session]) -> None:
    """Raise ExecutionError [R402] unless the file systems have room for all that the workloads write. For rank 0.

    What lies in one place is counted once, however many of the workloads write it.
    """
    by_device: dict[int, list[_Need]] = defaultdict(list)
    needs = {need.place: need for session in sessions for need in (*_datasets(session), *_checkpoints(session))}
    for need in needs.values():
        by_device[need.root.stat().st_dev].append(need)
    for together in by_device.values():
        size, what = sum(need.size for need in together), " with ".join(need.what for need in together)
        try:
            require_space(together[0].root, size, what)
        except ExecutionError:
            # Only then is it worth to look at what lies there, which may be millions of files.
            require_space(together[0].root, size - sum(need.reusable() for need in together), what)


def _datasets(session: Session) -> Iterator[_Need]:
    seen: set[str] = set()
    for verb, _ in flat(session.workload.verbs):
        if not isinstance(verb, Prepare) or verb.dataset in seen:
            continue
        seen.add(verb.dataset)
        dataset = session.workload.dataset(verb.dataset)
        directory = session.directory(dataset.root, dataset.path, dataset.digest())
        if verb.afresh or what_is_wrong(dataset, directory) is not None:
            size = total_bytes(session, dataset)
            root = session.roots[dataset.root]
            yield _Need(root, directory, f"data set `{dataset.name}`", size, partial(present_bytes, dataset, directory))


def _checkpoints(session: Session) -> Iterator[_Need]:
    for name, saves in certain_saves(session.workload).items():
        checkpoint = session.workload.checkpoint(name)
        flights = checkpoint.background.in_flight if checkpoint.background is not None else 1
        base, drained = session.saved_at(checkpoint), session.drained_to(checkpoint)
        total = state_files(checkpoint, checkpoint.split(session.world.size)).total()
        each = total if checkpoint.partner is None else 2 * total
        yield _copies(session, checkpoint, checkpoint.root, base, saves, flights, each)
        if checkpoint.drain is not None and drained is not None:
            yield _copies(session, checkpoint, checkpoint.drain, drained, saves, 1, total)


def _copies(
    session: Session, checkpoint: Checkpoint, root: str, base: Path, saves: int, flights: int, each: int
) -> _Need:
    """What copies of `each` bytes need that are there at once, beside those that are complete now.

    Up to `flights` are written beside those that are kept: a new one is complete before an old one is deleted.
    """
    copies = saves
    if checkpoint.keep is not None:
        copies = min(saves, max(checkpoint.keep + flights - len(numbers(base)), flights))
    what = f"checkpoint `{checkpoint.name}`" + (f" ({copies} copies at once)" if copies > 1 else "")
    what = what if root == checkpoint.root else f"what is drained of {what}"
    return _Need(session.roots[root], base, what, copies * each, partial(unfinished_bytes, base))
