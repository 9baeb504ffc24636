"""Preparing data before the passes of a comparison: the data of every variant, each once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.compare.experiment import parse_varied
from dliosim.compare.variants import compile_variants
from dliosim.execute.datasets.open_dataset import open_known_datasets
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.benchmark_pass import prepare_datasets, run_pass
from dliosim.model import Job, Loop
from dliosim.report.progress.progress_line import ProgressLine
from tests.examples import examples
from tests.execute.alone import world_of_one

PATTERN = """dlio 1
workload tiny
dataset d {
    samples  7
    size     900 B
    path     "d"
}
prepare d { fsync off }
train {
    read  d
    batch 2 per rank
}
"""

#: The settings of a data set that can vary: two of them are drawn, with two values each.
VARIED = {
    "path": ('"one"', '"two"', '"one/below"'),
    "root": ("data", "local"),
    "format": ("raw", "npy", "npz", "tfrecord", "hdf5", "tar"),
    "layout": ("shared file", "file per sample", "3 files", "3 files in 2 folders"),
    "size": ("900 B", "1 kB", "4000 B"),
    "samples": ("7", "9"),
    "stripe": ("1 MiB over 1 targets", "1 MiB over 2 targets"),
}


@settings(max_examples=examples(10))
@given(st.data())
def test_every_variant_has_its_own_data(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VARIED)), min_size=1, max_size=2, unique=True))
    vary = [
        f"d.{name}=" + ",".join(data.draw(st.permutations(VARIED[name]).map(lambda values: values[:2])))
        for name in names
    ]
    place = tmp_path_factory.mktemp("variants")
    (place / "tiny.dlio").write_text(PATTERN)
    roots = {"data": place / "data", "local": place / "local"}
    found, _ = compile_variants(place / "tiny.dlio", (), Job(1), parse_varied(vary), None)
    world = world_of_one()
    sessions = [Session(one.workload, world, roots, Options(verify=True), ProgressLine(None)) for one in found.variants]
    for session in sessions:
        session.make_roots()
    open_known_datasets(sessions)
    done: set[Path] = set()
    prepared = [phase for session in sessions for phase in prepare_datasets(session, done)]
    assert len(prepared) == len(sessions) == 2 ** len(names)
    for one, session in zip(found.variants, sessions, strict=True):
        assert isinstance(one.verb, Loop)
        assert run_pass(session, one.verb, cold=False, first=True).summary is not None
