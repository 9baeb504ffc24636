"""Formats by name, and what they read and decode by: imported before any clock runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dliosim.formats.registry import format_names, load_format


@pytest.mark.parametrize("name", format_names())
def test_every_known_format_can_be_had_by_its_name(name: str) -> None:
    assert load_format(name).name == name


@pytest.mark.parametrize(("name", "module"), [("jpeg", "PIL.JpegImagePlugin"), ("parquet", "pyarrow.parquet")])
def test_decoders_are_imported_when_asked_for_and_not_before(name: str, module: str) -> None:
    pytest.importorskip(module)
    program = f"""
import sys
from dliosim.formats.registry import import_libraries, load_format
form = load_format("{name}")
before = "{module}" in sys.modules
import_libraries(form)
print(before, "{module}" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_what_reads_and_writes_hdf5_is_imported_before_a_run_and_not_by_check() -> None:
    program = """
import sys
from dliosim.formats.registry import import_modules, load_format
from dliosim.model import Dataset, Layout, constant
modules = load_format("hdf5").modules
before = [name in sys.modules for name in (*modules, "h5py")]
import_modules([Dataset("d", 1, 4, constant(8), Layout("shared file", 1), "d", format="hdf5")])
print(before, [name in sys.modules for name in (*modules, "dliosim.formats.hdf5.filters", "h5py")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[False, False, False] [True, True, True, True]\n"
