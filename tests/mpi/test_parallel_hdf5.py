"""Ranks read by a parallel HDF5, where h5py is built for one (scripts/parallel_hdf5.sh)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.formats.contract_tests import random_contents, write_resolved
from dliosim.formats.hdf5.format import hdf5
from dliosim.formats.hdf5.library import has_parallel_hdf5
from dliosim.model import Dataset
from tests.formats.hdf5_sample import described
from tests.mpi.waiting import run_main

FILES: dict[str, Dataset] = {
    "contiguous": described(shape=(4, 5), element="float32"),
    "chunked": described(shape=(4, 5), element="float32", chunk=(3, "samples")),
    "cut": described(shape=(7, 5, 3), element="int16", chunk=(60, "bytes")),
    "parts": described(shape=(3, 4), element="int16", parts=3, chunk=(4, "samples")),
    "gzip": described(shape=(4, 5), element="float32", codec="gzip", chunk=(3, "samples")),
}


@pytest.mark.skipif(not has_parallel_hdf5(), reason="this h5py is not parallel: see docs/running.md#parallel-hdf5")
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_read_alone_and_together_what_is_in_the_file(ranks: int, tmp_path: Path) -> None:
    for name, dataset in FILES.items():
        size = dataset.constant_size
        assert size is not None
        write_resolved(hdf5(dataset), tmp_path / f"{name}.hdf5", 7)
        whole = b"".join(random_contents(dataset, row, size).tobytes() for row in range(7))
        (tmp_path / f"{name}.bin").write_bytes(whole)
    said = run_main(ranks, "tests.mpi.hdf5_program", tmp_path).splitlines()
    shares = "7" if ranks == 1 else "3 4"
    assert sorted(said) == sorted(f"{name} {way} {shares}" for name in FILES for way in ("alone", "together"))
