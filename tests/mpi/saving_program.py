"""Run by every rank of a job: saves in the background, drained and copied to partners, in every way of writing.

The directory is the first argument. Whatever fails on one rank, all must hear of, and nothing may wait for ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.checkpoints import checkpoint_session, save_steps, state_writer
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.checkpoints.restore import restore
from dliosim.execute.mpi.world import World, make_world
from dliosim.execute.phases.context import Options, Session
from dliosim.model import Access, Checkpoint, Job, Part, Restore, Workload, Writers
from dliosim.model.checkpoint import Background, Pace
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import checkpoint_faults

PARTS = (Part("w", 90_001, "total"), Part("s", 20_003, "per rank"))
STAGED = Checkpoint(
    "c", 1, PARTS, Writers("file per rank"), Access(transfer=16384), "c", keep=2, background=Background(in_flight=2)
)


def ways(ranks: int) -> Iterator[Checkpoint]:
    """Checkpoints of other names, each saved in another way."""
    partner = None if ranks == 1 else ranks - 1
    mpi = {api: Access(api, transfer=16384) for api in ("mpi-independent", "mpi-collective")}
    shared = Writers("shared file")
    yield replace(STAGED, name="own", drain="local", partner=partner)
    yield replace(STAGED, name="blocking", background=None, drain="local", partner=partner)
    yield replace(STAGED, name="simulated", background=Background(Pace(seconds=0.01), True), partner=partner)
    yield replace(STAGED, name="folders", folder=2, metadata=True, commit="metadata", drain="local")
    yield replace(STAGED, name="shared", writers=shared, drain="local", partner=partner)
    yield replace(STAGED, name="together", writers=shared, access=mpi["mpi-collective"], drain="local")
    yield replace(STAGED, name="separate", writers=shared, access=mpi["mpi-independent"])
    yield replace(STAGED, name="groups", writers=Writers("one per", 2), drain="local")
    yield replace(STAGED, name="one", writers=Writers("rank", 0), partner=partner)


def session(world: World, directory: Path, *checkpoints: Checkpoint) -> Session:
    workload = Workload("w", "", 1, Job(world.size), (), checkpoints, ())
    roots = {"data": directory / "data", "local": directory / "local"}
    for root in roots.values():
        root.mkdir(exist_ok=True, parents=True)
    return Session(workload, world, roots, Options(verify=True), ProgressLine(None))


def whole(base: Path) -> list[int]:
    """Numbers of the checkpoints; every byte must be as the manifest says, and no other file may be there."""
    found = sorted(path for path in base.iterdir() if path.is_dir())
    assert all(checkpoint_faults(path) == [] for path in found), found
    return [int(path.name) for path in found]


def check_every_way(world: World, directory: Path) -> None:
    checkpoints = [replace(one, path=one.name) for one in ways(world.size)]
    own = session(world, directory, *checkpoints)
    with CheckpointSession(own, checkpoints) as saves:
        # All of them at once in the background, some of them twice.
        for checkpoint in checkpoints * 3:
            saves.save(checkpoint)
    for checkpoint in checkpoints:
        record, _ = restore(own, checkpoint, Restore(checkpoint.name))
        assert world.size > 1 or record.bytes == 110_004
        if world.rank == 0:
            check_places(own, checkpoint)
        own.world.barrier()
    own.stores.release()


def check_places(own: Session, checkpoint: Checkpoint) -> None:
    base, copies = own.save_directory(checkpoint), own.drain_directory(checkpoint)
    assert whole(base) == [2, 3], checkpoint.name
    if copies is not None:
        assert whole(copies) == [2, 3], checkpoint.name
        first, second = (sorted(path.relative_to(one) for path in one.glob("*/**/*.ckpt")) for one in (base, copies))
        kept = [path for path in first if not path.name.startswith("partner_of_")]
        assert kept == second and all((base / path).read_bytes() == (copies / path).read_bytes() for path in kept)
    if checkpoint.partner is not None:
        for number in (2, 3):
            directory = base / f"{number:06d}"
            found = [directory / f"partner_of_{rank:06d}.ckpt" for rank in range(own.world.size)]
            assert sum(path.stat().st_size for path in found) == 90_001 + 20_003 * own.world.size
            if checkpoint.name in ("own", "blocking", "simulated"):
                saved = [directory / f"{rank:06d}.ckpt" for rank in range(own.world.size)]
                assert [path.read_bytes() for path in found] == [path.read_bytes() for path in saved]


@contextmanager
def failing(module: Any, name: str, here: bool) -> Iterator[None]:
    """A block in which something fails on this rank alone, if it is `here`."""
    action: Callable[..., Any] = getattr(module, name)

    def fail(*arguments: Any, **options: Any) -> Any:
        if here:
            raise ExecutionError("the disk is gone", "R402")
        return action(*arguments, **options)

    setattr(module, name, fail)
    yield
    setattr(module, name, action)


def check_failures(world: World, directory: Path) -> None:
    last = world.size - 1
    flushed, drained = replace(STAGED, path="f"), replace(STAGED, path="d", drain="local")
    copied = replace(STAGED, path="p", partner=1)
    foldered = replace(STAGED, path="s", folder=2)
    places = [(save_steps, "write_state", flushed), (checkpoint_session, "copy_file", drained)]
    places += [(state_writer, "make_directory", foldered)]
    places += [(save_steps, "open_writer", copied)] if last else []
    for module, name, checkpoint in places:
        own = session(world, directory, checkpoint)
        for again in (1, 3):
            error: DliosimError | None = None
            with failing(module, name, world.rank == last):
                try:
                    with CheckpointSession(own, [checkpoint]) as saves:
                        for _ in range(again):
                            saves.save(checkpoint)
                except DliosimError as failure:
                    error = failure
            assert error is not None and error.shared, (name, again)
            assert error.message == f"rank {last}: the disk is gone" and error.code == "R402"
        # What failed is gone, and the next one is none the worse.
        with CheckpointSession(own, [checkpoint]) as saves:
            saves.save(checkpoint)
        restore(own, checkpoint, Restore("c"))
        if world.rank == 0:
            whole(own.save_directory(checkpoint))
            copies = own.drain_directory(checkpoint)
            assert copies is None or len(whole(copies)) == 1
        world.barrier()
        own.stores.release()


def main(comm: MPI.Intracomm, where: str) -> None:
    world = make_world(comm, lambda node: node.size if node.size < 3 else 1, "job")
    directory = Path(where)
    check_every_way(world, directory / "ways")
    check_failures(world, directory / "failures")
    world.barrier()
    world.close()
    if comm.rank == 0:
        print("saved")


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
