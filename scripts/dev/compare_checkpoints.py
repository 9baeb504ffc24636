"""PyTorch's checkpoints and dliosim's side by side: the files, and the system calls that write and read them.

    python scripts/dev/compare_checkpoints.py similarity --python TORCH_PYTHON [--place DIR]
    python scripts/dev/compare_checkpoints.py trace --python TORCH_PYTHON [--cases dcp torch-save] [--calls 40]

TORCH_PYTHON has torch. Each case saves the state of a small transformer and its AdamW (fidelity/tensors.py) and
loads it: `dcp` by torch.distributed.checkpoint on two ranks that split the tensors (`dcp-framed`: for a pattern that
has parts for what PyTorch's zip container puts around them), `dcp-reshard` loads on one rank what two have saved,
`torch-save` is torch.save by the first of two ranks that both hold all, and torch.load by both. dliosim does the same
by a pattern with a part for each tensor. Every rank runs under a strace of its own. `similarity` prints the files and a
row for each save and load, `trace` what each rank called. docs/evidence/fidelity.md has what they showed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fidelity.compare import Extent, cosine, order_similarity, sizes
from fidelity.tables import sequence
from fidelity.tensors import container_parts, split_parts, whole_parts
from fidelity.tracing import READS, RENAMES, SAVING, SYNCS, WRITES, Record, parse, strace
from harness import header, mpiexec, orderly, row, run, scratch

_HERE: Final = Path(__file__).with_name("fidelity")

PATTERN: Final = """\
dlio 1
workload fidelity "what PyTorch saves"
checkpoint state {{
{parts}
    transfer 1 GiB
    path     "state"
    {settings}
}}
"""

#: As PyTorch's distributed checkpoint: a file of each rank, then one that says where everything is.
_DCP: Final = ("parallel tensor $ranks", "writers into file per rank", "metadata on", "commit metadata")

#: As torch.save by one rank: a file, and nothing that makes it last.
_SAVE: Final = ("writers rank 0", "fsync off", "commit none")


def _pattern(parts: str, settings: Sequence[str]) -> str:
    return PATTERN.format(parts=parts, settings="\n    ".join(settings))


@dataclass(frozen=True, slots=True)
class Case:
    """A way to save on `saving` ranks and to load on `loading` ranks, by actions of saving.py and by a pattern."""

    name: str
    saving: int
    loading: int
    actions: tuple[str, str]
    pattern: str
    restore: str


_BY_DCP: Final = ("dcp-save", "dcp-load")

CASES: Final = (
    Case("dcp", 2, 2, _BY_DCP, _pattern(split_parts(), _DCP), ""),
    Case("dcp-framed", 2, 2, _BY_DCP, _pattern(container_parts(), _DCP), ""),
    Case("dcp-reshard", 2, 1, _BY_DCP, _pattern(split_parts(), _DCP), " { written by tensor 2 }"),
    Case("torch-save", 2, 2, ("save", "load"), _pattern(whole_parts(), _SAVE), " { reads everything }"),
)

Ranks = list[list[Record]]
"""The calls of each rank on files of the checkpoint."""


def trace_ranks(command: str, ranks: int, place: Path, folder: Path, extra: dict[str, str]) -> Ranks:
    """Return the calls of a command on the files below a folder, on some ranks."""
    own = "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}}"
    shell = " ".join(strace([command], place / f"calls.{own}", SAVING))
    run([mpiexec(), "-n", str(ranks), "sh", "-c", f"RANK={own} WORLD_SIZE={ranks} exec {shell}"], 300, extra)
    found = []
    for rank in range(ranks):
        log = place / f"calls.{rank}"
        with log.open(errors="replace") as lines:
            found.append([record for record in parse(lines, folder) if not is_aside(record)])
        log.unlink()
    return found


def is_aside(record: Record) -> bool:
    """Return whether a call is on the lock of a job, or failed."""
    return Path(record.file).name == "lock" or record.returned < 0


def real(case: Case, python: str, place: Path) -> tuple[Ranks, Ranks]:
    """Return the calls of PyTorch when it saves and when it loads; its files are in `place`/torch."""
    folder = place / "torch"
    found = []
    for action, ranks in zip(case.actions, (case.saving, case.loading), strict=True):
        command = f"{python} {_HERE / 'saving.py'} {action} {folder} --meet {place / action}"
        found.append(trace_ranks(command, ranks, place, folder, {"OMP_NUM_THREADS": "1"}))
    return found[0], found[1]


def tool(case: Case, place: Path) -> tuple[Ranks, Ranks]:
    """Return the same for dliosim; its files are in `place`/data."""
    found = []
    for verb, ranks in (("save state", case.saving), (f"restore state{case.restore}", case.loading)):
        pattern, data, out = place / "case.dlio", place / "data", place / f"out-{verb[:4]}"
        pattern.write_text(f"{case.pattern}{verb}\n")
        command = f"{sys.executable} -m dliosim.cli run {pattern} --dir {data} --output {out}"
        found.append(trace_ranks(command, ranks, place, data, {}))
    return found[0], found[1]


def files(folder: Path) -> Iterator[str]:
    """Return the files of a checkpoint with sizes, the largest first."""
    found = [(path.stat().st_size, path.name) for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return (f"`{name}` {size}" for size, name in sorted(found, key=lambda each: (-each[0], each[1])))


def is_data(record: Record) -> bool:
    """Return whether a call is on a file of tensors, and not on a list of files or on a directory."""
    return re.search(r"\.(distcp|ckpt|pt)$", record.file) is not None


def data_extents(records: Iterable[Record], calls: Sequence[str]) -> list[Extent]:
    """Return the calls that moved bytes of tensors, as (0, offset, bytes)."""
    return [
        (0, each.offset, each.returned) for each in records if each.call in calls and is_data(each) and each.returned
    ]


def threads(ranks: Ranks, calls: Sequence[str]) -> str:
    """Return the number of threads that move bytes of tensors, of the rank with the most of them."""
    return str(max(len({each.pid for each in own if each.call in calls and is_data(each)}) for own in ranks))


def count_calls(ranks: Ranks, calls: Sequence[str]) -> str:
    """Return the number of calls on data, on lists of files, and on directories."""
    found = [record for own in ranks for record in own if record.call in calls]
    lists = sum(not is_data(record) and re.search(r"metadata|manifest", record.file) is not None for record in found)
    data = sum(is_data(record) for record in found)
    return f"{data} + {lists} + {len(found) - data - lists}"


#: The columns that `similarity` prints for each save and load; two figures are PyTorch's / dliosim's.
HEAD: Final = (
    "case",
    "ranks",
    "threads of a rank",
    "calls that move bytes of tensors",
    "bytes",
    "fsync: data + lists + directories",
    "renames",
    "sizes by count",
    "sizes by bytes",
    "same order of sizes",
    "the same above 4 KiB",
)


def likeness(name: str, ranks: int, one: Ranks, other: Ranks, calls: Sequence[str]) -> Iterator[object]:
    """Yield the cells of a row of HEAD."""
    extents = [[data_extents(own, calls) for own in each] for each in (one, other)]
    everything = [[extent for own in each for extent in own] for each in extents]
    yield name
    yield ranks
    yield pair(threads(one, calls), threads(other, calls))
    yield pair(*(str(len(each)) for each in everything))
    yield pair(*(str(sum(length for *_, length in each)) for each in everything))
    yield pair(count_calls(one, SYNCS), count_calls(other, SYNCS))
    yield pair(*(str(sum(record.call in RENAMES for own in each for record in own)) for each in (one, other)))
    for by_bytes in (False, True):
        yield f"{cosine(sizes(everything[0], by_bytes), sizes(everything[1], by_bytes)):.3f}"
    for least in (0, 4096):
        # In powers of two: what surrounds a tensor may be in one call with it.
        lengths = [[[length.bit_length() for *_, length in own if length > least] for own in each] for each in extents]
        shares = [order_similarity(a, b) for a, b in zip(*lengths, strict=True)]
        yield f"{sum(shares) / len(shares):.3f}"


def pair(one: str, other: str) -> str:
    return one if one == other else f"{one} / {other}"


def show(case: Case, python: str, place: Path, calls: int) -> None:
    """Print what both call, rank after rank."""
    of_real, of_tool = real(case, python, place), tool(case, place)
    for verb, one, other in zip(("save", "load"), of_real, of_tool, strict=True):
        for who, ranks in (("PyTorch", one), ("dliosim", other)):
            for rank, own in enumerate(ranks):
                shown = [each for each in own if each.call in (*READS, *WRITES, *SYNCS, *RENAMES, "openat")]
                print(f"\n{case.name}: {verb} by {who}, rank {rank}, the first {calls} of {len(shown)} calls:\n")
                print("\n".join(sequence(shown[:calls])))


def compare(cases: Sequence[Case], python: str, place: str) -> None:
    """Print the files, and how similar the calls are."""
    rows = []
    for case in cases:
        with scratch(place) as directory:
            of_real, of_tool = real(case, python, directory), tool(case, directory)
            print(f"{case.name}, PyTorch: {', '.join(files(directory / 'torch'))}")
            print(f"{case.name}, dliosim: {', '.join(files(directory / 'data'))}\n", flush=True)
        for verb, ranks, calls in (("save", case.saving, WRITES), ("load", case.loading, READS)):
            at = verb == "load"
            rows.append(list(likeness(f"`{case.name}`, {verb}", ranks, of_real[at], of_tool[at], calls)))
    header(*HEAD)
    for each in rows:
        row(*each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("similarity", "trace"))
    parser.add_argument("--python", required=True, help="a Python that has torch")
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES], choices=[c.name for c in CASES])
    parser.add_argument("--calls", type=int, default=40, help="calls of each rank that `trace` prints")
    parser.add_argument("--place", default="/dev/shm", help="where files go for a while")
    options = parser.parse_args()
    cases = [case for case in CASES if case.name in options.cases]
    if options.what == "similarity":
        compare(cases, options.python, options.place)
        return
    for case in cases:
        with scratch(options.place) as directory:
            show(case, options.python, directory, options.calls)


if __name__ == "__main__":
    orderly(main)
