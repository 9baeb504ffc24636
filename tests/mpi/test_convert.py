"""`convert`: each sample is read once and written once, as planned; what comes out can be read and verified."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from dliosim.cli import main
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast
from tests.examples import ALL
from tests.mpi.jobs import Place, only_error, phases

LOOSE = """
dataset loose {
    samples  41
    size     uniform(3000 B, 9000 B)
    path     "loose"
}
"""

OTHERS = {
    "raw": "size 5 kB\n layout shared file\n header 100 B",
    "tfrecord": "size uniform(100 B, 9 kB)\n layout 3 files",
    "npz": "size 4 kB\n layout file per sample",
    "npy": "size 4 kB\n layout 4 files",
    "hdf5": "size 4 kB\n layout 3 files\n chunk 4 samples\n compress gzip 1",
    "indexed": "shape 129 of uint16\n layout 2 files",
}


def dataset(form: str, samples: int = 41) -> str:
    return f'dataset {form}_data {{\n samples {samples}\n format {form}\n {OTHERS[form]}\n path "{form}"\n}}\n'


def chain(*forms: str) -> str:
    """Return the data sets and conversions of one format to the next, and a loop over each."""
    names = ["loose", *(f"{form}_data" for form in forms)]
    steps = [f"convert {one} to {other} {{\n transfer 4 kB\n}}" for one, other in pairwise(names)]
    loops = [f"train t{number} {{\n read {name}\n shard off\n}}" for number, name in enumerate(names[1:])]
    return "\n".join([LOOSE, *map(dataset, forms), "prepare loose", *steps, *loops, ""])


@pytest.mark.parametrize("ranks", [1, 2, 3, 5] if ALL else [1, 5])
def test_any_format_becomes_any_other_as_planned(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    path = place.write(chain(*OTHERS))
    found = phases(place.results(ranks, "--verify"), "convert")
    planned = [one for one in forecast(compile_pattern(path, [], Job(ranks))[0]).phases if one.verb == "convert"]
    assert len(planned) == 2 * len(found) == 2 * len(OTHERS)
    for phase, reading, writing in zip(found, planned[::2], planned[1::2], strict=True):
        done = phase["files"]
        compared = [(getattr(reading, name), f"source_{name}") for name in ("bytes", "calls", "opens")]
        compared += [(getattr(writing, name), name) for name in ("bytes", "calls", "opens", "files")]
        exact = {name: spread.total for spread, name in compared if not spread.estimated}
        assert exact == {name: done[name] for name in exact}, phase["name"]
        assert reading.samples.total == writing.samples.total == 41
    assert main(["verify", str(place.data)]) == 0


def test_what_is_read_is_exact_where_places_are_known(tmp_path: Path) -> None:
    path = Place(tmp_path).write(chain("raw", "tfrecord"))
    planned = [one for one in forecast(compile_pattern(path, [], Job(2))[0]).phases if one.verb == "convert"]
    figures = [getattr(one, name) for one in planned[::2] for name in ("samples", "bytes", "calls", "opens")]
    assert not any(figure.estimated for figure in figures)


def test_decoding_and_preprocessing_take_their_time(tmp_path: Path) -> None:
    place = Place(tmp_path)
    work = {"convert npy_data.decode": "on", "convert npy_data.preprocess": "1 ms busy"}
    loose = LOOSE.replace("path", "format tfrecord\n path")
    place.write(loose, dataset("npy"), "prepare loose\nconvert loose to npy_data\n")
    (phase,) = phases(place.results(2, define=work), "convert")
    times = phase["files"]["preprocess_seconds"]
    assert times["mean"] * 2 >= 41e-3
    assert phase["files"]["decode_seconds"]["mean"] > 0


def test_a_conversion_that_fails_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(chain("tfrecord"))
    place.results(2)
    (damaged, *_) = sorted(place.data.glob("loose/*/*17*"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    place.write(LOOSE, dataset("tfrecord"), "convert loose to tfrecord_data\n")
    assert "R401" in only_error(place.run(2))
    place.write(LOOSE, dataset("tfrecord"), "train {\n read tfrecord_data\n}\n")
    assert "data set `tfrecord_data`" in only_error(place.run(2))
