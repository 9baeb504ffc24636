"""Some columns of a table on ranks: the bytes that calls move are those of the file's own footer, and as planned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dliosim.cli import main
from tests.examples import ALL
from tests.mpi.jobs import Place, phases

pq = pytest.importorskip("pyarrow.parquet")

TABLE = """
dataset table {
    samples  96
    columns  7 of float32, 20 of int64, 3 of 5 x int32
    format   parquet
    chunk    8 samples
    layout   2 files
    path     "table"
}
prepare table
train {
    read        table
    columns     9
    batch       8 per rank
    last batch  keep
}
"""


@pytest.mark.parametrize(
    ("through", "ranks"),
    [
        (through, ranks)
        for through, by_day in (("direct", (1, 3, 5)), ("library", (2, 3)))
        for ranks in ((1, 2, 3, 5) if ALL else by_day)
    ],
)
def test_only_the_chunks_of_the_columns_are_read(
    through: str, ranks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path)
    path = place.write(TABLE)
    (loop,) = phases(place.results(ranks, "--verify", define={"train.through": through}), "train")
    (epoch,) = loop["epochs"]
    assert epoch["samples"] == 96
    files = [pq.ParquetFile(file).metadata for file in place.files("table/*/*.parquet")]
    groups = [one.row_group(number) for one in files for number in range(one.num_row_groups)]
    chunks = [group.column(number).total_compressed_size for group in groups for number in range(9)]
    if through == "library":
        assert 96 * (7 * 4 + 2 * 8) < epoch["bytes"] <= sum(chunks)
        return
    # A batch is a row group, so each chunk is read once.
    assert (epoch["bytes_moved"], epoch["calls"]) == (sum(chunks), len(chunks))
    assert main(["plan", str(path), "--dir", str(place.data), "--ranks", str(ranks)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("train, epoch 1 "))
    *_, opens, calls, _ = re.split(r" {2,}", row.replace(" kB", "kB"))
    assert (opens, calls) == (str(epoch["opens"]), str(epoch["calls"]))
