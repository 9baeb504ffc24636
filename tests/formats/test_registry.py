"""Formats by name, and what they read and decode by: imported before any clock runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from dliosim.errors import UsageError
from dliosim.formats import registry
from dliosim.formats.registry import bind, format_names
from tests.formats.datasets import dataset


@pytest.mark.parametrize("name", format_names())
def test_every_known_format_can_be_had_by_its_name(name: str) -> None:
    assert bind(dataset(name)).name == name


@pytest.mark.parametrize(("name", "module"), [("jpeg", "PIL.JpegImagePlugin"), ("parquet", "pyarrow.parquet")])
def test_decoders_are_imported_when_asked_for_and_not_before(name: str, module: str) -> None:
    pytest.importorskip(module)
    program = f"""
import sys
from dliosim.formats.registry import bind, import_libraries
from tests.formats.datasets import dataset
form = bind(dataset("{name}"))
before = "{module}" in sys.modules
import_libraries(form)
print(before, "{module}" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_what_reads_and_writes_hdf5_is_imported_before_a_run_and_not_by_check() -> None:
    program = """
import sys
from dliosim.formats.registry import bind, import_modules
from tests.formats.datasets import dataset
modules = bind(dataset("hdf5")).modules
before = [name in sys.modules for name in (*modules, "h5py")]
import_modules([dataset("hdf5")])
print(before, [name in sys.modules for name in (*modules, "dliosim.formats.hdf5.filters", "h5py")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[False, False, False] [True, True, True, True]\n"


def test_a_format_of_another_package_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("no samples")

    monkeypatch.setattr(registry, "load_format", lambda name: fail)
    with pytest.raises(UsageError, match="format `toy` cannot be bound to `d`: ZeroDivisionError: no samples") as found:
        bind(replace(dataset("raw"), format="toy"))
    assert found.value.code == "R403"
