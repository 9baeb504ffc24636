"""Run by every rank of a job: each format, written by these ranks by some api, and read in many ways, all verified.

Rank 0 prints, as JSON, of each case the digest of its files, and for each way of reading a hash of the samples in the
order in which they were read; then how many figures of all that was done it compared with the forecast, and those that
differ.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dliosim.execute.mpi.world import World, make_world, node_cores
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
from dliosim.plan.forecast.forecast import forecast
from dliosim.report.progress.progress_line import ProgressLine
from tests.examples import ALL
from tests.mpi.forecast_program import Compared, compare

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
    "scattered": Access(scatter=True),
    "each": Access(open="each sample"),
}
TOGETHER = {"collective": Access(api="mpi-collective"), "in rounds": Access(api="mpi-collective", transfer=2000)}
LIBRARY = {"library": Access(through="library"), "library each": Access(through="library", open="each sample")}
DECODED = {"decoded": Access(), "decoded ahead": Access(readers=2, prefetch=2)}
#: In the order of the file, calls continue where those before them ended: only then is every figure known before.
IN_ORDER = {
    "each in order": Access(open="each sample"),
    "each in pieces": Access(open="each sample", transfer=700),
    "library in order": Access(through="library", open="each sample"),
}


#: Cases of each number of ranks, by their number's remainder of 4: one rank has all, two have all at night.
SHARES = {2: (0, 3), 3: (1,), 5: (2,)}


def ways(described: Dataset) -> dict[str, Loop]:
    """The loops of a case by the way of reading; all have one name, since the order of samples depends on it."""
    found = DIRECT | DECODED | IN_ORDER
    if described.layout.files == 1:
        found |= TOGETHER
    if isinstance(bind(described), LibraryReadable):
        found |= LIBRARY
    else:
        del found["library in order"]
    return {way: train(way, access) for way, access in found.items()}


def train(way: str, access: Access) -> Loop:
    shuffle = Shuffle() if way in IN_ORDER else Shuffle("globally")
    return Loop("train", "l", "d", access, batch=4, shuffle=shuffle, last_batch="keep", epochs=2, decode=way in DECODED)


def some_ways(described: Dataset, ranks: int, number: int) -> dict[str, Loop]:
    """The loops for this number of ranks: a third on one, another on two, and one next to the first on more.

    Many ranks on few cores take long to meet. `number` is that of the case: the cases of a format have all ways
    together. At night one rank has all.
    """
    first, *others = ways(described).items()
    if ranks == 2 or (ranks == 1 and not ALL):
        others = others[(number + ranks) % 3 :: 3]
    elif ranks > 2:
        others = [others[number % len(others)]]
    return dict([first, *others])


@dataclass
class Case:
    """A data set in a directory of its own, and the comparison of what is done with it and was planned."""

    described: Dataset
    directory: Path
    world: World
    compared: Compared

    def run(self, verb: Prepare | Loop, what: str) -> list[str]:
        """Perform one verb, and compare it with its forecast; the order hashes of its epochs on rank 0."""
        workload = Workload("formats", "", 5, Job(self.world.size), (self.described,), (), (verb,))
        session = Session(workload, self.world, {"data": self.directory}, Options(verify=True), ProgressLine(None))
        (phase,) = run_workload(session)
        if self.world.rank == 0:
            compare(forecast(workload).phases, phase, self.compared, what)
        return [epoch.order_hash for epoch in getattr(phase.summary, "epochs", ())]


def digest_of(directory: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(directory.glob("d/*/**/*")):
        if path.is_file() and path.name != "manifest.json":
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()[:16]


def main(comm: MPI.Intracomm, where: str) -> None:
    directory = Path(where)
    world = make_world(comm, node_cores, "formats")
    outcome: dict[str, dict[str, object]] = {}
    compared = Compared()
    apis = ("posix", "mpi-independent", "mpi-collective")
    for number, (name, described) in enumerate(CASES.items()):
        if comm.size > 1 and number % 4 not in SHARES[comm.size] and not (ALL and comm.size == 2):
            continue
        place = directory / str(number)
        if comm.rank == 0:
            place.mkdir(parents=True)
        comm.Barrier()
        gc.collect()
        gc.freeze()  # each loop looks for garbage, and would look through all modules
        api = apis[number % (3 if described.layout.files == 1 else 2)]
        case = Case(described, place, world, compared)
        case.run(Prepare("d", Access(api=api, transfer=(None, 1000, 1 << 20)[number % 3])), f"{name}, prepare")
        outcome[name] = {"files": digest_of(place)}
        for way, loop in some_ways(described, comm.size, number).items():
            hashes = case.run(loop, f"{name}, {way}")
            if way not in IN_ORDER:
                outcome[name][way] = hashes
    world.close()
    if comm.rank == 0:
        print(json.dumps({"cases": outcome, "compared": asdict(compared)}))


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
