"""Run by every rank of a job: each format, written by these ranks by some api, and read in many ways, all verified.

Rank 0 prints, as JSON, for each case the digest of its files, and for each way of reading a hash of the samples in
the order in which they were read.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dliosim.execute.mpi.node_cores import node_cores
from dliosim.execute.mpi.world import World, make_world
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.formats.protocols import LibraryReadable
from dliosim.formats.registry import bind
from dliosim.model import (
    Access,
    Chunk,
    Compression,
    Dataset,
    Distribution,
    Job,
    Layout,
    Loop,
    Prepare,
    Shape,
    Shuffle,
    Workload,
    constant,
)
from dliosim.report.progress.progress_line import ProgressLine

SAMPLES = 25  # of two ranks one has nothing in the last step
SHARED, FEW, EACH = Layout("shared file", 1), Layout("files", 4), Layout("file per sample", SAMPLES)
FIXED, VARYING = constant(1500), Distribution("uniform", (1200.0, 3000.0))
INT16 = Shape((5, 10, 15), "int16")
TILE = Chunk(2 * 4 * 7, "elements", (2, 4, 7))
GZIP = Compression("gzip", 4)


def dataset(form: str, layout: Layout, size: Distribution = FIXED) -> Dataset:
    return Dataset("d", 5, SAMPLES, size, layout, "d", format=form)


def by_file(form: str, **changes: Any) -> Dataset:
    return replace(dataset(form, FEW, VARYING), sizes="by file", **changes)


CASES = {
    "npy": dataset("npy", FEW),
    "npy shared": dataset("npy", SHARED),
    "npy each": dataset("npy", EACH, VARYING),
    "npz": dataset("npz", FEW),
    "npz shared": dataset("npz", SHARED),
    "npz deflated": replace(dataset("npz", FEW), compress=GZIP, compressible=2.0),
    "csv": dataset("csv", SHARED, VARYING),
    "tfrecord": dataset("tfrecord", FEW, VARYING),
    "tfrecord shared": dataset("tfrecord", SHARED),
    "indexed": dataset("indexed", SHARED),
    "tar": dataset("tar", FEW, VARYING),
    "jpeg": dataset("jpeg", EACH, VARYING),
    "png": dataset("png", EACH),
    "hdf5": replace(dataset("hdf5", SHARED), shape=INT16),
    "hdf5 each": dataset("hdf5", EACH),
    "hdf5 chunks": replace(dataset("hdf5", SHARED), chunk=Chunk(4, "samples")),
    "hdf5 pieces": replace(dataset("hdf5", FEW), shape=INT16, chunk=Chunk(700, "bytes")),
    "hdf5 parts": replace(dataset("hdf5", SHARED), parts=3),
    "hdf5 tiles": replace(dataset("hdf5", FEW), shape=INT16, chunk=TILE),
    "hdf5 tiles gzip": replace(dataset("hdf5", SHARED), shape=INT16, chunk=TILE, compress=GZIP, compressible=2.0),
    "hdf5 gzip": replace(dataset("hdf5", FEW), chunk=Chunk(4, "samples"), compress=GZIP, compressible=2.0),
    "hdf5 pieces lzf": replace(dataset("hdf5", SHARED), chunk=Chunk(700, "bytes"), compress=Compression("lzf")),
    "parquet": replace(dataset("parquet", FEW), chunk=Chunk(3, "samples"), compress=Compression("snappy"), parts=2),
    "npz by file": by_file("npz"),
    "npy by file": by_file("npy"),
    "hdf5 by file": by_file("hdf5", chunk=Chunk(2000, "bytes")),
    "hdf5 gzip by file": by_file("hdf5", chunk=Chunk(2, "samples"), compress=GZIP, compressible=2.0),
    "parquet by file": by_file("parquet", chunk=Chunk(4, "samples")),
    "npz deflated by file": by_file("npz", compress=GZIP),
    "hdf5 plain by file": by_file("hdf5"),
}

DIRECT = {
    "posix": Access(),
    "in pieces": Access(transfer=400),
    "ahead": Access(readers=2, prefetch=3),
    "shared out": Access(readers=2, by="sample", prefetch=1),
    "mapped": Access(engine="mmap"),
    "queued": Access(engine="queued", depth=4),
    "independent": Access(api="mpi-independent"),
    "each": Access(open="each sample"),
}
TOGETHER = {"collective": Access(api="mpi-collective"), "in rounds": Access(api="mpi-collective", transfer=2000)}
LIBRARY = {"library": Access(through="library"), "library each": Access(through="library", open="each sample")}


@dataclass(frozen=True)
class Ranks:
    world: World
    directory: Path


def run(ranks: Ranks, described: Dataset, verb: Prepare | Loop) -> list[str]:
    """Perform one verb; the order hashes of its epochs on rank 0."""
    workload = Workload("formats", "", 5, Job(ranks.world.size), (described,), (), (verb,))
    session = Session(workload, ranks.world, {"data": ranks.directory}, Options(verify=True), ProgressLine(None))
    phases = run_workload(session)
    return [epoch.order_hash for phase in phases for epoch in getattr(phase.summary, "epochs", ())]


def train(access: Access, decode: bool = False) -> Loop:
    return Loop(
        "train", "l", "d", access, batch=4, shuffle=Shuffle("globally"), last_batch="keep", epochs=2, decode=decode
    )


def ways(described: Dataset) -> dict[str, Loop]:
    found = dict(DIRECT)
    if described.layout.files == 1:
        found |= TOGETHER
    if isinstance(bind(described), LibraryReadable):
        found |= LIBRARY
    loops = {name: train(access) for name, access in found.items()}
    return loops | {"decoded": train(Access(), True), "decoded ahead": train(Access(readers=2, prefetch=2), True)}


def digest_of(directory: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(directory.glob("d/*/**/*")):
        if path.is_file() and path.name != "manifest.json":
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()[:16]


def main(comm: MPI.Intracomm, where: str) -> None:
    directory = Path(where)
    gc.freeze()  # each loop looks for garbage, and would look through all modules
    world = make_world(comm, node_cores, "formats")
    outcome: dict[str, dict[str, object]] = {}
    apis = ("posix", "mpi-independent", "mpi-collective")
    # Many ranks on few cores take long to meet: a quarter of the cases each, in two ways.
    few = comm.size > 2
    for number, (name, described) in enumerate(CASES.items()):
        if few and number % 4 != comm.size // 2:
            continue
        place = directory / str(number)
        if comm.rank == 0:
            place.mkdir(parents=True)
        comm.Barrier()
        api = apis[number % (3 if described.layout.files == 1 else 2)]
        run(Ranks(world, place), described, Prepare("d", Access(api=api, transfer=(None, 1000, 1 << 20)[number % 3])))
        found: dict[str, object] = {"files": digest_of(place)}
        loops = ways(described)
        if few:
            other = list(loops)[1:][number % (len(loops) - 1)]
            loops = {"posix": loops["posix"], other: loops[other]}
        elif comm.size == 2:  # every other way of each: one rank alone reads in all of them
            others = list(loops)[1:][number % 2 :: 2]
            loops = {"posix": loops["posix"]} | {other: loops[other] for other in others}
        for way, loop in loops.items():
            found[way] = run(Ranks(world, place), described, loop)
        outcome[name] = found
    world.close()
    if comm.rank == 0:
        print(json.dumps(outcome))


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
