"""The conditions of a run: the first lines that it prints."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.results.machine import Environment
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import count, number, percent
from dliosim.report.phase_titles import group_by, title_of
from dliosim.report.text_table import wrap_text


def conditions(run: RunSummary) -> list[tuple[str, str]]:
    """Return names and values: pattern, digest, ranks, libraries, file systems, hints, state of the page cache."""
    rows = [
        ("workload", f"{run.name}: {run.title}" if run.title else run.name),
        ("digest", run.digest),
        *(("override", f"-D {name}={value}") for name, value in run.overrides),
        *environment_rows(run.environment, run.ranks, run.nodes),
        *_hints(run.phases),
        *_cache_rows(run.loops),
    ]
    if run.verify:
        rows.append(("verified", _verification_text(run)))
    return rows


def _verification_text(run: RunSummary) -> str:
    """Return how many of the bytes read were compared, and why not all."""
    checked, read = run.bytes_verified, run.verifiable_bytes
    if checked == read:
        return f"{checked:_} bytes, all as prepared".replace("_", " ")
    text = f"{checked:_} of {read:_} bytes, as prepared".replace("_", " ")
    return f"{text}; what the others should be is unknown (docs/formats.md)"


def environment_rows(environment: Environment, ranks: int, nodes: int) -> list[tuple[str, str]]:
    """Return names and values of the machine and the libraries."""
    load = f"{environment.ranks_per_node} on the {count(environment.cores_per_node, 'core')} of a node"
    rows = [
        ("ranks", f"{ranks} on {count(nodes, 'node')}, {load}"),
        ("load average", f"{number(environment.load_average, 3)} in the minute before"),
        ("MPI library", environment.mpi_library),
    ]
    if environment.mpi_io:
        rows.append(("MPI-IO", environment.mpi_io))
    for place in environment.file_systems:
        known = filter(None, (place.directory, place.kind, place.options, place.striping))
        rows.append((f"root {place.root}", ", ".join(known)))
    return [*rows, *environment.details]


def format_notes(phases: Sequence[PhaseSummary]) -> str:
    """Return all notes of phases, each once."""
    notes = dict.fromkeys(f"{title_of(phase)}: {note}" for phase in phases for note in phase.notes)
    return "\n".join(wrap_text(note, "", " " * 4) for note in notes)


def copy_notes(run: RunSummary, width: int, label: str = "") -> str:
    """Return the notes of loops about the copies that `stage` made, such as from which epoch on they were read."""
    roots = {phase.root for phase in run.files if phase.kind == "stage"}
    notes = dict.fromkeys(f"{label}{title_of(phase)}: {note}" for phase in run.loops for note in phase.notes)
    shown = (note for note in notes if any(f"on root {root}" in note for root in roots))
    return "\n".join(wrap_text(note, "", " " * 4, width) for note in shown)


def cache_state(phase: LoopPhase) -> str:
    """Return whether a loop that uses the page cache began cold or warm; unknown if the kernel did not report it."""
    if phase.cache == "off":
        return "past the page cache"
    share = phase.resident_share
    if share is None:
        return "page cache unknown"
    return "page cache cold" if share < 0.01 else "page cache warm" if share > 0.99 else "page cache partly warm"


def _hints(phases: Sequence[PhaseSummary]) -> list[tuple[str, str]]:
    """Return the hints asked and granted: a row for all phases with the same hints; results.json has the defaults."""
    asked = [(title_of(phase), _format_hints(phase.hints_asked)) for phase in phases if phase.hints_asked]
    granted = [(title_of(phase), _format_granted(phase)) for phase in phases if phase.hints_granted]
    return [*_group_rows("hints asked", asked), *_group_rows("hints granted", granted)]


def _format_granted(phase: PhaseSummary) -> str:
    asked = dict(phase.hints_asked)
    known = _format_hints([(key, value) for key, value in phase.hints_granted if key in asked])
    others = count(sum(key not in asked for key, _ in phase.hints_granted), "hint")
    defaults = f"{others} by default, in results.json"
    return f"{known}, and {defaults}" if known else defaults


def _format_hints(hints: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{key}={value.strip()}" for key, value in hints)


def _cache_rows(phases: Sequence[LoopPhase]) -> list[tuple[str, str]]:
    """Return the state of the page cache: a row for all loops with the same state."""
    read = [phase for phase in phases if phase.api != "null" and not phase.reads_nothing]
    states = [(title_of(phase), _cache_at_start(phase)) for phase in read]
    return _group_rows("page cache", states)


def _cache_at_start(phase: LoopPhase) -> str:
    if phase.cache == "off":
        return "past the page cache (cache off)"
    state = cache_state(phase).removeprefix("page cache ")
    if phase.resident_share is None:
        return f"{state}: the kernel tells only users who may write the files"
    return f"{state}, {percent(phase.resident_share, 3)} of the bytes in the page cache"


def _group_rows(row: str, texts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return a row `prepare d, train: ...` for each text, with the names of all phases that have it."""
    groups = group_by(dict.fromkeys(texts), lambda pair: pair[1])
    return [(row, f"{', '.join(name for name, _ in pairs)}: {text}") for text, pairs in groups.items()]
