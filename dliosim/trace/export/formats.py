"""The forms of an export, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dliosim.trace.events import Trace
from dliosim.trace.export.csv import write_csv
from dliosim.trace.export.dxt import write_dxt
from dliosim.trace.export.parquet import write_parquet
from dliosim.trace.export.perfetto import write_perfetto


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
