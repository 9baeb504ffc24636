"""Patterns given as text, compiled from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dliosim.language.blocks.external_datasets import missing_finder
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import Diagnostic, PatternError
from dliosim.model import Dataset, Finder, Job, Loop, Workload

DATA = """
dataset universe {
    samples  64
    size     1 MB
    path     "universe"
}
"""


class Patterns:
    """Writes pattern files into a directory and compiles them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.finder: Finder = missing_finder

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text("dlio 1\n" + text, encoding="utf-8")
        return path

    def workload(self, text: str, *overrides: tuple[str, str], ranks: int = 4, nodes: int = 1) -> Workload:
        path = self.file("main.dlio", "workload example\n" + text)
        return compile_pattern(path, overrides, Job(ranks, nodes), self.finder)[0]

    def loop(self, lines: str, *overrides: tuple[str, str], more: str = "", data: str = DATA, ranks: int = 4) -> Loop:
        text = f"{more}\n{data}\ntrain {{\n    read universe\n    {lines}\n}}\n"
        verb = self.workload(text, *overrides, ranks=ranks).verbs[-1]
        assert isinstance(verb, Loop)
        return verb

    def dataset(self, lines: str, *overrides: tuple[str, str], more: str = "", ranks: int = 4) -> Dataset:
        text = f'{more}\ndataset d {{\n    {lines}\n    path "d"\n}}\nprepare d\n'
        return self.workload(text, *overrides, ranks=ranks).dataset("d")

    def mistakes(self, text: str, *overrides: tuple[str, str], ranks: int = 4) -> list[Diagnostic]:
        with pytest.raises(PatternError) as caught:
            self.workload(text, *overrides, ranks=ranks)
        return [found for found in caught.value.diagnostics if found.is_error]

    def codes(self, text: str, *overrides: tuple[str, str], ranks: int = 4) -> list[str]:
        return [found.code for found in self.mistakes(text, *overrides, ranks=ranks)]


@pytest.fixture
def patterns(tmp_path: Path) -> Patterns:
    return Patterns(tmp_path)


@pytest.fixture
def raw_codes(tmp_path: Path) -> Callable[[bytes], list[str]]:
    """The codes that a file of these bytes gives."""

    def compile_bytes(data: bytes) -> list[str]:
        path = tmp_path / "raw.dlio"
        path.write_bytes(data)
        with pytest.raises(PatternError) as caught:
            compile_pattern(path, [], Job(2))
        return [found.code for found in caught.value.diagnostics]

    return compile_bytes
