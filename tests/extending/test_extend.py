"""`dliosim.extend`, the one module that other packages import from."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dliosim import extend

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", extend.__all__)
def test_each_name_that_it_offers_is_there(name: str) -> None:
    assert getattr(extend, name) is not None


def test_another_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute .Nothing"):
        _ = extend.Nothing  # type: ignore[attr-defined]


def test_a_format_that_imports_from_it_loads_no_mpi() -> None:
    program = "import sys; from dliosim.extend import Framed, check_framed; print('mpi4py' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"


def test_the_page_and_the_toy_package_import_nothing_else_of_dliosim() -> None:
    texts = [ROOT / "docs/dev/extending.md", *(ROOT / "tests/extending").rglob("*.py")]
    imported = {
        module
        for path in texts
        if path.name != Path(__file__).name
        for module in re.findall(r"^(?:from|import) (dliosim[\w.]*)", path.read_text(), re.MULTILINE)
    }
    assert imported == {"dliosim.extend"}
