"""`convert A to B`: what it takes, what it refuses, and that it explains itself."""

from __future__ import annotations

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.language.unparse import explain_pattern
from dliosim.model import Convert, Job, Preprocess, constant
from tests.language.conftest import Patterns

LOOSE = 'dataset loose {\n samples 12\n size 1 kB\n path "loose"\n}\n'
PACKED = 'dataset packed {\n samples 12\n size 2 kB\n layout 3 files\n path "packed"\n}\n'


def text(line: str, data: str = LOOSE + PACKED) -> str:
    return f"{data}prepare loose\n{line}\n"


@pytest.mark.parametrize(
    ("lines", "verb"),
    [
        ("", {}),
        ("{\n preprocess 2 ms busy\n}", {"preprocess": Preprocess(constant(0.002), busy=True)}),
        ("{\n fsync off\n}", {"fsync": False}),
    ],
)
def test_it_is_read_and_explained(lines: str, verb: dict[str, object], patterns: Patterns) -> None:
    pattern = text(f"convert loose to packed {lines}")
    workload = patterns.workload(pattern)
    found = workload.verbs[-1]
    assert isinstance(found, Convert)
    assert (found.source, found.dataset, found.afresh) == ("loose", "packed", True)
    assert all(getattr(found, name) == value for name, value in verb.items())
    again = patterns.folder / "explained.dlio"
    again.write_text(explain_pattern(patterns.file("main.dlio", f"workload example\n{pattern}"), [], Job(4)))
    assert compile_pattern(again, [], Job(4))[0].digest() == workload.digest()


def test_its_settings_are_given_on_the_command_line_by_the_data_set_that_it_writes(patterns: Patterns) -> None:
    given = (("convert packed.transfer", "1 MiB"), ("convert.preprocess", "1 ms"))
    found = patterns.workload(text("convert loose to packed"), *given).verbs[-1]
    assert isinstance(found, Convert)
    assert (found.access.transfer, found.preprocess) == (1 << 20, Preprocess(constant(0.001)))


@pytest.mark.parametrize(
    ("line", "data", "code"),
    [
        ("convert loose to loose", LOOSE, "E211"),
        ("convert loose to packed", LOOSE + PACKED.replace("samples 12", "samples 13"), "E211"),
        ("convert loose to packed {\n api mpi-independent\n}", LOOSE + PACKED, "E211"),
        ("convert loose to nothing", LOOSE, "E101"),
        ("convert loose", LOOSE, "E003"),
        ("convert loose to packed {\n readers 2\n}", LOOSE + PACKED, "E210"),
        ("convert loose to there", LOOSE + 'dataset there {\n from files "*.npy"\n}\n', "E215"),
    ],
)
def test_what_cannot_be_is_refused(line: str, data: str, code: str, patterns: Patterns) -> None:
    assert patterns.codes(text(line, data)) == [code]


def test_what_it_reads_must_have_been_prepared_before(patterns: Patterns) -> None:
    workload = patterns.workload(f"{LOOSE}{PACKED}convert loose to packed\ntrain {{\n read packed\n}}\n")
    assert workload.missing_prepares() == {"convert loose to packed": "loose"}
