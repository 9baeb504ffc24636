"""Run by every rank of a job: files that libraries wrote, found, planned and read in many ways.

Rank 0 writes the files, and knows by the same libraries what each sample holds. For each case all ranks run a loop over
them by each way of reading, and put together what their plans say that they read: the bytes at those ranges, decoded
where they are encoded. Rank 0 prints, as JSON, what it knows and what was found.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files
from dliosim.execute.backends.registry import open_readers
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.datasets.file_names import FileNames
from dliosim.execute.datasets.open_dataset import open_dataset
from dliosim.execute.mpi.world import World, make_world, node_cores
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.formats.protocols import LibraryReadable
from dliosim.formats.registry import bind
from dliosim.model import Access, Dataset, Job, Loop, Shuffle, Workload
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.samples.places import IndexedPlaces
from dliosim.plan.samples.sample_index import locate_ranges
from dliosim.plan.samples.sampler import plan_epoch
from dliosim.report.progress.progress_line import ProgressLine
from tests.mpi.found_files import CASES, FILL, write

#: Access, and shards and shuffles with it.
WAYS = {
    "posix": (Access(), "by sample", Shuffle()),
    "sorted": (Access(order="by offset", transfer=64), "by sample", Shuffle(files="globally")),
    "ahead": (Access(readers=2, prefetch=2), "by block", Shuffle(files="within shard")),
    "independent": (Access(api="mpi-independent"), "by file", Shuffle()),
    "mapped": (Access(engine="mmap"), "by file", Shuffle("globally", files="within shard")),
    "library": (Access(through="library"), "by sample", Shuffle("globally", files="globally")),
}


def pattern(source: str, settings: dict[str, object]) -> str:
    said = [f'from files "{source}"']
    if source.endswith("/*"):  # names without an ending do not say what they are
        said.append("format raw")
    for head, value in settings.items():
        said.append(f"{head} " + (", ".join(f'"{one}"' for one in value) if isinstance(value, tuple) else str(value)))
    loop = "read d\nbatch 2 per rank\nlast batch keep\nepochs 2"
    return "dlio 1\nworkload w\ndataset d {{\n{}\n}}\ntrain {{\n{}\n}}\n".format("\n".join(said), loop)


@dataclass(frozen=True)
class Found:
    """A case as it was found, on every rank."""

    world: World
    root: Path
    finder: FileFinder
    workload: Workload


def contents_of(session: Session, dataset: Dataset, samples: list[int]) -> list[bytes | None]:
    """Return the decoded bytes at the planned ranges of samples; None where only the library can decode."""
    opened = open_dataset(session, dataset)
    assert isinstance(opened.places, IndexedPlaces)
    form, index = opened.places.form, opened.places.index
    result: list[bytes | None] = []
    for sample in samples:
        found = locate_ranges(index, np.array([sample]))
        file = int(index.files_of(np.array([sample]))[0])
        within = sample - int(index.first_sample[file])
        data, known = b"", True
        whole = opened.path(file).read_bytes()
        for number in range(len(index.columns)):
            column, part = opened.places.decoder_column(number, file), b""
            assert column is not None
            for row in np.flatnonzero(found.column == number).tolist():
                offset = int(found.offset[row])
                stored = whole[offset : offset + int(found.length[row])]
                decoded = form.decode(column, memoryview(stored)) if found.begin[row] < 0 else None
                known = known and (found.begin[row] >= 0 or decoded is not None or form.name == "csv")
                part += stored if decoded is None else decoded.tobytes()
            if column.row_bytes and not part:  # no place in the file: what HDF5 fills in
                part = np.full(6 * 7, FILL, "<i4").tobytes()
            if column.row_bytes == 0 and column.samples > 1:
                each = column.unit_bytes // column.samples
                part = part[within % column.samples * each :][:each]
            if column.pieces > 1:
                part = part[: 6 * 7 * 4]  # the last chunk of a sample reaches beyond it
            data += part
        result.append(data if known else None)
    return result


def digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()[:16]


def read_by_library(session: Session, dataset: Dataset) -> list[str] | None:
    data = open_dataset(session, dataset)
    form = data.places.form
    if not isinstance(form, LibraryReadable) or not isinstance(data.places, IndexedPlaces):
        return None
    index = data.places.index
    result = []
    for file, count in enumerate(np.diff(index.first_sample).tolist()):
        handle = form.open_library(data.path(file), None, False)
        for sample in range(count):
            buffer = bytearray(int(index.sample_bytes[file]))
            assert handle.read(sample, 1, memoryview(buffer)) == len(buffer)
            result.append(digest(bytes(buffer)) or "")
        handle.close()
    return result


def read_one_way(found: Found, name: str) -> dict[str, object]:
    """Run the loop by one way of reading; on rank 0 its figures next to those of its forecast."""
    world, (loop,) = found.world, found.workload.verbs
    assert isinstance(loop, Loop)
    access, shard, shuffle = WAYS[name]
    decode = name in ("posix", "ahead")
    loop = replace(loop, access=access, shard=cast(Any, shard), shuffle=shuffle, decode=decode)
    workload = replace(found.workload, verbs=(loop,))
    session = Session(
        workload, world, {"data": found.root}, Options(), ProgressLine(None), sources=found.finder.sources
    )
    (phase,) = run_workload(session)
    (dataset,) = workload.datasets
    places = open_dataset(session, dataset).places
    assert isinstance(places, IndexedPlaces)
    counts = np.zeros(dataset.samples, np.int64)
    for epoch in range(2):
        np.add.at(counts, plan_epoch(loop, places, workload.job, world.rank, epoch).sample, 1)
    world.allreduce(counts, "sum")
    if world.rank:
        return {}
    first = forecast(workload, {dataset.found: places.index}).phases[0]
    ran = phase.summary.epochs[0]
    figures: dict[str, object] = {
        "times": sorted(set(counts.tolist())),
        "bytes": [ran.bytes_from_storage, first.bytes.total],
        "samples": [ran.samples, first.samples.total],
    }
    if name == "posix":
        figures["planned"] = [digest(one) for one in contents_of(session, dataset, list(range(dataset.samples)))]
    if name == "library":
        figures["library"] = read_by_library(session, dataset)
    return figures


def check_link_changed(comm: MPI.Intracomm, root: Path) -> None:
    """A link to the one file that all ranks open, which leads out of the root by now: every rank says so."""
    link = root / "link.dat"
    if comm.rank == 0:
        root.mkdir()
        (root.parent / "outside.dat").write_bytes(b"x" * 100)
        link.symlink_to("../outside.dat")
    comm.Barrier()
    name = np.frombuffer(link.name.encode(), np.uint8)
    names = FileNames(name, np.array([0, len(name)]), np.ones(1, np.int64), os.path.realpath(root))
    for access in (Access(api="mpi-independent"), Access(api="mpi-collective")):
        (reader,) = open_readers(access, Files(root, names, lambda file: 100, True, comm))
        try:
            reader.begin_epoch()
        except ExecutionError as error:
            assert (error.code, error.shared) == ("R401", comm.size > 1)
            assert "leads out of the root" in error.message
        else:
            raise AssertionError(f"{access.api} went out of the root")
        reader.close()


def main(comm: MPI.Intracomm, where: str) -> None:
    directory = Path(where)
    gc.freeze()  # each loop looks for garbage, and would look through all modules
    world = make_world(comm, node_cores, "found")
    outcome: dict[str, dict[str, object]] = {}
    # Ranks without cores of their own take long to meet: several do less each.
    for place, name in enumerate(CASES):
        if comm.size > 2 and place % 3:
            continue
        source, settings, contents = world.run_on_rank_0("write", lambda name=name: write(name, directory / "data"))
        finder, said = FileFinder({"data": directory / "data"}, ProgressLine(None)), directory / "pattern.dlio"

        def compiled() -> Workload:
            from dliosim.language.compile import compile_pattern

            said.write_text(pattern(source, settings), encoding="utf-8")  # noqa: B023
            return compile_pattern(said, [], Job(world.size), finder)[0]  # noqa: B023

        found = Found(world, directory / "data", finder, world.run_on_rank_0("compile", compiled))
        result: dict[str, object] = {"written": [digest(one) for one in contents]}
        others = [each for each in WAYS if each not in ("posix", "library")]
        if comm.size > 1:  # another way for each case
            others = [others[place % len(others)]]
        if isinstance(bind(found.workload.datasets[0]), LibraryReadable):
            others.append("library")
        for each in ("posix", *others):
            result[each] = read_one_way(found, each)
        outcome[name] = result
    check_link_changed(comm, directory / "changed")
    world.close()
    if comm.rank == 0:
        print(json.dumps(outcome))


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
