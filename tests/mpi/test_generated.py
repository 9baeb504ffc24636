"""Data that are made to look like existing files take as many bytes as these, within a tenth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.mpi.waiting import run_command

WAVES = np.cumsum(np.random.default_rng(1).normal(size=1 << 20))


def write_hdf5(folder: Path, codec: str) -> None:
    for number in range(4):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            data = (10 * WAVES[number:][: 32 << 12]).astype("float32").reshape(32, 64, 64)
            file.create_dataset("scan", data=data, chunks=(4, 64, 64), compression=codec)


def write_arrays(folder: Path, kind: str) -> None:
    save = np.savez_compressed if kind == "deflated" else np.savez
    for number in range(20):
        save(folder / f"{number}.npz", x=(10 * WAVES[number:][:50_000]).astype("int16"))


def write_table(folder: Path, codec: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({f"c{number}": WAVES[number:][:20_000].astype("float32") for number in range(4)})
    pq.write_table(table, folder / "0.parquet", compression=codec, row_group_size=5000, use_dictionary=False)


@pytest.mark.parametrize(
    ("write", "kind", "ranks"),
    [
        (write_hdf5, "gzip", 3),
        (write_hdf5, "lzf", 2),
        (write_arrays, "deflated", 5),
        (write_arrays, "stored", 1),
        (write_table, "zstd", 2),
    ],
)
def test_as_many_bytes_are_written(write: Callable[[Path, str], None], kind: str, ranks: int, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine", kind)
    assert run_command(1, ["new", "like", "--from", "mine", "--generated"], tmp_path, 60).returncode == 0
    text = (tmp_path / "like.dlio").read_text().partition("\ndrop caches")[0]
    (tmp_path / "like.dlio").write_text(text)
    done = run_command(ranks, ["run", "like.dlio", "--dir", "data"], tmp_path, 60)
    assert done.returncode == 0, done.stderr
    made, theirs = (
        sum(file.stat().st_size for file in (tmp_path / place).rglob("*.*") if file.suffix != ".json")
        for place in ("data", "mine")
    )
    assert made == pytest.approx(theirs, rel=0.1)
