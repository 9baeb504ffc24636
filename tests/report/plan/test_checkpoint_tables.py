"""Tables of `dliosim plan` about checkpoints, from patterns as users write them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dliosim.cli import main

HEAD = """dlio 1
workload w "w"
model tiny transformer {
    layers     2
    hidden     64
    ffn        128
    heads      4
    vocabulary 1000
    zero       1
}
checkpoint c {
    model    tiny
    part     rng 100 B per rank
    parallel tensor 2 data 2
    replicas dealt
    metadata on
    path     "c"
    {}
}
save c
"""


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def run(lines: str = "", *arguments: str, after: str = "") -> str:
        path = tmp_path / "w.dlio"
        path.write_text(HEAD.replace("{}", lines) + after)
        assert main(["plan", str(path), "--ranks", "4", *arguments]) == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 120
        return text

    return run


def test_model_split_contents_files_and_writers_are_said(planned) -> None:
    text = planned()
    # 2 VH + L (2H + 4 H^2 + 3 FH) + H with as many key-value heads as heads.
    parameters = 2 * 1000 * 64 + 2 * (2 * 64 + 4 * 64**2 + 3 * 128 * 64) + 64
    assert parameters == 210_240
    assert re.search(r"^model +tiny, 210 240 parameters: weights bf16, adam in fp32, ZeRO 1$", text, re.MULTILINE)
    assert re.search(r"^split +tensor 2 x pipeline 1 x data 2$", text, re.MULTILINE)
    assert re.search(r"^contents +weights 421\.1 kB, optimizer 2\.523 MB, rng 400 B: 2\.944 MB$", text, re.MULTILINE)
    assert re.search(r"^files +4 model \+ 4 optimizer \+ 4 \+ 1 metadata\.json$", text, re.MULTILINE)
    assert re.search(
        r"^written by +4 of 4 ranks, each rank its own files; what data-parallel ranks share is written by each "
        r"of them in turn$",
        text,
        re.MULTILINE,
    )
    assert "in background" not in text


def test_what_continues_in_the_background_is_said_with_its_buffers(planned) -> None:
    text = planned("async on\n    staging 1 GB/s\n    in flight 2\n    partner 1 rank\n    serialize 1 ms")
    assert re.search(
        r"^in background +2 saves in flight at most, buffers of 1\.\d+ MB on the rank that saves most,", text, re.M
    )
    assert re.search(r"copied at 1\.000 GB/s, \d+\.\d us on the rank that saves most", " ".join(text.split()))
    assert re.search(r"^serialized +in 1\.000 ms$", text, re.MULTILINE)
    assert re.search(r"^partner +rank r \+ 1 keeps what rank r saved", text, re.MULTILINE)
    assert "of it" in text and "staging" in text
    assert "no buffers (simulated)" in planned("async on\n    staging simulated 1 GB/s")


def test_how_often_to_save_is_a_table_of_bandwidths_or_the_one_given(planned) -> None:
    text = planned("", "--mtbf", "4 h")
    assert "how often to save c (2.944 MB) if the job fails every 4 h on average" in text
    rows = re.findall(r"^(\S+ [GT]B/s) ", text, re.MULTILINE)
    assert rows == ["1.000 GB/s", "10.00 GB/s", "100.0 GB/s", "1.000 TB/s"]
    given = planned("", "--mtbf", "8 h", "--save-time", "1 min", "--restart-time", "2 min")
    # Young: sqrt(2 x 60 x 28800).
    assert re.search(r"^as given +60\.00 s +120\.0 s +1859 s ", given, re.MULTILINE)
    assert "how often" not in planned()


def test_a_copy_whose_pace_is_not_given_is_not_taken_for_free_silently(planned) -> None:
    note = "c: nothing says how long the copy to buffers holds the ranks"
    assert note in planned("async on", "--mtbf", "4 h")
    assert note not in planned("async on\n    staging 1 GB/s", "--mtbf", "4 h")
    assert note not in planned("async on", "--mtbf", "4 h", "--save-time", "1 s")
    assert note not in planned("", "--mtbf", "4 h")


LOOP = """dataset d {
    samples 1000
    shape   1024 of uint8
    layout  shared file
    path    "d"
}
train {
    read       d
    batch      1 per rank
    steps      20
    compute    10 ms
    checkpoint c every 10 steps
}
"""


def test_an_own_interval_shorter_than_a_flush_is_raised_to_it_and_never_better_than_the_best(planned) -> None:
    # 2.944 MB at 1 kB/s: a flush takes 2944 s, and 10 steps 100 ms.
    given = ("--mtbf", "6 h", "--bandwidth", "1 kB/s")
    text = planned("async on", *given, after=LOOP)
    (row,) = re.findall(r"^1\.000 kB/s .*$", text, re.MULTILINE)
    cells = re.findall(r"-(?= |$)|\S+ (?:[num]?s|h|%|kB/s)(?= |$)", row)
    _, stall, flush, _, young, daly, every, saving, _, _, lost, own, lost_with_own = cells
    assert (stall, young, daly, saving) == ("-", "-", "-", "-")
    assert (every, own) == (flush, flush)
    assert lost == lost_with_own
    assert "The pattern's interval of 100.0 ms is shorter than a flush" in " ".join(text.split())
    assert "not possible" not in planned("async on", "--mtbf", "6 h", "--bandwidth", "1 TB/s", after=LOOP)
