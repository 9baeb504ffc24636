"""An independent witness of checkpoints: what the kernel saw of saves and restores, by strace, against their plan.

    python scripts/dev/witness_checkpoints.py [--ranks 1 2 3] [--place DIR]

Each run saves checkpoints in five ways (files of each rank's own in folders, tensors split; in the background; replicas
dealt, calls that continue from tensor to tensor; one file of all by MPI-IO; ranks that send theirs to a neighbour), and
restores them, also by ranks that split them otherwise or read for each other. Every rank runs under a strace of its
own. It must show:

  - of each save and rank, the writes that `plan/checkpoints/layout.py` cuts the plan's shards into: file, offset,
    length, in that order, and no other call that changes a file of a checkpoint;
  - of each restore and rank, the reads that `plan/checkpoints/reshard.py` lists, in that order, and no other read but
    one of the file of all plans, where there is one;
  - the events of `commit rename`, `metadata` and `none`, one after the other and no others: files synced by every rank
    that wrote them, file of all plans, folders, manifest, directories, names;
  - no fsync at all of what has `commit none` and `fsync off`;
  - in the directory exactly the files of the manifest, each with its size and its CRC-32 when it is read again.

Prints what was seen and ends with status 1 where any of that is not so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path

from harness import orderly
from witness import WRITES, Call, Extent, Unlike, count_text, reads_of, trace

from dliosim.language.compile import compile_pattern
from dliosim.model import Checkpoint, Job, Restore, Save, Workload
from dliosim.plan.checkpoints.layout import METADATA, StateFiles, cut_pieces, state_files
from dliosim.plan.checkpoints.reshard import cut_steps, lone_reads, shard_reads, shared_reads, whole_state_reads
from dliosim.plan.checkpoints.shards import StoredBlock

HEAD = """\
dlio 1
workload witness_checkpoints "checkpoints that are saved and restored in many ways"
param ways = 2 - $ranks + 2 * floor($ranks / 2)  "2, and 1 where ranks are odd"

"""

CHECKPOINT = """\
checkpoint {name} {{
    part      rows     24 x 512 of bf16 split by rows
    part      columns  12 x 4096 of bf16 split by columns
    part      norm     4096 of bf16 whole
    part      moments  50 kB total
    part      rng      1001 B per rank
    transfer  16 KiB
    path      "{name}"
    {settings}
}}
"""

#: What each has besides.
WAYS = {
    "split": ("parallel tensor $ranks", "metadata on", "folder per rank"),
    "copied": ("replicas dealt", "pieces whole", "commit metadata"),
    "shared": (
        "writers all ranks into shared file",
        "api mpi-independent",
        "parallel tensor $ways data $ranks / $ways",
    ),
    "behind": ("parallel tensor $ranks", "writers into file per rank", "async on"),
    "sent": ("writers one per 2 ranks", "pieces whole", "metadata on", "commit none", "fsync off"),
}

VERBS = """\
save behind
save split
save behind
restore split
restore split { parallel data $ranks }
save copied
restore copied { parallel tensor $ranks }
restore copied { parallel tensor $ways data $ranks / $ways }
save shared
restore shared { parallel tensor $ranks }
save sent
restore sent { shifted by 1 rank }
restore sent {
    parallel tensor $ways data $ranks / $ways
    reads    own part once
}
restore sent { reads everything once }
save split
"""

LISTS = ("manifest.json", "manifest.json.partial", METADATA)

#: Calls besides writes that change what a file holds.
CHANGES = (*WRITES.split(","), "ftruncate", "fallocate", "copy_file_range", "sendfile", "splice")

Event = tuple[str, str]
"""What was called, on what below the directory of all numbers of a checkpoint ("" for itself)."""


def pattern_text() -> str:
    found = [CHECKPOINT.format(name=name, settings="\n    ".join(settings)) for name, settings in WAYS.items()]
    return HEAD + "".join(found) + VERBS


def saves_and_restores(workload: Workload) -> list[tuple[Checkpoint, int, Save | Restore]]:
    """Return the saves and restores of the pattern in order, with the number of the save that each makes or reads."""
    numbers: Counter[str] = Counter()
    found = []
    for verb in workload.verbs:
        if isinstance(verb, Save | Restore):
            numbers[verb.checkpoint] += isinstance(verb, Save)
            found.append((workload.checkpoint(verb.checkpoint), numbers[verb.checkpoint], verb))
    return found


def base_of(checkpoint: Checkpoint, ranks: int) -> str:
    """Return the directory with the numbers of a checkpoint, below the data."""
    return f"{checkpoint.path}/{checkpoint.digest(checkpoint.split(ranks))}"


def save_directory(checkpoint: Checkpoint, number: int) -> str:
    """Return the directory in which a checkpoint is written."""
    return f"{number:06d}.partial" if checkpoint.commit == "rename" else f"{number:06d}"


def check_writes(calls: Sequence[Sequence[Call]], workload: Workload) -> Iterator[str]:
    """Check that every call that changes a file of a checkpoint is one of the plan's, in the order of its saves."""
    ranks = len(calls)
    for rank, some in enumerate(calls):
        writes = [call for call in some if call.name in CHANGES and Path(call.path).name not in (*LISTS, "lock")]
        seen = sort_by_checkpoint([write_extent(call) for call in writes], workload)
        wanted: list[Extent] = []
        for checkpoint, number, verb in saves_and_restores(workload):
            if isinstance(verb, Save):
                directory = f"{base_of(checkpoint, ranks)}/{save_directory(checkpoint, number)}"
                planned = plan_writes(checkpoint, ranks, rank)
                wanted += [(f"{directory}/{name}", offset, length) for name, offset, length in planned]
        same(f"rank {rank} of {ranks}, write", seen, sort_by_checkpoint(wanted, workload))
        yield f"rank {rank}: {count_text(len(seen), 'write')} of {count_text(len({path for path, *_ in seen}), 'file')}"
    yield "as the plan cuts them, in its order, and no other"


def sort_by_checkpoint(extents: Sequence[Extent], workload: Workload) -> list[Extent]:
    """Return the same, grouped by checkpoint; the order within each group stays."""
    paths = [checkpoint.path for checkpoint in workload.checkpoints]
    return sorted(extents, key=lambda extent: paths.index(extent[0].partition("/")[0]))


def write_extent(call: Call) -> Extent:
    """Return file, offset and length of a write, which must be positioned and not short."""
    if call.name != "pwrite64":
        raise Unlike(f"{call.name}({call.arguments}) = {call.result}: no call of the plan's")
    length, offset = (int(argument) for argument in call.arguments.rsplit(", ", 2)[1:])
    if call.result != length:
        raise Unlike(f"{call.name}({call.arguments}) returned {call.result}")
    return call.path, offset, length


def plan_writes(checkpoint: Checkpoint, ranks: int, rank: int) -> Iterator[Extent]:
    """Yield what a rank writes in one save: first what it owns, then what others send to it."""
    files = state_files(checkpoint, checkpoint.split(ranks))
    if files.writer(rank) == rank:
        for owner in (rank, *files.senders(rank)):
            for piece in cut_pieces(files.shards(owner), checkpoint.access.transfer, checkpoint.pieces == "whole"):
                yield piece.file, piece.offset, piece.length


def check_restores(calls: Sequence[Sequence[Call]], workload: Workload) -> Iterator[str]:
    """Check that every read of a checkpoint's file is one of the plan's, in its order, after the file of all plans."""
    ranks, strided = len(calls), 0
    for rank, some in enumerate(calls):
        lists = [call for call in some if Path(call.path).name == METADATA and call.name in ("read", "pread64")]
        seen = [extent for _, extent in reads_of([call for call in some if call not in lists])]
        wanted: list[Extent] = []
        wanted_lists = []
        for checkpoint, number, verb in saves_and_restores(workload):
            if isinstance(verb, Restore):
                directory = f"{base_of(checkpoint, ranks)}/{number:06d}"
                wanted_lists += [f"{directory}/{METADATA}"] * checkpoint.metadata
                for name, extents in plan_reads(checkpoint, verb, ranks, rank):
                    strided += len(extents) > 1
                    wanted += [(f"{directory}/{name}", offset, length) for offset, length in extents]
        same(f"rank {rank} of {ranks}, read", seen, wanted)
        same(f"rank {rank} of {ranks}, read of a list", [call.path for call in lists if call.result], wanted_lists)
        yield f"rank {rank}: {count_text(len(seen), 'read')} of {count_text(len({path for path, *_ in seen}), 'file')}"
    yield f"as the plan lists them, in its order, {count_text(strided, 'step')} strided, and no other"


def plan_reads(
    checkpoint: Checkpoint, verb: Restore, ranks: int, rank: int
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield the steps that a rank reads in one restore: the file, and offset and length of each call."""
    access = checkpoint.access
    for found in read_passes(checkpoint, verb, ranks, rank):
        for step in cut_steps(found, access.transfer, checkpoint.pieces == "whole", access.page):
            yield step.file, list(zip(step.offset.tolist(), step.length.tolist(), strict=True))


def read_passes(checkpoint: Checkpoint, verb: Restore, ranks: int, rank: int) -> Iterator[Iterator[StoredBlock]]:
    """Yield what a rank reads in each pass; with `once` the first of the ranks with the same reads reads for all."""
    files = state_files(checkpoint, verb.written_by or checkpoint.split(ranks))
    holder = verb.parallel or checkpoint.split(ranks)
    place = (rank + verb.shift) % ranks
    if verb.everything:
        yield whole_state_reads(files) if rank == 0 or not verb.once else iter(())
    elif verb.once:
        yield shared_reads(files, holder, place) if holder.coordinates(place)[2] == 0 else iter(())
        yield lone_reads(files, holder, place)
    else:
        yield shard_reads(files, holder, place)


def same(what: str, seen: Sequence[object], wanted: Sequence[object]) -> None:
    """Check that two sequences are equal; else name the first difference."""
    if list(seen) != list(wanted):
        at = next((i for i, (a, b) in enumerate(zip(seen, wanted)) if a != b), min(len(seen), len(wanted)))  # noqa: B905
        raise Unlike(f"{what} {at} is {seen[at : at + 1]}, the plan has {wanted[at : at + 1]}")


def check_commits(calls: Sequence[Sequence[Call]], workload: Workload) -> Iterator[str]:
    """Check that each save becomes complete by the events of its `commit`, after every rank has synced its files."""
    ranks = len(calls)
    for checkpoint, number, verb in saves_and_restores(workload):
        if not isinstance(verb, Save):
            continue
        base, directory = base_of(checkpoint, ranks), save_directory(checkpoint, number)
        files = state_files(checkpoint, checkpoint.split(ranks))
        made = {f"{directory}/{name}" for name, _ in files.files()}
        events = [[(call.time, event) for call, event in events_of(some, base, number)] for some in calls]
        last = 0.0
        for rank, own in enumerate(events):
            of_data = [(time, event) for time, event in own if event[1] in made]
            last = max([last, *(time for time, _ in of_data)])
            paths = [f"{directory}/{name}" for name in writer_files(files, rank)]
            wanted = [event for path in paths for event in file_events(path, files)]
            same(f"save {number} of `{checkpoint.name}`, rank {rank}: event", merge_events(of_data), wanted)
        rest = [[each for each in own if each[1][1] not in made] for own in events]
        what = f"save {number} of `{checkpoint.name}`: event"
        same(what, merge_events(rest[0]), list(commit_events(files, directory, number)))
        if any(rest[1:]):
            raise Unlike(f"{what} of another rank than 0: {next(own for own in rest[1:] if own)[0]}")
        if rest[0][0][0] < last:
            raise Unlike(f"{what} {rest[0][0]} before all ranks had written and synced their files")
        yield f"save {number} of {checkpoint.name}: `commit {checkpoint.commit}` is {', '.join(kinds(rest[0]))}"


def events_of(calls: Sequence[Call], base: str, number: int) -> Iterator[tuple[Call, Event]]:
    """Yield the writes, syncs and renames of one save, and syncs of the directory above it among these."""
    below = f"{base}/{number:06d}"
    near = [call for call in calls if call.name in SAVING and f"{call.path}/".startswith(f"{base}/")]
    own = [place for place, call in enumerate(near) if call.path.startswith(below)]
    for call in near[own[0] : own[-1] + 2] if own else []:
        # The directory above may be synced last.
        if call.path.startswith(below) or call.path == base:
            kind = "write" if call.name in CHANGES else "rename" if call.name.startswith("rename") else call.name
            yield call, (kind, call.path.removeprefix(base).removeprefix("/"))


SAVING = (*CHANGES, "fsync", "fdatasync", "rename", "renameat", "renameat2")


def merge_events(events: Sequence[tuple[float, Event]]) -> list[Event]:
    """Return the events without times; equal events that follow each other become one."""
    return [event for event, _ in groupby(event for _, event in events)]


def kinds(events: Sequence[tuple[float, Event]]) -> list[str]:
    return [f"{kind} {Path(path).name or 'the directory above'}" for kind, path in merge_events(events)]


def writer_files(files: StateFiles, rank: int) -> tuple[str, ...]:
    """Return the files that a rank writes to."""
    return (files.shared_file_name(),) if files.checkpoint.writers.kind == "shared file" else files.file_names(rank)


def file_events(path: str, files: StateFiles) -> Iterator[Event]:
    yield "write", path
    if files.checkpoint.fsync:
        yield "fsync", path


def commit_events(files: StateFiles, directory: str, number: int) -> Iterator[Event]:
    """Yield the events of rank 0 after all files are written."""
    checkpoint = files.checkpoint
    if checkpoint.metadata:
        yield from file_events(f"{directory}/{METADATA}", files)
    manifest = f"{directory}/manifest.json"
    if checkpoint.commit == "none":
        yield "write", manifest
        return
    for folder in sorted({name.rpartition("/")[0] for name, _ in files.files()} - {""}):
        yield "fsync", f"{directory}/{folder}"
    if checkpoint.commit == "metadata":
        yield from (("fsync", directory), ("fsync", ""))
    yield from (("write", f"{manifest}.partial"), ("fsync", f"{manifest}.partial"), ("rename", manifest))
    yield "fsync", directory
    if checkpoint.commit == "rename":
        yield from (("rename", f"{number:06d}"), ("fsync", ""))


def check_manifests(data: Path, workload: Workload, ranks: int) -> Iterator[str]:
    """Check that sizes and checksums in the manifests are those of the files."""
    for checkpoint, number, verb in saves_and_restores(workload):
        if not isinstance(verb, Save):
            continue
        directory = data / base_of(checkpoint, ranks) / f"{number:06d}"
        said = json.loads((directory / "manifest.json").read_text())["files"]
        found = {}
        for path in chain(directory.glob("*"), directory.glob("*/*")):
            if path.is_file() and path.name != "manifest.json":
                content = path.read_bytes()
                found[str(path.relative_to(directory))] = [len(content), zlib.crc32(content)]
        if said != found:
            raise Unlike(f"{directory}: the manifest says {said}, and there is {found}")
        yield f"manifest {number} of {checkpoint.name}: {count_text(len(found), 'file')}, with these sizes and CRC-32"


def run_traced(ranks: int, place: Path) -> tuple[list[list[Call]], Workload]:
    """Return the calls of each rank, and the workload that they ran; data stay in `place`/data."""
    pattern = place / "witness.dlio"
    pattern.write_text(pattern_text())
    return trace(pattern, [], ranks, place), compile_pattern(pattern, [], Job(ranks))[0]


def witness(ranks: int, place: Path) -> Iterator[str]:
    """Yield the findings of one run, a line each; raises Unlike."""
    calls, workload = run_traced(ranks, place)
    yield from check_writes(calls, workload)
    yield from check_restores(calls, workload)
    yield from check_commits(calls, workload)
    yield from check_manifests(place / "data", workload, ranks)


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
            print(count_text(ranks, "rank"), flush=True)
            try:
                for line in witness(ranks, Path(place).resolve()):
                    print(f"  {line}", flush=True)
            except Unlike as error:
                print(f"  NOT SO: {error}", flush=True)
                status = 1
    return status


if __name__ == "__main__":
    orderly(main)
