"""Check before a run that everything it will write fits: a full disk later costs hours of results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.datasets.open_dataset import estimate_bytes
from dliosim.execute.datasets.prepare import present_bytes
from dliosim.execute.node.environment import find_mount, free_bytes, require_space
from dliosim.execute.phases.context import Session
from dliosim.execute.store.checkpoint_store import checkpoint_numbers, count_leftover_bytes
from dliosim.execute.store.manifest import find_dataset_fault, find_manifest
from dliosim.model import Checkpoint, Dataset, Prepare, Restore
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast.checkpoint_footprint import minimum_saves

#: The greatest `scale` of a model that is advised: the smallest tensors do not shrink any more.
_LARGEST_SCALE = 1_000_000


@dataclass(frozen=True, slots=True)
class _SpaceNeed:
    """Bytes to be written to one place below a root."""

    #: directory of the root, or of the mount below it that is written to
    root: Path
    #: directory that is written to
    place: Path
    #: name of the data in messages
    what: str
    #: bytes to be written
    size: int
    #: returns the bytes that are there already and will be overwritten or removed
    reusable: Callable[[], int]
    #: returns what to type to write less, for a number of bytes; an empty text if nothing short would do
    less: Callable[[int], str]


def require_room(sessions: Sequence[Session]) -> None:
    """Raise ExecutionError [R402] unless the file systems have room for all data of the workloads. For rank 0.

    A place that several workloads write counts once.
    """
    by_device: dict[int, list[_SpaceNeed]] = defaultdict(list)
    needs = {need.place: need for session in sessions for need in _list_needs(session)}
    for need in needs.values():
        by_device[need.root.stat().st_dev].append(need)
    for together in by_device.values():
        size, what = sum(need.size for need in together), " with ".join(need.what for need in together)
        try:
            require_space(together[0].root, size, what)
        except ExecutionError:
            # Only now look at the files that are there: they may be millions.
            try:
                require_space(together[0].root, size - sum(need.reusable() for need in together), what)
            except ExecutionError as error:
                raise ExecutionError(f"{error.message}\n  = help: {_advise(together)}", error.code) from None


def bytes_in_memory(session: Session) -> int:
    """Return the bytes that a workload adds to file systems in memory. For rank 0."""
    needs = {need.place: need for need in _list_needs(session)}
    return sum(max(need.size - need.reusable(), 0) for need in needs.values() if find_mount(need.root).is_memory_backed)


def _advise(needs: Sequence[_SpaceNeed]) -> str:
    """Return what to type if there is no room: half of it for data sets, and few copies of checkpoints."""
    room = free_bytes(needs[0].root) // 2
    less = " ".join(filter(None, (need.less(room) for need in needs)))
    text = f"write less: add `{less}`; or " if less else ""
    return f"{text}give --dir (or --root) a directory with more room; `dliosim plan` says what each part takes"


def _list_needs(session: Session) -> Iterator[_SpaceNeed]:
    yield from _dataset_needs(session)
    yield from _copy_needs(session)
    yield from _checkpoint_needs(session)


def _copy_needs(session: Session) -> Iterator[_SpaceNeed]:
    """Yield the needs of whole copies on the node of rank 0; each node looks for room again when it copies."""
    for verb in session.workload.stages():
        dataset, directory = session.workload.dataset(verb.dataset), session.copy_directory(verb)
        if verb.holds == "all" and find_manifest(directory, dataset.found or dataset.digest()) is None:
            size, what = estimate_bytes(session, dataset), f"the copy of data set `{dataset.name}`"
            present = partial(present_bytes, dataset, directory)
            root = session.place_directory(verb.root, directory)
            yield _SpaceNeed(root, directory, what, size, present, partial(_fewer_samples, dataset, size))


def _dataset_needs(session: Session) -> Iterator[_SpaceNeed]:
    seen: set[str] = set()
    for verb, _ in flatten_verbs(session.workload.verbs):
        if not isinstance(verb, Prepare) or verb.dataset in seen:
            continue
        seen.add(verb.dataset)
        dataset = session.workload.dataset(verb.dataset)
        directory = session.directory(dataset.root, dataset.path, dataset.digest())
        if verb.afresh or find_dataset_fault(dataset, directory) is not None:
            size = estimate_bytes(session, dataset)
            root = session.place_directory(dataset.root, directory)
            what = f"data set `{dataset.name}`"
            present, less = partial(present_bytes, dataset, directory), partial(_fewer_samples, dataset, size)
            yield _SpaceNeed(root, directory, what, size, present, less)


def _checkpoint_needs(session: Session) -> Iterator[_SpaceNeed]:
    for name, saves in minimum_saves(session.workload).items():
        checkpoint = session.workload.checkpoint(name)
        flights = checkpoint.background.in_flight if checkpoint.background is not None else 1
        base, drained = session.save_directory(checkpoint), session.drain_directory(checkpoint)
        total = state_files(checkpoint, checkpoint.split(session.world.size)).total()
        each = total if checkpoint.partner is None else 2 * total
        yield _copies_need(session, checkpoint, checkpoint.root, base, saves, flights, each)
        if checkpoint.drain is not None and drained is not None:
            yield _copies_need(session, checkpoint, checkpoint.drain, drained, saves, 1, total)


def _copies_need(
    session: Session, checkpoint: Checkpoint, root: str, base: Path, saves: int, flights: int, each: int
) -> _SpaceNeed:
    """Return the bytes of the copies, of `each` bytes, that exist at once in addition to those that are complete now.

    Up to `flights` copies are written in addition to those that are kept: a new one is complete before an old one is
    deleted.
    """
    copies = saves
    if checkpoint.keep is not None:
        copies = min(saves, max(checkpoint.keep + flights - len(checkpoint_numbers(base)), flights))
    what = f"checkpoint `{checkpoint.name}`" + (f" ({copies} copies at once)" if copies > 1 else "")
    what = what if root == checkpoint.root else f"what is drained of {what}"
    place, leftover = session.place_directory(root, base), partial(count_leftover_bytes, base)
    less = partial(_less_of_checkpoint, session, checkpoint, copies > flights + 1, copies * each)
    return _SpaceNeed(place, base, what, copies * each, leftover, less)


def _less_of_checkpoint(session: Session, checkpoint: Checkpoint, has_spare: bool, size: int, room: int) -> str:
    """Return the -D for fewer copies of a checkpoint, unless all are restored, else for a smaller model."""
    restores = (verb for verb, _ in flatten_verbs(session.workload.verbs) if isinstance(verb, Restore) and verb.each)
    if has_spare and all(verb.checkpoint != checkpoint.name for verb in restores):
        return f"-D {checkpoint.name}.keep=1"
    if checkpoint.model is None or not 0 < room < size:
        return ""
    scale = -(-checkpoint.model.scale * size // room)
    unit = 10 ** (len(str(scale)) - 1)
    plain = -(-scale // unit) * unit
    return f"-D {checkpoint.model.name}.scale={plain}" if plain <= _LARGEST_SCALE else ""


def _fewer_samples(dataset: Dataset, size: int, room: int) -> str:
    """Return the -D for as many samples of a data set of `size` bytes as fit into `room`, evenly over its files."""
    most = dataset.samples * room // max(size, 1)
    step = 10 ** (len(str(most)) - 1) if dataset.layout.files == dataset.samples else dataset.layout.files
    return f"-D {dataset.name}.samples={most // step * step}" if step <= most < dataset.samples else ""
