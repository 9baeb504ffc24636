"""Checkpoints of very many ranks, layers and tensors are forecast within processor time and memory that are bounded."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Runs `dliosim` with each list of arguments in turn, and prints the peak of its memory in bytes.
PROGRAM = """
import json, resource, sys
from dliosim.cli import main
for arguments in json.loads(sys.argv[1]):
    status = main(arguments)
    if status:
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
workload split "tensors that 65_536 ranks have split"
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
    written by  tensor 65_536
}
"""


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))


def run(*commands: list[str]) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=ROOT, preexec_fn=limited)


def test_every_shipped_checkpoint_is_forecast_for_65536_ranks() -> None:
    patterns = [path for path in (ROOT / "patterns").glob("*.dlio") if "\ncheckpoint " in path.read_text()]
    assert len(patterns) > 5
    commands = [
        [command, str(path), "--ranks", "65536"] for path in patterns for command in ("check", "plan", "explain")
    ]
    done = run(*commands)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < 1e9


def test_models_of_10000_layers_and_what_65536_ranks_have_split_are_forecast(tmp_path: Path) -> None:
    layers, tensors = tmp_path / "layers.dlio", tmp_path / "tensors.dlio"
    layers.write_text(LAYERS)
    tensors.write_text(TENSORS)
    done = run(
        ["plan", str(layers), "--ranks", "65536"],
        *(["plan", str(tensors), "--ranks", ranks] for ranks in ("1", "64", "4096", "65536")),
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
