"""An independent witness: what the kernel saw of a run, by strace, against what `dliosim plan --csv` lists.

    python scripts/dev/witness.py [--api posix mpi-independent] [--ranks 1 2 3] [--place DIR]

Each run prepares and reads two data sets (a file per sample, one shared file), with and without reader threads, three
epochs each, and saves a checkpoint. Every rank runs under a strace of its own. It must show, of every system call that
could read a data file (not the manifest next to it):

  - for each rank, loop and epoch, exactly the plan's reads: file, offset, length; with `readers 0` in its very order
    and on one thread, with reader threads in whole batches that come in the plan's order on each thread;
  - no other read, whichever call made it; files are mapped only to be asked which of their pages are resident;
  - over all ranks each epoch's reads are as many as samples, disjoint, and no shorter than asked;
  - on every rank another order in every epoch;
  - fsync by every rank of each file that it wrote, after its last write and before the rename that declares data set
    or checkpoint whole; and fsync of each directory that has such files after the last write there and before that
    rename, and of the directory of the new name after it.
  - the trace of the run (`--trace`) has each of these reads, and each write of data, on its rank: file, offset, length
    and bytes returned, in the order in which its thread made them; and no other.

Prints what was seen and ends with status 1 where any of that is not so.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from harness import mpiexec, orderly, run

from dliosim import cli
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Loop, Workload
from dliosim.trace.events import Trace
from dliosim.trace.file import read_trace

PATTERN = """\
dlio 1
workload witness
param api = posix "how samples are read" one of posix, mpi-independent
seed 7

dataset separate {
    samples 23
    size    uniform(2 kB, 6 kB)
    layout  file per sample in 2 folders
    header  100 B
    path    "separate"
}
dataset together {
    samples 101
    size    uniform(500 B, 3 kB)
    layout  shared file
    align   64 B
    path    "together"
}
checkpoint model {
    part    weights 100 kB total
    part    state 3 kB per rank
    api     $api
    fsync   on
    path    "model"
}
"""

LOOP = """\
train {name} {{
    read       {dataset}
    epochs     3
    batch      {batch} per rank
    shuffle    samples globally each epoch
    last batch keep
    api        $api
    readers    {readers}
}}
"""

READS = "read,readv,pread64,preadv,preadv2,sendfile,copy_file_range,splice,mmap,mincore"
WRITES = "write,writev,pwrite64,pwritev,pwritev2"
OTHERS = "fsync,fdatasync,rename,renameat,renameat2,ftruncate,fallocate,fadvise64"

#: Files that say something of data or keep other jobs off them.
NO_DATA = ("manifest", "lock")

CALL = re.compile(r"^(\d+\.\d+) (\w+)\((.*)\)\s+= (-?\w+)")
DESCRIPTOR = re.compile(r"\b\d+<([^>]*)>")

Extent = tuple[str, int, int]
Moved = tuple[str, int, int, int]


class Unlike(Exception):
    """Something is not as the plan or the promise says."""


@dataclass(frozen=True)
class Call:
    """One system call of a rank: when it began, on which thread, on which file below the data directory."""

    time: float
    thread: str
    name: str
    path: str
    arguments: str
    result: int


def pattern_text() -> str:
    loops = [
        LOOP.format(name=f"{dataset}_{readers}", dataset=dataset, batch=batch, readers=readers)
        for dataset, batch in (("separate", 2), ("together", 7))
        for readers in (0, 2)
    ]
    return PATTERN + "prepare separate\nprepare together\n" + "".join(loops) + "save model\n"


def trace(pattern: Path, overrides: Sequence[str], ranks: int, place: Path) -> list[list[Call]]:
    """Run the pattern with every rank under strace; return the calls of each rank on files below its data, in order."""
    data = place / "data"
    shutil.rmtree(place / "out", ignore_errors=True)
    options = f"-ff -ttt -y -v -s 8 -e trace={READS},{WRITES},{OTHERS}"
    program = f"{sys.executable} -m dliosim.cli run {pattern} --trace --dir {data} --output {place}/out"
    program = " ".join([program, *(f"-D {override}" for override in overrides)])
    rank = "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}}"
    run([mpiexec(), "-n", str(ranks), "sh", "-c", f"exec strace {options} -o {place}/calls.{rank} {program}"], 120)
    return [calls_of(sorted(place.glob(f"calls.{rank}.*")), data) for rank in range(ranks)]


def calls_of(files: Sequence[Path], data: Path) -> list[Call]:
    found = []
    below = f"{data}/"
    for file in files:
        for line in file.read_text(errors="replace").splitlines():
            parsed = CALL.match(line)
            if parsed is None:
                continue
            time, name, arguments, result = parsed.groups()
            paths = [path for path in DESCRIPTOR.findall(arguments) if path.startswith(below)]
            if name.startswith("rename"):
                paths = [path for path in re.findall(r'"([^"]*)"', arguments) if path.startswith(below)][-1:]
            if paths or name == "mincore":
                path = paths[0].removeprefix(below) if paths else ""
                value = int(result, 16) if result.startswith("0x") else int(result)
                found.append(Call(float(time), file.suffix, name, path, arguments, value))
    return sorted(found, key=lambda call: call.time)


def plan_rows(pattern: Path, api: str, ranks: int, rank: int, loop: str, epoch: int) -> list[tuple[int, int, Extent]]:
    """Return the output of `dliosim plan --csv` for an epoch from 1, as (step, sample, (file, offset, length))."""
    chosen = ["--ranks", str(ranks), "--rank", str(rank), "--loop", loop, "--epoch", str(epoch)]
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        status = cli.main(["plan", str(pattern), "-D", f"api={api}", "--csv", *chosen])
    if status:
        sys.exit(f"dliosim plan ended with {status}")
    rows = csv.DictReader(io.StringIO(printed.getvalue()))
    return [
        (int(row["step"]), int(row["sample"]), (row["file"], int(row["offset"]), int(row["length"]))) for row in rows
    ]


def reads_of(calls: Sequence[Call]) -> list[tuple[Call, Extent]]:
    """Return every call that got bytes of a data file; each must be a read at an offset, and not short.

    Those that try the kernel's counter (`page_cache.counts_reads`) are left out: they end with another fadvise64.
    """
    found: list[tuple[Call, Extent]] = []
    tried: dict[tuple[str, str], int] = {}
    mapped: list[str] = []
    for call in calls:
        place = call.thread, call.path
        if call.name == "fadvise64":
            own = [one for one in found[tried.get(place, len(found)) :] if (one[0].thread, one[0].path) == place]
            if call.arguments.endswith("POSIX_FADV_RANDOM"):
                tried[place] = len(found)
            elif own:
                del tried[place]
                found = [one for one in found if one not in own]
        elif call.name == "mincore":
            mapped = [address for address in mapped if not call.arguments.startswith(address)]
        elif call.name not in READS.split(",") or "manifest.json" in call.path:
            continue
        elif call.name == "mmap" and ", PROT_READ, " in call.arguments:
            mapped.append(f"{call.result:#x}")
        elif call.name in ("pread64", "preadv", "preadv2"):
            length, offset = length_and_offset(call)
            if call.result != length:
                raise Unlike(f"{call.name}({call.arguments}) returned {call.result}")
            found.append((call, (call.path, offset, length)))
        else:
            raise Unlike(f"{call.name}({call.arguments}) = {call.result}: no call of the plan's")
    if mapped:
        raise Unlike(f"{len(mapped)} mappings of data files without a call of mincore")
    return found


def length_and_offset(call: Call) -> tuple[int, int]:
    """Return the length and the offset of a positioned read."""
    if call.name == "pread64":
        asked, offset = call.arguments.rsplit(", ", 2)[1:]
        return int(asked), int(offset)
    length = sum(int(part) for part in re.findall(r"iov_len=(\d+)", call.arguments))
    tail = call.arguments.rsplit("], ", 1)[1].split(", ")
    return length, int(tail[1])


def check_reads(calls: list[list[Call]], pattern: Path, api: str, workload: Workload) -> Iterator[str]:
    ranks = len(calls)
    left = [reads_of(some) for some in calls]
    for loop in [verb for verb in workload.verbs if isinstance(verb, Loop)]:
        samples = workload.dataset(loop.dataset).samples
        orders: list[set[tuple[Extent, ...]]] = [set() for _ in range(ranks)]
        threads = set()
        for epoch in range(1, loop.epochs + 1):
            together: list[Extent] = []
            numbers: list[int] = []
            for rank in range(ranks):
                plan = plan_rows(pattern, api, ranks, rank, loop.name, epoch)
                seen, left[rank] = left[rank][: len(plan)], left[rank][len(plan) :]
                compare(f"{loop.name}, epoch {epoch}, rank {rank} of {ranks}", plan, seen, loop.access.readers)
                orders[rank].add(tuple(extent for _, extent in seen))
                threads |= {(rank, call.thread) for call, _ in seen}
                together += [extent for _, extent in seen]
                numbers += [sample for _, sample, _ in plan]
            if sorted(numbers) != list(range(samples)):
                raise Unlike(f"{loop.name}, epoch {epoch}: not every sample once")
            if len(together) != samples or not disjoint(together):
                raise Unlike(f"{loop.name}, epoch {epoch}: {len(together)} reads of {samples} samples, or overlapping")
        if any(len(order) != loop.epochs for order in orders):
            raise Unlike(f"{loop.name}: two epochs in the same order")
        who = f"{count_text(len(threads), 'thread')} of {count_text(ranks, 'rank')}"
        what = "as the plan lists them, in another order each epoch"
        yield f"{loop.name}: {loop.epochs} epochs, each of {samples} samples once, by {who}, {what}"
    if any(left):
        call, _ = next(some for some in left if some)[0]
        raise Unlike(f"a read beyond the plan: {call.name}({call.arguments})")
    yield "no other read of a data file"


def compare(where: str, plan: list[tuple[int, int, Extent]], seen: list[tuple[Call, Extent]], readers: int) -> None:
    """Compare the reads of one rank in one epoch with the plan's."""
    wanted, got = [extent for _, _, extent in plan], [extent for _, extent in seen]
    if readers == 0 and got != wanted:
        at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), len(got))  # noqa: B905
        raise Unlike(f"{where}: read {at} is {got[at : at + 1]}, the plan has {wanted[at : at + 1]}")
    if readers == 0 and len({call.thread for call, _ in seen}) > 1:
        raise Unlike(f"{where}: more than one thread reads")
    if Counter(got) != Counter(wanted):
        raise Unlike(f"{where}: other reads than the plan's")
    place = {extent: number for number, extent in enumerate(wanted)}
    for thread in {call.thread for call, _ in seen}:
        own = [place[extent] for call, extent in seen if call.thread == thread]
        steps = {plan[number][0] for number in own}
        if own != [number for number, (step, _, _) in enumerate(plan) if step in steps]:
            raise Unlike(f"{where}: a thread does not read whole batches in the plan's order")


def disjoint(extents: list[Extent]) -> bool:
    ordered = sorted(extents)
    return all(a[0] != b[0] or a[1] + a[2] <= b[1] for a, b in pairwise(ordered))


def check_syncs(calls: list[list[Call]], workload: Workload) -> Iterator[str]:
    """Check that each writer syncs its files before a rename says that they are complete."""
    for kind, root in (
        *(("data set", dataset.path) for dataset in workload.datasets),
        *(("checkpoint", checkpoint.path) for checkpoint in workload.checkpoints),
    ):
        renames = [
            call for some in calls for call in some if call.name.startswith("rename") and call.path.startswith(root)
        ]
        if not renames:
            raise Unlike(f"{kind} {root}: no rename declares it whole")
        declared = min(call.time for call in renames)
        written: dict[str, float] = {}
        for rank, some in enumerate(calls):
            writes = [call for call in some if call.name in WRITES.split(",") and call.path.startswith(root)]
            for path in {call.path for call in writes if not Path(call.path).name.startswith(NO_DATA)}:
                last = max(call.time for call in writes if call.path == path)
                written[path] = max(last, written.get(path, last))
                if not any(last < time < declared for time in sync_times([some], path)):
                    raise Unlike(f"{kind}: rank {rank} wrote {path} and did not fsync it before it was declared whole")
        # A checkpoint's own manifest is renamed before its directory is, which alone declares it whole.
        final = max(renames, key=lambda call: call.time)
        directories = {str(Path(path).parent) for path in written}
        for directory in directories:
            last = max(time for path, time in written.items() if str(Path(path).parent) == directory)
            if not any(last < time < final.time for time in sync_times(calls, directory)):
                raise Unlike(f"{kind}: {directory} was declared whole before its names were synced")
        if not any(time > final.time for time in sync_times(calls, str(Path(final.path).parent))):
            raise Unlike(f"{kind}: the name of {final.path} was not synced")
        what = "each synced by every rank that wrote it, then declared whole"
        where = count_text(len(directories), "synced directory", "synced directories")
        yield f"{kind} {root}: {count_text(len(written), 'file')} written in {where}, {what}"


def check_trace(calls: list[list[Call]], trace: Trace, data: Path) -> Iterator[str]:
    """Check that the trace of a run has all reads and writes of data that the kernel saw, and no other."""
    events = trace.events
    moving = events.is_kind("read", "write")
    if trace.incomplete:
        raise Unlike(f"the trace is incomplete: {trace.incomplete[0]}")
    for rank, some in enumerate(calls):
        seen = [(call, extent, call.result) for call, extent in reads_of(some)]
        seen += [(call, write_extent(call), call.result) for call in some if is_data_write(call)]
        seen.sort(key=lambda one: one[0].time)
        rows = moving & (events.process == rank)
        paths = [str(Path(events.files[file]).relative_to(data)) for file in events.file[rows].tolist()]
        columns = (events.offset[rows].tolist(), events.asked[rows].tolist(), events.moved[rows].tolist())
        got = list(zip(paths, *columns, strict=True))
        if Counter(got) != Counter((*extent, result) for _, extent, result in seen):
            raise Unlike(f"rank {rank}: the trace has {len(got)} reads and writes, strace {len(seen)}, or others")
        check_order(rank, got, events.thread[rows].tolist(), seen)
        yield f"rank {rank}: {len(got)} reads and writes in the trace, as strace saw them, in the order of each thread"


def check_order(rank: int, got: list[Moved], threads: list[int], seen: list[tuple[Call, Extent, int]]) -> None:
    """Check that each thread of a trace has made its calls in the order in which strace saw them on one thread."""
    # The same sample is read once in each epoch: its k-th read in the trace is the k-th that strace saw.
    places: dict[Moved, list[tuple[int, str]]] = {}
    for number, (call, extent, result) in enumerate(seen):
        places.setdefault((*extent, result), []).append((number, call.thread))
    last: dict[tuple[int, str], int] = {}
    for one, thread in zip(got, threads, strict=True):
        number, seen_by = places[one].pop(0)
        if number < last.get((thread, seen_by), -1):
            raise Unlike(f"rank {rank}: thread {thread} of the trace has {one} in another place than strace")
        last[thread, seen_by] = number
    for thread in {one for one, _ in last}:
        # Reader threads are new in each loop, and have the same numbers in each.
        if thread == 0 and len([one for one, _ in last if one == 0]) > 1:
            raise Unlike(f"rank {rank}: the main thread of the trace is several of strace")


def is_data_write(call: Call) -> bool:
    """Return whether a call wrote bytes of a data set or checkpoint."""
    name = Path(call.path).name
    return call.name == "pwrite64" and "json" not in name and not name.startswith(NO_DATA)


def write_extent(call: Call) -> Extent:
    asked, offset = call.arguments.rsplit(", ", 2)[1:]
    return call.path, int(offset), int(asked)


def sync_times(calls: list[list[Call]], path: str) -> list[float]:
    """Return when a file or directory was made durable."""
    return [
        call.time
        for some in calls
        for call in some
        if call.name in ("fsync", "fdatasync") and call.path == path and call.result == 0
    ]


def count_text(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def witness(api: str, ranks: int, place: Path) -> Iterator[str]:
    """Yield the findings of one run, a line each; raises Unlike."""
    pattern = place / "witness.dlio"
    pattern.write_text(pattern_text())
    workload, _ = compile_pattern(pattern, [("api", api)], Job(ranks))
    calls = trace(pattern, [f"api={api}"], ranks, place)
    yield from check_reads(calls, pattern, api, workload)
    yield from check_syncs(calls, workload)
    yield from check_trace(calls, read_trace(place / "out" / "trace.h5"), place / "data")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", nargs="+", default=["posix", "mpi-independent"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--place", help="where data and traces go for a while (default: the temporary directory)")
    options = parser.parse_args()
    if shutil.which("strace") is None:
        sys.exit("no strace on the path: Debian's package is called strace")
    status = 0
    for api in options.api:
        for ranks in options.ranks:
            with tempfile.TemporaryDirectory(prefix="dliosim-witness-", dir=options.place) as place:
                print(f"{api}, {count_text(ranks, 'rank')}", flush=True)
                try:
                    for line in witness(api, ranks, Path(place).resolve()):
                        print(f"  {line}", flush=True)
                except Unlike as error:
                    print(f"  NOT SO: {error}", flush=True)
                    status = 1
    return status


if __name__ == "__main__":
    orderly(main)
