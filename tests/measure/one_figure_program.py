"""Run, report, compare and draw in a copy of the package with two figures more; write where they are found."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import h5py

from dliosim.cli import main
from dliosim.pictures.style import apply_style
from dliosim.pictures.time_breakdown import time_by_rank
from dliosim.report.reader.load import SavedRun, load_results

PATTERN = """dlio 1
workload w
dataset d {
    samples 8
    size    4 kB
    layout  2 files
    path    "d"
}
checkpoint c {
    part state 4 kB per rank
    path "c"
}
prepare d
train {
    read       d
    batch      2 per rank
    checkpoint c every 1 step
    epochs     1
}
expect saves of train at least 3
"""


if __name__ == "__main__":
    scripts, place = sys.argv[1], Path(sys.argv[2])
    (place / "w.dlio").write_text(PATTERN)
    common = ["w.dlio", "--dir", "data"]
    for command in (
        ["compare", *common, "--vary", "transfer=1 KiB,2 KiB", "--repeat", "1", "--output", "compared"],
        ["run", *common, "--output", "run"],
        ["report", "run", "--full"],
        ["report", "run"],
    ):
        if main(command):
            sys.exit(f"{command} failed")
    (place / "misspelt.dlio").write_text(PATTERN.replace("expect saves", "expect save"))
    for command in (["check", "misspelt.dlio"], ["explain", "saves"]):
        main(command)
    (saved,) = load_results(["run"], with_arrays=True)
    assert isinstance(saved, SavedRun)
    with apply_style():
        (legend,) = time_by_rank(saved.loops[0].rank_times).legends
    with h5py.File("run/ranks.h5") as file:
        (loop,) = file.values()
        columns = {name: int(loop[name][0, 0]) for name in ("saves", "seek_ns")}
    sys.path.insert(0, scripts)
    write_figures = importlib.import_module("write_figures")
    schema = write_figures.fill_schema(json.loads(Path("tree/docs/results.schema.json").read_text()))
    found = {
        "columns": columns,
        "legend": [text.get_text() for text in legend.get_texts()],
        "schema": schema["$defs"]["epoch"],
        "page": write_figures.fill_page(Path("tree/docs/metrics.md").read_text()),
    }
    (place / "found.json").write_text(json.dumps(found))
