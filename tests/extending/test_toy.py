"""A package of somebody else brings a format and a backend: they run like our own, or are named as broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.mpi.jobs import Place
from tests.mpi.launch import ROOT, run_ranks

TOY = Path(__file__).parent / "toy"
PAGE = ROOT / "docs/dev/extending.md"

PATTERN = """
dataset d {
    samples  41
    size     uniform(300 B, 900 B)
    layout   shared file
    path     "d"
    format   blocks
}
checkpoint c {
    part     weights 300 kB total
    writers  all ranks into shared file
    path     "c"
    api      mirror
}
prepare d {
    api      mirror
}
train {
    read     d
    batch    4 per rank
    shuffle  samples globally each epoch
    api      mirror
    readers  2
}
save c
restore c
"""


def installed(source: Path, directory: Path) -> Path:
    """Install a package from its source below `directory`; where it is then.

    Offline, and with no more than setuptools and pip: the wheel is packed here.
    """
    pytest.importorskip("setuptools")
    pytest.importorskip("pip")
    built, target = directory / "built", directory / "installed"
    shutil.copytree(source, directory / "source", ignore=shutil.ignore_patterns("__pycache__"))
    steps = ["build_py", "--build-lib", str(built), "egg_info", "--egg-base", str(directory)]
    _run(["-c", "import setuptools; setuptools.setup()", *steps], directory / "source")
    [described] = directory.glob("*.egg-info")
    info = "dliosim_toy-1.0.dist-info"
    wheel = directory / "dliosim_toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path in built.rglob("*.py"):
            packed.write(path, path.relative_to(built))
        packed.write(described / "PKG-INFO", f"{info}/METADATA")
        packed.write(described / "entry_points.txt", f"{info}/entry_points.txt")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", "")
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target", str(target)]
    _run(["-m", "pip", "install", *options, str(wheel)], directory)
    return target


def finding(package: Path) -> dict[str, str]:
    """The environment in which Python finds what is installed there."""
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(package)])}


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run([sys.executable, *command], cwd=directory, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(TOY, tmp_path_factory.mktemp("toy"))


@pytest.mark.parametrize("ranks", [0, 2])
def test_the_shipped_checks_pass_on_both(toy: Path, tmp_path: Path, ranks: int) -> None:
    program = ["-m", "mpi4py", "-m", "tests.extending.contract_program", str(tmp_path)]
    done = run_ranks(ranks, *program, env=finding(toy))
    assert done.stdout == "the contract is kept\n", done.stderr


@pytest.mark.parametrize("writer", ["mirror", "posix"])
def test_a_pattern_that_names_both_writes_and_reads_every_byte(toy: Path, tmp_path: Path, writer: str) -> None:
    place = Place(tmp_path)
    place.write(PATTERN.replace("api      mirror\n}\ntrain", f"api      {writer}\n}}\ntrain"))
    done = run_ranks(2, *place.arguments("--verify"), env=finding(toy), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    [file] = place.files("d/*/*.blocks")
    assert file.read_bytes()[8:16] == b"A BLOCK\n"
    assert file.read_bytes().count(b"A BLOCK\n") == 41
    phases = json.loads((place.output / "results.json").read_text())["phases"]
    found = [(phase["kind"], phase["api"]) for phase in phases]
    assert found == [("prepare", writer), ("train", "mirror"), ("save", "mirror"), ("restore", "mirror")]


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        (
            "blocks.py",
            "import no_such_module",
            r"format `blocks` cannot be loaded from `dliosim_toy.blocks:blocks`: ",
        ),
        ("blocks.py", "blocks = 7", r"format `blocks`: 7 is no format"),
        ("mirror.py", "1 / 0", r"api `mirror` cannot be loaded from `dliosim_toy.mirror:MIRROR`: ZeroDivisionError"),
        ("mirror.py", "MIRROR = 7", r"api `mirror`: 7, from `dliosim_toy.mirror:MIRROR`, is no backend of that name"),
    ],
)
def test_a_broken_package_is_named(toy: Path, tmp_path: Path, file: str, content: str, text: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(toy, broken, ignore=shutil.ignore_patterns("__pycache__"))
    (broken / "dliosim_toy" / file).write_text(content + "\n")
    place = Place(tmp_path)
    place.write(PATTERN)
    done = run_ranks(0, *place.arguments(), env=finding(broken), cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "error[R403]" in done.stderr
    assert re.search(text, done.stderr), done.stderr
    assert not list(tmp_path.glob("data/d"))


def test_the_page_says_how_to_test_them(toy: Path, tmp_path: Path) -> None:
    [program] = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def test_" in block
    ]
    (tmp_path / "test_theirs.py").write_text(program)
    # A place of its own: in the usual one pytest first removes what earlier sessions left.
    place = f"--basetemp={tmp_path}/theirs"
    done = run_ranks(0, "-m", "pytest", "-q", place, str(tmp_path), env=finding(toy), cwd=tmp_path)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("file", ["setup.cfg", "dliosim_toy/blocks.py", "dliosim_toy/mirror.py"])
def test_the_page_shows_the_files_as_they_are(file: str) -> None:
    assert (TOY / file).read_text() in PAGE.read_text()
