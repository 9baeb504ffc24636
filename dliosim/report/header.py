"""Under which conditions a run was made, and what makes its figures doubtful: the first thing that it prints."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dliosim.measure.figures import EpochSummary, PhaseSummary, RunSummary
from dliosim.report.grid import WIDTH
from dliosim.report.units import count, percent

#: File systems that are memory, and those on block devices of which the kernel counts what is read.
_MEMORY_KINDS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_DISK_KINDS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})

#: With more oversleep than this utilization says more about the machine's scheduler than about storage.
OVERSLEEP_LIMIT = 0.01


def header(run: RunSummary) -> str:
    """Pattern, digest, ranks, libraries, file systems, hints, and what was in the page cache."""
    environment = run.environment
    load = f"{environment.ranks_per_node} on the {count(environment.cores_per_node, 'core')} of a node"
    rows = [
        ("workload", f"{run.name}: {run.title}" if run.title else run.name),
        ("digest", run.digest),
        *(("override", f"-D {name}={value}") for name, value in run.overrides),
        ("ranks", f"{run.ranks} on {count(run.nodes, 'node')}, {load}"),
        ("MPI library", environment.mpi_library),
    ]
    if environment.mpi_io:
        rows.append(("MPI-IO", environment.mpi_io))
    for place in environment.file_systems:
        known = filter(None, (place.directory, place.kind, place.options, place.striping))
        rows.append((f"root {place.root}", ", ".join(known)))
    rows += [*environment.details, *_hints(run.phases), *_caches(run.phases)]
    return _aligned(rows)


def warnings(run: RunSummary) -> str:
    """What a reader must not overlook, a paragraph each; empty if nothing."""
    environment = run.environment
    found = []
    if environment.oversubscribed:
        found.append(
            f"{environment.ranks_per_node} ranks on {count(environment.cores_per_node, 'core')}: utilization (marked "
            "?) is not to be trusted, and every time holds the others' turns on the cores"
        )
    memories = [place.root for place in environment.file_systems if place.kind in _MEMORY_KINDS]
    if memories:
        found.append(f"root {', '.join(memories)} lies in memory: nothing there says anything about storage")
    for phase in run.phases:
        worst = max((epoch.oversleep_share or 0.0 for epoch in phase.epochs), default=0.0)
        if worst > OVERSLEEP_LIMIT:
            known = any(epoch.utilization is not None for epoch in phase.epochs)
            outcome = "utilization (marked ?) is not to be trusted" if known else "rates and latencies hold that"
            found.append(f"{title_of(phase)}: compute took up to {percent(worst, 3)} longer than asked: {outcome}")
        cached = _epochs_from_cache(phase)
        if cached and all(place.kind in _DISK_KINDS for place in environment.file_systems):
            found.append(
                f"{title_of(phase)}: {cached} read less than half of their bytes from the device, and the rest from "
                "the page cache: use more data than memory, `cache off`, or `drop caches` in a `repeat`"
            )
        for key, asked, granted in phase.hints_refused:
            outcome = "was dropped by the MPI library" if granted is None else f'became "{granted}"'
            if phase.api == "posix":
                outcome = "went to nobody: posix takes no hints"
            found.append(f'{title_of(phase)}: HINT NOT GRANTED: "{key}" = "{asked}" {outcome}')
    lines = [textwrap.fill(f"warning: {line}", WIDTH, subsequent_indent=" " * 9) for line in dict.fromkeys(found)]
    return "\n".join(lines)


def _epochs_from_cache(phase: PhaseSummary) -> str:
    """Which epochs read less than half of their bytes from a block device, as the kernel counts; empty if none."""
    some = [
        str(epoch.epoch + 1)
        for epoch in phase.epochs
        if epoch.storage_amplification is not None and epoch.storage_amplification < 0.5 and epoch.bytes_moved
    ]
    if len(some) > 2 and len(some) == int(some[-1]) - int(some[0]) + 1:
        some = [some[0], "to", some[-1]]
    return f"{'epochs' if len(some) > 1 else 'epoch'} {' '.join(some)}" if some else ""


def notes_of(phases: Sequence[PhaseSummary]) -> str:
    """What else is worth knowing of phases, each thing once."""
    notes = dict.fromkeys(f"{title_of(phase)}: {note}" for phase in phases for note in phase.notes)
    return "\n".join(_wrapped(note, "", " " * 4) for note in notes)


def untrusted(run: RunSummary, epoch: EpochSummary) -> bool:
    """Whether utilization says more about this machine than about its storage."""
    return run.environment.oversubscribed or (epoch.oversleep_share or 0.0) > OVERSLEEP_LIMIT


def title_of(phase: PhaseSummary) -> str:
    """What a phase is called: its keyword, and its name where that says more."""
    return phase.name if phase.name.startswith(phase.kind) else f"{phase.kind} {phase.name}".rstrip()


def cache_state(resident_share: float | None) -> str:
    """Cold or warm, and how much of the files was in the page cache (None: the kernel did not tell)."""
    if resident_share is None:
        return "unknown: the kernel tells only those who may write the files"
    state = "cold" if resident_share < 0.01 else "warm" if resident_share > 0.99 else "partly warm"
    return f"{state}, {percent(resident_share, 3)} of the bytes in the page cache"


def _hints(phases: Sequence[PhaseSummary]) -> list[tuple[str, str]]:
    """Hints asked, then those granted: a row for all phases with the same."""
    asked = [(title_of(phase), _pairs(phase.hints_asked)) for phase in phases if phase.hints_asked]
    granted = [(title_of(phase), _pairs(phase.hints_granted)) for phase in phases if phase.hints_granted]
    return [
        *(("hints asked", text) for text in _shared(asked)),
        *(("hints granted", text) for text in _shared(granted)),
    ]


def _pairs(hints: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{key}={value.strip()}" for key, value in hints)


def _caches(phases: Sequence[PhaseSummary]) -> list[tuple[str, str]]:
    """Cold or warm: a row for all loops that found the same."""
    states = [
        (title_of(phase), cache_state(phase.resident_share)) for phase in phases if phase.epochs and phase.api != "null"
    ]
    return [("page cache", text) for text in _shared(states)]


def _shared(said: Sequence[tuple[str, str]]) -> list[str]:
    """`prepare d, train: ...` for each thing said, with the names of all of which it is."""
    names: dict[str, dict[str, None]] = {}
    for name, text in said:
        names.setdefault(text, {})[name] = None
    return [f"{', '.join(those)}: {text}" for text, those in names.items()]


def _aligned(rows: Sequence[tuple[str, str]]) -> str:
    indent = max(len(name) for name, _ in rows) + 2
    return "\n".join(_wrapped(value, f"{name:<{indent}}", " " * indent) for name, value in rows)


def _wrapped(text: str, first: str, later: str) -> str:
    """Lines that fit, but for words that cannot: a path is there to be copied."""
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
