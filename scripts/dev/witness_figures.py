"""An independent witness of figures: what a run says that it wrote and read, against what strace saw of it.

    python scripts/dev/witness_figures.py [--ranks 1 2 3] [--place DIR]

Each run prepares a data set of every format (compressed ones, one file of all ranks, collectively written), reads each
by its ranges or by its library, saves checkpoints (in the background, to one file, collectively), and restores them
(own part, everything, by another split, one rank for others, collectively). Every rank runs under a strace of its own.
Held against its calls are, from results.json and ranks.h5:

  - of a prepare `calls` and `bytes_moved`, which are the writes, and `bytes`, which is the size of the files;
  - of a save `calls`, `bytes_moved` and `bytes`; and `flush_seconds`, which is no shorter than from the first write of
    its files to the rename that declares it complete;
  - of a restore `calls`, `bytes_moved`, and `read_call_bytes` where results have it;
  - of restores and epochs `distinct_bytes`, which cannot be more than the ranks read;
  - of each epoch and rank `calls` and `bytes_moved`, which are the reads of the data set's files, and `rchar`, which is
    all that the process read between the two moments at which the rank asked the kernel for it; over all ranks it is
    `read_call_bytes`. Where two-phase reads are asked for, one rank reads for all.

Calls of MPI-IO that are collective, and of libraries, are none of the kernel's, so of these bytes are compared alone.
Prints what was seen and ends with status 1 where any of that is not so.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
from harness import orderly
from witness import CALL, DESCRIPTOR, NO_DATA, WRITES, Call, Unlike, count_text, trace

#: Files that say something of data or checkpoints.
LISTS = (*NO_DATA, "metadata.json")
READS = ("read", "readv", "pread64", "preadv", "preadv2")

#: What asking the kernel for its count takes: the kernel has it in what it says the next time.
OWN = 256

FEW, ONE, EACH = "3 files", "shared file", "file per sample"
FIXED, VARYING = "1500 B", "uniform(1.2 kB, 3 kB)"

#: Name: layout, size, other settings.
DATASETS = {
    "raw": (FEW, VARYING, "align 64 B"),
    "raw_one": (ONE, VARYING, "align 64 B"),
    "npy": (FEW, FIXED, "format npy"),
    "npz": (FEW, FIXED, "format npz"),
    "npz_gzip": (FEW, FIXED, "format npz\n    compress gzip 4"),
    "csv": (ONE, VARYING, "format csv"),
    "tfrecord": (FEW, VARYING, "format tfrecord"),
    "indexed": (ONE, FIXED, "format indexed"),
    "tar": (FEW, VARYING, "format tar"),
    "jpeg": (EACH, VARYING, "format jpeg"),
    "png": (EACH, FIXED, "format png"),
    "hdf5": (FEW, FIXED, "format hdf5"),
    "hdf5_parts": (ONE, FIXED, "format hdf5\n    datasets 3"),
    "hdf5_chunks": (FEW, FIXED, "format hdf5\n    chunk 4 samples"),
    "hdf5_gzip": (FEW, FIXED, "format hdf5\n    chunk 4 samples\n    compress gzip 4"),
    "hdf5_lzf": (ONE, FIXED, "format hdf5\n    chunk 700 B\n    compress lzf"),
    "parquet": (FEW, FIXED, "format parquet\n    chunk 3 samples\n    compress snappy"),
}
#: Prepared and read otherwise than by posix.
APIS = {"raw_one": ("mpi-collective", "mpi-collective"), "csv": ("mpi-independent", "mpi-independent")}
AHEAD = ("raw", "csv", "hdf5_chunks")
LIBRARY = ("npy", "npz", "npz_gzip", "hdf5", "hdf5_chunks", "hdf5_gzip", "parquet")

DATASET = """\
dataset {name} {{
    samples 25
    size    {size}
    layout  {layout}
    {settings}
    path    "{name}"
}}
"""
PREPARE = """\
prepare {name} {{
    api {api}
}}
"""
LOOP = """\
train {name}_{way} {{
    read       {name}
    epochs     2
    batch      4 per rank
    shuffle    samples globally each epoch
    last batch keep
    {settings}
}}
"""

CHECKPOINT = """\
checkpoint {name} {{
    part      rows     24 x 512 of bf16 split by rows
    part      norm     4096 of bf16 whole
    part      moments  50 kB total
    part      rng      1001 B per rank
    transfer  16 KiB
    parallel  tensor $ranks
    path      "{name}"
    {settings}
}}
"""
#: Name: settings, and how it is restored.
CHECKPOINTS = {
    "own": ("", ""),
    "whole": ("", " { reads everything }"),
    "once": ("", " { reads everything once }"),
    "split": ("metadata on", " { parallel data $ranks }"),
    "one": ("writers all ranks into shared file\n    api mpi-independent", ""),
    "together": ("writers all ranks into shared file\n    api mpi-collective", ""),
    "crowd": ("writers all ranks into shared file\n    api mpi-collective", " { reads everything }"),
    "behind": ("async on", ""),
}
COLLECTIVE = ("together", "crowd")


def pattern_text(datasets: Sequence[str], checkpoints: Sequence[str]) -> str:
    """Return the pattern with all verbs of these data sets and checkpoints, one after the other."""
    said = ["dlio 1\nworkload witness_figures\n"]
    for name in datasets:
        layout, size, settings = DATASETS[name]
        said.append(DATASET.format(name=name, layout=layout, size=size, settings=settings))
    for name in checkpoints:
        said.append(CHECKPOINT.format(name=name, settings=CHECKPOINTS[name][0]))
    for name in datasets:
        written, read = APIS.get(name, ("posix", "posix"))
        said.append(PREPARE.format(name=name, api=written))
        if name != "parquet":  # that is decoded by its library alone
            said.append(LOOP.format(name=name, way="direct", settings=f"api {read}"))
        if read == "mpi-collective":
            said.append(LOOP.format(name=name, way="aggregated", settings=f"api {read}\n    hints two-phase"))
        if name in AHEAD:
            said.append(LOOP.format(name=name, way="ahead", settings=f"api {read}\n    readers 2"))
        if name in LIBRARY:
            said.append(LOOP.format(name=name, way="library", settings="through library"))
    said += [f"save {name}\n" for name in checkpoints]
    said += [f"restore {name}{CHECKPOINTS[name][1]}\n" for name in checkpoints]
    return "".join(said)


@dataclass(frozen=True)
class Seen:
    """The calls of one rank in strace: those on files below its data, and all reads; some ask for the count."""

    calls: list[Call]
    reads: list[tuple[float, int]]
    asked: list[float]


def parse_reads(place: Path, rank: int, calls: list[Call]) -> Seen:
    """Return all reads of a rank but of waits for a core, and the times when its main thread read its process's count.

    The thread that looks for stalls reads it too, of ranks that are late.
    """
    reads, asked = [], []
    for file in place.glob(f"calls.{rank}.*"):
        for line in file.read_text(errors="replace").splitlines():
            parsed = CALL.match(line)
            if parsed is None or parsed[2] not in READS or int(parsed[4]) <= 0:
                continue
            path = DESCRIPTOR.search(parsed[3])
            if path is None or not path[1].endswith("/schedstat"):  # which a loop takes from its count again
                reads.append((float(parsed[1]), int(parsed[4])))
            if path is not None and path[1] == f"/proc/{file.suffix[1:]}/io":  # the file is named by its thread
                asked.append(float(parsed[1]))
    return Seen(calls, sorted(reads), sorted(asked))


def count_and_bytes(calls: Sequence[Call]) -> tuple[int, int]:
    """Return the number of calls, and the bytes that they moved."""
    return len(calls), sum(call.result for call in calls)


def data_calls(seen: Sequence[Seen], path: str, kinds: Sequence[str]) -> list[Call]:
    """Return the calls of these kinds that moved bytes of the files below a path, without lists of files."""
    return [
        call
        for one in seen
        for call in one.calls
        if call.name in kinds and call.path.startswith(f"{path}/") and not Path(call.path).name.startswith(LISTS)
        if call.result > 0 or call.name.startswith("p")
    ]


def same(what: str, claimed: Mapping[str, Any], **found: int) -> None:
    """Check that figures are what was seen."""
    wrong = [f"{name} {claimed[name]}, seen {value}" for name, value in found.items() if claimed[name] != value]
    if wrong:
        raise Unlike(f"{what}: {'; '.join(wrong)}")


def check_prepare(phase: Mapping[str, Any], seen: Sequence[Seen], data: Path) -> str:
    name, files = phase["name"], phase["files"]
    calls, moved_bytes = count_and_bytes(data_calls(seen, name, WRITES.split(",")))
    sizes = [
        path.stat().st_size for path in (data / name).rglob("*") if path.is_file() and not path.name.startswith(LISTS)
    ]
    found = {"bytes": sum(sizes), "files": len(sizes), "bytes_moved": moved_bytes}
    collective = APIS.get(name, ("posix",))[0] == "mpi-collective"
    same(f"prepare {name}", files, **found if collective else {**found, "calls": calls})
    return f"prepare {name}: {count_text(calls, 'write')} of {moved_bytes} bytes, files of {sum(sizes)}"


def check_save(phase: Mapping[str, Any], seen: Sequence[Seen]) -> str:
    name, files = phase["name"], phase["files"]
    writes = data_calls(seen, name, WRITES.split(","))
    calls, moved_bytes = count_and_bytes(writes)
    found = {"bytes": moved_bytes, "bytes_moved": moved_bytes}
    same(f"save {name}", files, **found if name in COLLECTIVE else {**found, "calls": calls})
    renamed = max(
        call.time for one in seen for call in one.calls if call.name.startswith("rename") and call.path.startswith(name)
    )
    lasted = renamed - min(call.time for call in writes)
    if files["flush_seconds"]["max"] and files["flush_seconds"]["max"] < lasted:
        raise Unlike(f"save {name}: a flush of {files['flush_seconds']['max']} s, seen {lasted}")
    return f"save {name}: {count_text(calls, 'write')} of {moved_bytes} bytes"


def check_restore(phase: Mapping[str, Any], seen: Sequence[Seen], spans: Sequence[tuple[float, float]]) -> str:
    """Check a restore. `spans` are the moments between which each rank counted; all of its time where it did not."""
    name, files = phase["name"], phase["files"]
    spans = spans or [(0.0, math.inf)] * len(seen)
    reads = [
        call
        for one, (begin, end) in zip(seen, spans, strict=True)
        for call in data_calls([one], name, READS)
        if begin < call.time < end
    ]
    calls, moved_bytes = count_and_bytes(reads)
    if name in COLLECTIVE:
        if files.get("read_call_bytes") is None and files["bytes_moved"] < moved_bytes:
            raise Unlike(f"restore {name}: bytes_moved {files['bytes_moved']}, seen {moved_bytes}")
    else:
        same(f"restore {name}", files, calls=calls, bytes_moved=moved_bytes)
    if files.get("read_call_bytes") is not None:
        between = sum(read_between(one, *span) for one, span in zip(seen, spans, strict=True))
        close(f"restore {name}: read_call_bytes", files["read_call_bytes"], between, len(seen))
    once(f"restore {name}", files, moved_bytes)
    return f"restore {name}: {count_text(calls, 'read')} of {moved_bytes} bytes"


def close(what: str, claimed: int, found: int, ranks: int = 1) -> None:
    """Check that the kernel's count is what was seen, plus at most what asking for it takes."""
    if not 0 <= claimed - found <= OWN * ranks:
        raise Unlike(f"{what} {claimed}, seen {found}")


def once(what: str, claimed: Mapping[str, Any], found: int) -> None:
    """Check that there are no more distinct bytes than bytes that were read."""
    if (claimed["distinct_bytes"] or 0) > found:
        raise Unlike(f"{what}: distinct_bytes {claimed['distinct_bytes']}, seen {found} in all")


def check_loop(
    phase: Mapping[str, Any], rows: h5py.Group, seen: Sequence[Seen], spans: Sequence[Any], aggregates: bool
) -> str:
    """Check a loop. `spans` are those of its epochs: of each rank the two moments between which it counted.

    `aggregates` is whether the MPI-IO lets one rank read for all where the hints say so.
    """
    name, total = phase["name"], 0
    dataset, way = name.rsplit("_", 1)
    for epoch, of_ranks in enumerate(spans, 1):
        said, called, read = phase["epochs"][epoch - 1], 0, []
        for rank, (begin, end) in enumerate(of_ranks):
            what = f"{name}, epoch {epoch}, rank {rank}"
            claimed = {column: int(rows[column][epoch - 1, rank]) for column in ("calls", "bytes_moved", "rchar")}
            reads = [call for call in data_calls([seen[rank]], dataset, READS) if begin < call.time < end]
            calls, moved_bytes = count_and_bytes(reads)
            read.append(moved_bytes)
            called += read_between(seen[rank], begin, end)
            close(f"{what}: rchar", claimed["rchar"], read_between(seen[rank], begin, end))
            if way == "library":
                close(f"{what}: bytes_moved", claimed["bytes_moved"], moved_bytes)
            elif APIS.get(dataset, ("", ""))[1] != "mpi-collective":
                same(what, claimed, calls=calls, bytes_moved=moved_bytes)
        total += sum(read)
        close(f"{name}, epoch {epoch}: read_call_bytes", said["read_call_bytes"], called, len(of_ranks))
        if way != "library":
            once(f"{name}, epoch {epoch}", said, sum(read))
        if aggregates and way == "aggregated" and sum(size > 0 for size in read) != 1:
            raise Unlike(f"{name}, epoch {epoch}: ranks read {read} bytes, and one was to read for all")
    return f"{name}: {total} bytes read in {count_text(len(spans), 'epoch')}"


def read_between(seen: Seen, begin: float, end: float) -> int:
    """Return the bytes of all reads of a rank after the one at `begin`, and before that at `end`."""
    return sum(size for time, size in seen.reads if begin < time < end)


def check(results: Mapping[str, Any], rows: h5py.File, seen: Sequence[Seen], data: Path) -> Iterator[str]:
    """Check every figure, phase by phase. Raises Unlike."""
    # A thread asks for the count in pairs, at the beginning and at the end of what is measured.
    spans = [list(zip(one.asked[::2], one.asked[1::2], strict=True)) for one in seen]
    loops = {group.attrs["name"]: group for group in rows.values()}
    at = 0
    for phase in results["phases"]:
        if phase["kind"] == "prepare":
            yield check_prepare(phase, seen, data)
        elif phase["kind"] == "save":
            yield check_save(phase, seen)
        elif phase["kind"] == "restore":
            asks = phase["files"].get("read_call_bytes") is not None
            own = [of_rank[at] for of_rank in spans] if asks else []
            at += asks
            yield check_restore(phase, seen, own)
        else:
            epochs = len(phase["epochs"])
            own = [[of_rank[at + epoch] for of_rank in spans] for epoch in range(epochs)]
            at += epochs
            aggregates = results["environment"]["mpi_io"] != "OMPIO"  # which has no such hints
            yield check_loop(phase, loops[phase["name"]], seen, own, aggregates)
    if any(at != len(own) for own in spans):
        raise Unlike(f"the count was asked for {[len(own) for own in spans]} times, and {at} are known")


def run_traced(text: str, ranks: int, place: Path) -> tuple[dict[str, Any], list[Seen]]:
    """Run a pattern; return its results, and what was seen of each rank."""
    pattern = place / "witness_figures.dlio"
    pattern.write_text(text)
    calls = trace(pattern, [], ranks, place)
    results = json.loads((place / "out" / "results.json").read_text())
    return results, [parse_reads(place, rank, own) for rank, own in enumerate(calls)]


def witness(
    ranks: int, place: Path, datasets: Sequence[str] = tuple(DATASETS), checkpoints: Sequence[str] = tuple(CHECKPOINTS)
) -> Iterator[str]:
    """Yield the findings of one run, a line each; raises Unlike."""
    results, seen = run_traced(pattern_text(datasets, checkpoints), ranks, place)
    with h5py.File(place / "out" / "ranks.h5") as rows:
        yield from check(results, rows, seen, place / "data")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--place", help="where data and traces go for a while (default: the temporary directory)")
    options = parser.parse_args()
    if shutil.which("strace") is None:
        sys.exit("no strace on the path: Debian's package is called strace")
    status = 0
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory(prefix="dliosim-witness-", dir=options.place) as place:
            print(f"{count_text(ranks, 'rank')}:")
            try:
                for line in witness(ranks, Path(place)):
                    print(f"  {line}")
            except Unlike as error:
                print(f"  NOT SO: {error}")
                status = 1
    return status


if __name__ == "__main__":
    orderly(main)
