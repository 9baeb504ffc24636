"""Try the format that docs/dev/contributing.md adds, in a copy of the package; print what `check` and `run` say."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dliosim.cli import main
from dliosim.formats.contract_tests import check_damage, check_framed
from dliosim.formats.registry import bind
from dliosim.model import Dataset, Distribution, Layout

PATTERN = """dlio 1
workload w
dataset d {
    samples 64
    size    uniform(1 B, 5 kB)
    layout  2 files
    format  recordio
    path    "d"
}
prepare d
train {
    read   d
    batch  8 per rank
    decode on
}
"""


if __name__ == "__main__":
    place = Path(sys.argv[1])
    sizes = np.array([1, 2, 3, 4, 700])
    size = Distribution("uniform", (1.0, 700.0))
    form = bind(Dataset("d", 1, len(sizes), size, Layout("shared file", 1), "d", format="recordio"))
    check_framed(form, sizes, place / "file")
    check_damage(form, place / "file")
    pattern = place / "pattern.dlio"
    pattern.write_text(PATTERN)
    where = [str(pattern), "--dir", str(place / "data")]
    for line in (
        ["check", *where],
        ["plan", *where, "--ranks", "3"],
        ["run", *where, "--output", str(place / "out"), "--verify"],
    ):
        assert main(line) == 0, line
    assert main(["verify", *map(str, (place / "data/d").iterdir())]) == 0
