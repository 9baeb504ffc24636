"""Reading by a format's library, by another package's backend, and what is done with a sample after it is read."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from dliosim import plugins
from dliosim.language.checks import access_checks
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.language.unparse import explain_pattern
from dliosim.model import Distribution, Job, Preprocess, constant
from tests.language.conftest import Patterns
from tests.language.stubs import Read, Stub, pretended

DATA = """
dataset universe {
    samples  64
    size     4 KiB
    format   %s
    layout   shared file
    path     "universe"
}
"""


def found(patterns: Patterns, lines: str, form: str = "hdf5", more: str = "", parallel: bool = False) -> list[str]:
    data = (DATA % form).replace("layout", f"{more}\n    layout")
    with pretended(parallel):
        try:
            patterns.workload(f"{data}\ntrain {{\n read universe\n {lines}\n}}\n")
        except PatternError as error:
            return [each.code for each in error.diagnostics if each.is_error]
    return []


def test_a_loop_that_says_nothing_reads_ranges_and_decodes_nothing(patterns: Patterns) -> None:
    loop = patterns.loop("")
    assert (loop.access.through, loop.decode, loop.preprocess) == ("direct", False, None)


def test_who_reads_a_batch_decodes_and_works_on_its_samples(patterns: Patterns) -> None:
    with pretended():
        data = DATA % "npy"
        loop = patterns.loop("through library\n decode on\n preprocess gamma(2 ms, 1 ms) busy", data=data)
        assert patterns.loop("preprocess 1 ms", data=data).preprocess == Preprocess(constant(0.001))
    assert (loop.access.through, loop.decode) == ("library", True)
    assert loop.preprocess == Preprocess(Distribution("gamma", (0.002, 0.001)), busy=True)


@pytest.mark.parametrize(
    ("form", "code"),
    [("hdf5", ""), ("npy", ""), ("npz", ""), ("raw", "E216"), ("tfrecord", "E216"), ("jpeg", "E216"), ("csv", "E216")],
)
def test_some_formats_have_a_library(form: str, code: str, patterns: Patterns) -> None:
    assert found(patterns, "through library", form) == ([code] if code else [])


def test_a_format_of_another_package_shows_whether_it_has_a_library(
    patterns: Patterns, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = patterns.dataset("samples 8\n size 1 kB")
    for made, has in ((Read, True), (Stub, False)):
        monkeypatch.setattr(access_checks, "bind", made)
        assert access_checks.has_library(dataset) is has


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("transfer whole sample", ""),
        ("transfer 1 KiB", "E211"),
        ("readers 4 by batch", ""),
        ("readers 4 by sample", "E211"),
        ("readers 0 by sample", ""),
        ("engine preadv", "E211"),
        ("engine mmap", "E211"),
        ("cache off", "E206"),
        ("cache memory 1 MB", ""),
        ("scatter by node", "E211"),
        ("scatter off", ""),
        ("hints library", ""),
        ("hints two-phase", "E211"),
        ('hint "a" = "b"', "E211"),
        ("order by offset", ""),
        ("open each epoch", ""),
    ],
)
def test_a_library_makes_its_own_calls(lines: str, code: str, patterns: Patterns) -> None:
    assert found(patterns, f"through library\n {lines}") == ([code] if code else [])


@pytest.mark.parametrize(
    ("form", "api", "parallel", "code"),
    [
        ("hdf5", "mpi-independent", True, ""),
        ("hdf5", "mpi-collective", True, ""),
        ("hdf5", "mpi-independent", False, "R403"),
        ("hdf5", "mpi-collective", False, "R403"),
        ("npy", "mpi-independent", True, "E216"),
        ("hdf5", "gds", True, "E216"),
    ],
)
def test_only_a_parallel_hdf5_reads_by_mpi_io(
    form: str, api: str, parallel: bool, code: str, patterns: Patterns
) -> None:
    assert found(patterns, f"through library\n api {api}", form, parallel=parallel) == ([code] if code else [])


def test_a_collective_read_of_compressed_chunks_is_no_mistake(patterns: Patterns) -> None:
    assert found(patterns, "api mpi-collective\n decode on", more="chunk 4 samples\n    compress gzip") == []


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("readers 4 by sample", ""),
        ("transfer 1 KiB", ""),
        ("transfer 1 KiB\n readers 4 by batch", ""),
        ("transfer 1 KiB\n readers 0 by sample", ""),
        ("transfer 1 KiB\n readers 4 by sample", "E211"),
    ],
)
def test_who_decodes_a_sample_has_read_all_of_it(lines: str, code: str, patterns: Patterns) -> None:
    assert found(patterns, f"decode on\n {lines}") == ([code] if code else [])


@pytest.mark.parametrize(
    ("form", "more", "code"),
    [
        ("hdf5", "", ""),
        ("hdf5", "chunk 4 samples", ""),
        ("hdf5", "chunk 4 KiB", ""),
        ("hdf5", "chunk 4095 B", "E211"),
        ("hdf5", "compress gzip", "E211"),
        ("hdf5", "datasets 2", "E211"),
        ("npz", "compress gzip", "E211"),
        ("raw", "", ""),
    ],
)
def test_memory_keeps_samples_that_are_ranges_alone(form: str, more: str, code: str, patterns: Patterns) -> None:
    assert found(patterns, "cache memory 1 MB", form, more) == ([code] if code else [])


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("readers 4\n prefetch 3 batches", ""),
        ("cache off", ""),
        ("open each sample", ""),
        ("transfer 4 KiB", ""),
        ("engine queued", "E211"),
        ("engine preadv", "E211"),
        ("communicator node", "E211"),
        ("communicator world", ""),
        ("scatter by node", "E211"),
        ("hints two-phase", "E211"),
        ('hint "a" = "b"', "E211"),
    ],
)
def test_a_backend_of_another_package_is_asked_for_reads_and_no_more(lines: str, code: str, patterns: Patterns) -> None:
    assert found(patterns, f"api gds\n {lines}", "raw") == ([code] if code else [])


@pytest.mark.parametrize(("api", "code"), [("gds", []), ("null", ["E003"]), ("library", ["E003"])])
def test_backends_of_other_packages_are_their_entry_points_but_for_words_of_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: str, code: list[str]
) -> None:
    points = [EntryPoint(name, f"theirs:{name}", plugins.APIS.group) for name in ("gds", "null", "library")]
    monkeypatch.setattr(plugins, "find_entry_points", lambda group: EntryPoints(points).select(group=group))
    assert plugins.APIS.names() == ("posix", "mpi-independent", "mpi-collective", "gds")
    with pytest.raises(KeyError):
        plugins.APIS.load("null")
    pattern = tmp_path / "pattern.dlio"
    pattern.write_text(f"dlio 1\nworkload w\n{DATA % 'raw'}\ntrain {{\n    read universe\n    api {api}\n}}\n")
    try:
        compile_pattern(pattern, [], Job(4))
        found = []
    except PatternError as error:
        found = [one.code for one in error.diagnostics]
    assert found == code


@pytest.mark.parametrize(
    "lines",
    [
        "through library\n    decode on\n    preprocess 2 ms busy",
        "api gds\n    readers 2",
        "through library\n    api mpi-collective",
        "api mpi-collective\n    decode on",
    ],
)
def test_what_reads_in_our_place_as_explained_is_the_same(lines: str, tmp_path: Path) -> None:
    written, resolved = tmp_path / "pattern.dlio", tmp_path / "resolved.dlio"
    written.write_text(f"dlio 1\nworkload w\n{DATA % 'hdf5'}\ntrain {{\n    read universe\n    {lines}\n}}\n")
    with pretended(parallel=True):
        resolved.write_text(explain_pattern(written, [], Job(4)))
        assert compile_pattern(resolved, [], Job(4))[0].verbs == compile_pattern(written, [], Job(4))[0].verbs


@pytest.mark.parametrize(
    ("form", "lines", "warned"),
    [
        ("raw", "decode on", True),
        ("raw", "decode off", False),
        ("npz", "decode on", False),
        ("parquet", "decode on\n through library", False),
    ],
)
def test_decoding_where_there_is_nothing_to_decode_is_warned_of(
    form: str, lines: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stub, "needs", lambda self: None)
    path = tmp_path / "pattern.dlio"
    path.write_text(f"dlio 1\nworkload w\n{DATA % form}\ntrain {{\n    read universe\n    {lines}\n}}\n")
    with pretended():
        warnings = compile_pattern(path, [], Job(4))[1]
    assert [found.code for found in warnings] == (["W306"] if warned else [])


def test_what_only_a_library_decodes_is_not_said_to_be_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stub, "needs", lambda self: None)
    path = tmp_path / "pattern.dlio"
    path.write_text(f"dlio 1\nworkload w\n{DATA % 'parquet'}\ntrain {{\n    read universe\n    decode on\n}}\n")
    with pretended(), pytest.raises(PatternError) as error:
        compile_pattern(path, [], Job(4))
    assert [found.code for found in error.value.diagnostics] == ["E211"]
