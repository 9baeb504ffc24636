"""The report of `dliosim plan`, from patterns as users write them."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Workload
from dliosim.plan.forecast.forecast import forecast, list_reads
from dliosim.report.plan.tables import plan_tables, write_csv
from tests.examples import ALL, in_turn

PATTERNS = Path(__file__).parents[3] / "patterns"
NAMES = sorted(path.stem for path in PATTERNS.glob("*.dlio"))


def compiled(name: str, ranks: int, nodes: int = 1, overrides: tuple[tuple[str, str], ...] = ()) -> Workload:
    return compile_pattern(PATTERNS / f"{name}.dlio", overrides, Job(ranks, nodes))[0]


@pytest.mark.parametrize(("name", "ranks"), in_turn(NAMES, [512 if ALL else 65, 3, 1]))
def test_every_pattern_has_a_plan_of_at_most_120_columns(name: str, ranks: int) -> None:
    workload = compiled(name, ranks)
    text = plan_tables(workload, forecast(workload))
    assert max(map(len, text.splitlines())) <= 120
    assert workload.digest() in text


def test_amounts_are_those_of_the_pattern() -> None:
    workload = compiled("resnet50_shared", 4, overrides=(("imagenet.samples", "1024"), ("main.epochs", "1")))
    lines = plan_tables(workload, forecast(workload)).splitlines()
    row = next(" ".join(line.split()) for line in lines if line.startswith("train main, epoch 1"))
    # Once; 5 steps of 4 x 50 samples of 114,660 B; the one file opened by each rank; a call a sample.
    assert row == "train main, epoch 1 1 5 1 000 114.7 MB 4 1 000 114.7 MB"


def test_what_was_not_worked_out_for_every_rank_is_marked_and_has_two_digits() -> None:
    workload = compiled("cosmoflow", 4096, 64, (("files", "4096 * 2000"),))
    text = plan_tables(workload, forecast(workload))
    assert "~ estimated" in text
    marked = [float(one.replace(" ", "")) for one in re.findall(r"~(\d+(?: \d{3})*(?:\.\d+)?)", text)]
    assert len(marked) > 20 and all(one == float(f"{one:.1e}") for one in marked)


BUSY = """dlio 1
workload busy
dataset d {{
    samples 400
    size    1 MB
    layout  file per sample
    path    "d"
}}
access a {{
    readers {}
}}
train {{
    read    d with a
    batch   5 per rank
    compute 10 ms
    {}
}}
"""


@pytest.mark.parametrize(
    ("says", "readers", "note"),
    [
        (
            "preprocess 1 ms",
            0,
            "takes 5.000 ms a step, too long for a utilization of 90 % with any storage; `readers 1` in the access",
        ),
        (
            "preprocess 5 ms",
            2,
            "takes 25.00 ms a step, even on 2 readers too long for a utilization of 90 % with any storage; `readers 3`",
        ),
        ("preprocess 100 us", 0, ""),
    ],
)
def test_where_preprocessing_is_too_slow_for_any_storage_it_says_what_would_help(
    says: str, readers: int, note: str, tmp_path: Path
) -> None:
    path = tmp_path / "busy.dlio"
    path.write_text(BUSY.format(readers, says))
    workload = compile_pattern(path, (), Job(4, 1))[0]
    text = plan_tables(workload, forecast(workload))
    assert ("any storage" in text) == bool(note)
    assert note in " ".join(text.split())


def test_csv_has_a_row_for_each_sample_that_the_rank_reads() -> None:
    workload = compiled("cosmoflow", 3)
    stream = io.StringIO()
    write_csv(stream, list_reads(workload, 2, 1))
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert len(rows) == 218
    assert [int(row["step"]) for row in rows] == list(range(218))
    assert all(row["file"].endswith(f"{int(row['sample']):09d}.tfrecord") for row in rows)
    assert all(2_000_000 <= int(row["length"]) <= 4_000_000 for row in rows)
