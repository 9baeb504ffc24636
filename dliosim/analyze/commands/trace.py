"""The command `dliosim trace`: the events of a trace, whole or a part, in the forms of other programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from dliosim.analyze.export.perfetto import write_perfetto
from dliosim.analyze.export.tables import STANDARD, check_new, select_part, write_csv, write_dxt, write_parquet
from dliosim.analyze.read.open_trace import open_trace
from dliosim.errors import TraceError, UsageError
from dliosim.readable import printable, size
from dliosim.trace.cut import TracePart
from dliosim.trace.events import Trace
from dliosim.trace.file import FILE_NAME


@dataclass(frozen=True, slots=True)
class Format:
    """A form of an export."""

    #: end of the name of its files
    ending: str
    #: writes a trace to a path and returns what its reader should know
    write: Callable[[Trace, str], list[str]]
    #: what to do with the file
    use: str


FORMATS: Final = {
    "perfetto": Format(".pfw.gz", write_perfetto, "open it at https://ui.perfetto.dev"),
    "csv": Format(".csv", write_csv, "a row for each event"),
    "parquet": Format(".parquet", write_parquet, "a row for each event"),
    "dxt": Format(".dxt.txt", write_dxt, "their reads and writes, as darshan-dxt-parser prints them"),
}


def trace_command(parsed: SimpleNamespace) -> int:
    """Write the events of a trace; return 0. Raises UsageError, TraceError and ExecutionError."""
    form = FORMATS[parsed.format]
    place = Path(parsed.trace)
    output = parsed.output or _name_output(place, form.ending)
    if output != STANDARD:
        # A large trace takes minutes to read.
        check_new(Path(output))
    whole = open_trace([place])
    trace = _cut_trace(whole, parsed.part or TracePart())
    notes = [*(f"incomplete: {each}" for each in whole.incomplete), *form.write(trace, output)]
    sys.stderr.write("".join(f"{printable(note, lines=True)}\n" for note in notes))
    if output != STANDARD:
        events, kept = len(whole.events), len(trace.events)
        some = f"{kept:_} events" if kept == events else f"{kept:_} of {events:_} events"
        bytes_ = size(Path(output).stat().st_size, 3)
        sys.stdout.write(f"{printable(output)}: {some}, {bytes_}; {form.use}\n")
    return 0


def _cut_trace(trace: Trace, part: TracePart) -> Trace:
    if not len(trace.events):
        raise TraceError(f"{trace.path} has counters alone and no events: there is nothing to export")
    events = select_part(trace.events, part)
    if not len(events):
        ranks = f"ranks 0 to {len(trace.events.processes) - 1}"
        steps, seconds = max(int(trace.events.step.max()), 0), trace.duration / 1e9
        raise UsageError(
            f"{trace.path} has no event in this part: it has {ranks}, steps to {steps}, times to {seconds:.3f} s"
            f'\n  = help: dliosim trace export {trace.path} --part "{ranks}"'
        )
    if events is trace.events:
        return trace
    return replace(trace, events=events, notes=(*trace.notes, f"exported: {part.text}"))


def _name_output(place: Path, ending: str) -> str:
    """Return the name of a trace, in the current folder, with another ending."""
    named = place.resolve().parent if place.name == FILE_NAME else place.resolve()
    return f"{named.name or 'trace'}{ending}"
