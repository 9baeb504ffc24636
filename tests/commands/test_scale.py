"""Very many ranks, layers, tensors, files and loops are forecast within processor time and memory that are bounded."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import in_turn

ROOT = Path(__file__).parents[2]

#: Runs `dliosim` with each list of arguments in turn, and prints the peak of its memory in bytes. Ends with the first
#: status that is not 0, unless the error is the one given.
PROGRAM = """
import contextlib, io, json, resource, sys
from dliosim.cli import main
for arguments in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = main(arguments)
    sys.stderr.write(said.getvalue())
    if status and not any(text in said.getvalue() for text in sys.argv[2:]):
        sys.exit(status)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

LAYERS = """
dlio 1
workload large "a model of 10_000 layers"
param zero = 1
model m transformer {
    layers      10_000
    hidden      4096
    ffn         14336
    heads       32
    kv_heads    8
    vocabulary  128256
    optimizer   adam fp32
    zero        $zero
}
checkpoint c {
    model     m
    parallel  data $ranks
    path      "c"
}
save c
restore c
"""

TENSORS = """
dlio 1
workload split "tensors that 8_192 ranks have split"
param writers = into file per rank
checkpoint c {
    part      rows 131_072 x 1000 of bf16 split by rows
    part      columns 1000 x 131_072 of bf16 split by columns
    part      flat 1 GB total
    writers   $writers
    parallel  data $ranks
    path      "c"
}
restore c {
    written by  tensor 8_192
}
"""


CHUNKS = """
dlio 1
workload chunks "as many chunks as one file may have, in each of two files"
param files = 2
dataset d {{
    samples  16_777_216 * 4
    size     64 B
    format   {}
    chunk    2 samples
    layout   $files files
    path     "d"
}}
prepare d
train {{
    read     d
    shuffle  samples globally each epoch
}}
"""

LOOPS = """
dlio 1
workload loops "very many samples of varying size"
param samples = 100_000_000
param files = 1000
param batch = 1
dataset d {
    samples  $samples
    size     lognormal(100 kB, 50 kB)
    layout   $files files
    path     "d"
}
prepare d
"""


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))


def run(*commands: list[str], refusals: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(commands), *refusals]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=ROOT, preexec_fn=limited)


def test_every_shipped_pattern_is_checked_and_forecast_for_65536_ranks() -> None:
    patterns = [str(path) for path in (ROOT / "patterns").glob("*.dlio")]
    assert len(patterns) > 10
    listing = ["--csv", "--rank", "0", "--epoch", "2"]
    asked = in_turn(patterns, [("plan", []), ("explain", []), ("plan", listing)])
    commands = [[command, path, "--ranks", "65536", *more] for path, (command, more) in asked]
    # Batches of `inference` are larger than its table; some have no loop or one epoch; no files are written.
    refusals = (
        "`infer` would have zero steps",
        "has no loop",
        "there is no epoch 2",
        "only its files know",
        "reads nothing",
    )
    done = run(*commands, refusals=refusals)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < 1e9


@pytest.mark.parametrize("format", ["hdf5", "hdf5\n    compress gzip 4"])
def test_files_of_very_many_chunks_and_very_many_files_are_forecast(tmp_path: Path, format: str) -> None:
    pattern = tmp_path / "chunks.dlio"
    pattern.write_text(CHUNKS.format(format))
    done = run(
        ["plan", str(pattern), "--ranks", "65536"],
        ["plan", str(pattern), "--ranks", "65536", "-D", "files=4_194_304"],
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < 1e9


def test_loops_share_what_a_forecast_may_take(tmp_path: Path) -> None:
    pattern = tmp_path / "loops.dlio"
    loops = "\n".join(
        f"train t{number} {{\n read d\n batch $batch per rank\n epochs {number + 2}\n shuffle samples globally once\n}}"
        for number in range(300)
    )
    pattern.write_text(LOOPS + loops)
    done = run(["plan", str(pattern), "--ranks", "64"])
    assert done.returncode == 0, done.stderr
    large = run(["plan", str(pattern), "--ranks", "64", "-D", "samples=1_000_000_000", "-D", "batch=1_000_000"])
    assert large.returncode == 2
    assert "a step of each loop has 300_000_000 samples" in large.stderr


@pytest.mark.parametrize(("samples", "status"), [(4_900_000, 0), (16_000_000, 0), (60_000_000, 2)])
def test_samples_of_varying_size_in_one_file_are_listed_in_little_memory(
    tmp_path: Path, samples: int, status: int
) -> None:
    pattern = tmp_path / "loops.dlio"
    pattern.write_text(LOOPS + "train { read d\n shuffle samples globally each epoch\n steps 2_000\n}")
    arguments = ["--ranks", "5", "-D", f"samples={samples}", "-D", "files=1"]
    done = run(["plan", str(pattern), *arguments, "--csv"])
    assert done.returncode == status, done.stderr
    if status == 0:
        assert int(done.stdout.splitlines()[-1]) < 5e8


def test_a_rank_that_never_reads_is_listed_at_once(tmp_path: Path) -> None:
    pattern = tmp_path / "requests.dlio"
    text = LOOPS.replace("lognormal(100 kB, 50 kB)", "4 KiB").replace("100_000_000", "65_536")
    loop = "infer { read d\n batch 8 per rank\n last batch keep\n requests 10_000_000 per rank every 5 ms\n}"
    pattern.write_text(text + loop)
    done = run(["plan", str(pattern), "--ranks", "65536", "--rank", "53168", "--csv"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "step,sample,file,offset,length"
    assert len(done.stdout.splitlines()) == 2


def test_a_step_of_very_many_samples_is_listed_in_little_memory(tmp_path: Path) -> None:
    pattern = tmp_path / "step.dlio"
    text = LOOPS.replace("lognormal(100 kB, 50 kB)", "1 GB")
    pattern.write_text(text + "train {\n read d\n batch 4_194_304 per rank\n}")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps([["plan", str(pattern), "--ranks", "5", "--csv"]])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        preexec_fn=limited,
    )
    assert process.stdout is not None
    with process.stdout as stream:
        assert len(stream.read(1 << 20)) == 1 << 20
    _, _, used = os.wait4(process.pid, 0)
    assert used.ru_maxrss * 1024 < 4e8


def test_models_of_10000_layers_and_what_8192_ranks_have_split_are_forecast(tmp_path: Path) -> None:
    layers, tensors = tmp_path / "layers.dlio", tmp_path / "tensors.dlio"
    layers.write_text(LAYERS)
    tensors.write_text(TENSORS)
    done = run(
        ["plan", str(layers), "--ranks", "65536"],
        *(["plan", str(tensors), "--ranks", ranks] for ranks in ("1", "65536")),
        ["plan", str(tensors), "--ranks", "64", "-D", "writers=all ranks into shared file"],
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < 1e9


def test_what_one_rank_would_read_in_billions_of_pieces_is_refused(tmp_path: Path) -> None:
    pattern = tmp_path / "layers.dlio"
    pattern.write_text(LAYERS.replace("restore c", "restore c {\n    written by  data 65_536\n}"))
    done = run(["plan", str(pattern), "--ranks", "1", "-D", "zero=3"])
    assert done.returncode == 2
    assert "restoring checkpoint `c`, a rank reads 5.9e+09 pieces of tensors and files" in done.stderr
