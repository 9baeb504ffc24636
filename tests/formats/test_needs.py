"""Formats whose packages are missing: an error that names the extra, before any data are written; the others work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Run before the tool: these packages cannot be found any more, whether installed or not.
WITHOUT = """
import importlib.util, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("PIL", "pyarrow", "matplotlib"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return None

sys.meta_path.insert(0, Blocker())
found = importlib.util.find_spec

def find_spec(name, package=None):
    try:
        return found(name, package)
    except ModuleNotFoundError:
        return None

importlib.util.find_spec = find_spec
from dliosim.cli import main
sys.argv[0] = "dliosim"
sys.exit(main())
"""

BLOCK = """
dataset %(form)s {
    samples  6
    size     4 kB
    format   %(form)s
    path     "%(form)s"
}
prepare %(form)s
train of_%(form)s {
    read    %(form)s
    decode  %(decode)s
}
"""


def run(place: Path, *forms: str, decode: str = "on") -> subprocess.CompletedProcess[str]:
    pattern = place / "w.dlio"
    blocks = [BLOCK % {"form": form, "decode": decode} for form in forms]
    pattern.write_text("\n".join(["dlio 1", "workload w", *blocks]))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "PMIX_", "HYDI_"))}
    command = ["run", str(pattern), "--dir", str(place / "data"), "--output", str(place / "out")]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *command],
        env={**inherited, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("form", "package", "extra"),
    [
        ("jpeg", "Pillow", "images"),
        ("png", "Pillow", "images"),
        ("parquet", "pyarrow", "parquet"),
    ],
)
def test_a_missing_package_is_said_with_its_extra_before_anything_is_written(
    form: str, package: str, extra: str, tmp_path: Path
) -> None:
    done = run(tmp_path, form, decode="off")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "error[R403]" in said
    assert f"the package `{package}` is not installed" in said
    assert f"pip install '.[{extra}]'" in said
    assert "Traceback" not in said
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "out").exists()


def test_formats_that_need_none_of_them_work_without(tmp_path: Path) -> None:
    done = run(tmp_path, "npy", "npz", "csv", "tfrecord", "tar", "indexed", "hdf5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out" / "results.json").exists()
