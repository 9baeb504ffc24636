"""Shapes, formats, chunks and compression of data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.errors import UsageError
from dliosim.formats.registry import FORMATS
from dliosim.language.blocks import storage_settings
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.language.unparse import explain_pattern
from dliosim.model import ELEMENTS, Chunk, Compression, Dataset, Job, Layout, Shape, constant
from tests.examples import examples
from tests.language.conftest import Patterns
from tests.language.stubs import Stub, pretended


@pytest.mark.parametrize(
    ("phrase", "shape", "size"),
    [
        ("128 x 128 x 128 x 4 of int16", Shape((128, 128, 128, 4), "int16"), 16 << 20),
        ("7 of float64", Shape((7,), "float64"), 56),
        ("$n x $n x 3 of uint8", Shape((24, 24, 3), "uint8"), 1728),
        ("$n * 2 x (1 + 1) of float16", Shape((48, 2), "float16"), 192),
        ("$whole", Shape((5, 5), "int32"), 100),
        (" x ".join(["1"] * 32) + " of int8", Shape((1,) * 32, "int8"), 1),
    ],
)
def test_a_shape_gives_the_size(phrase: str, shape: Shape, size: int, patterns: Patterns) -> None:
    more = "param n = 24\nparam whole = 5 x 5 of int32"
    text = f'{more}\ndataset d {{\n samples 8\n shape {phrase}\n path "d"\n}}\nprepare d\n'
    dataset = patterns.workload(text).dataset("d")
    assert (dataset.shape, dataset.size) == (shape, constant(float(size)))


@settings(max_examples=examples(60))
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5), st.sampled_from(sorted(ELEMENTS)), st.integers(1, 9))
def test_a_shape_as_explained_is_the_same_shape(
    tmp_path_factory: pytest.TempPathFactory, extents: list[int], element: str, parts: int
) -> None:
    folder = tmp_path_factory.mktemp("shapes")
    written, resolved = folder / "pattern.dlio", folder / "resolved.dlio"
    shape = f"{' x '.join(map(str, extents))} of {element}"
    lines = f"samples 9\n format hdf5\n datasets {parts}\n shape {shape}\n chunk 1 sample\n compress gzip\n"
    written.write_text(
        f'dlio 1\nworkload w\ndataset d {{\n {lines} compressible 7 : 3\n path "d"\n}}\nprepare d\n', encoding="utf-8"
    )
    with pretended():
        resolved.write_text(explain_pattern(written, [], Job(2)), encoding="utf-8")
        first, again = (compile_pattern(path, [], Job(2))[0].dataset("d") for path in (written, resolved))
    assert first == again
    assert first.constant_size == Shape(tuple(extents), element).size * parts


def test_of_several_data_sets_the_shape_is_that_of_each_and_the_size_that_of_all(patterns: Patterns) -> None:
    with pretended():
        shaped = patterns.dataset("samples 8\n format hdf5\n shape 4 x 4 of uint8\n datasets 3")
        sized = patterns.dataset("samples 8\n format hdf5\n size 48 B\n datasets 3")
    assert (shaped.parts, shaped.constant_size) == (sized.parts, sized.constant_size) == (3, 48)


@pytest.mark.parametrize(
    ("line", "chunk"), [("chunk 4 samples", Chunk(4, "samples")), ("chunk 1 sample", Chunk(1, "samples")),
                        ("chunk 64 KiB", Chunk(65536, "bytes")), ("chunk $n samples", Chunk(2, "samples")),
                        ("chunk off", None)],
)  # fmt: skip
def test_a_chunk_is_of_samples_or_of_bytes(line: str, chunk: Chunk | None, patterns: Patterns) -> None:
    with pretended():
        found = patterns.dataset(f"samples 8\n size 1 MB\n layout 2 files\n format hdf5\n {line}", more="param n = 2")
    assert found.chunk == chunk


@pytest.mark.parametrize(
    ("chunk", "extra", "refusal"),
    [
        ("4 x 3", "shape 6 x 7 of uint8", ""),
        ("6 x 7", "shape 6 x 7 of uint8\n compress gzip 1", ""),
        ("$n x 2 * $n", "shape 6 x 7 of uint8", ""),
        ("4 x 3", "size 42 B", "need a `shape`"),
        ("4 x 3 x 1", "shape 6 x 7 of uint8", "as many dimensions"),
        ("4 x 8", "shape 6 x 7 of uint8", "no side of a chunk is longer"),
        ("1 x 3", "shape 6 x 7 of uint8\n compress gzip 1", "3 must divide 7"),
    ],
)
def test_a_chunk_may_have_the_shape_of_a_part_of_a_sample(
    chunk: str, extra: str, refusal: str, patterns: Patterns
) -> None:
    lines = f'dataset d {{\n samples 8\n format hdf5\n {extra}\n chunk {chunk}\n path "d"\n}}\nprepare d\n'
    if refusal:
        (mistake,) = patterns.mistakes("param n = 2\n" + lines)
        assert mistake.code == "E212"
        assert refusal in mistake.labels[0].text
        return
    chunk_of = patterns.workload("param n = 2\n" + lines).dataset("d").chunk
    assert chunk_of is not None
    assert chunk_of.unit == "elements"


@pytest.mark.parametrize(
    ("chunk", "code"), [("7 samples", ""), ("8 samples", "E214"), ("7 kB", ""), ("7001 B", "E214"), ("10 GB", "E214")]
)
def test_a_chunk_is_as_large_as_the_fullest_file_at_most(chunk: str, code: str, patterns: Patterns) -> None:
    lines = f'samples 64\n size 1 kB\n layout 10 files\n format hdf5\n chunk {chunk}\n path "d"'
    with pretended():
        if code:
            assert patterns.codes(f"dataset d {{\n {lines}\n}}\nprepare d\n") == [code]
        else:
            assert patterns.workload(f"dataset d {{\n {lines}\n}}\nprepare d\n").dataset("d").layout.files == 10


@pytest.mark.parametrize(
    ("phrase", "compression"),
    [
        ("off", None),
        ("gzip", Compression("gzip", 4)),
        ("gzip 9", Compression("gzip", 9)),
        ("lzf", Compression("lzf")),
        ("snappy", Compression("snappy")),
        ("zstd", Compression("zstd", 3)),
        ("zstd 1 + 1", Compression("zstd", 2)),
        ("$codec", Compression("gzip", 1)),
    ],
)
def test_a_codec_has_its_usual_level_unless_set(
    phrase: str, compression: Compression | None, patterns: Patterns
) -> None:
    more = "param codec = gzip 1" if "$" in phrase else ""
    with pretended():
        found = patterns.dataset(f"samples 8\n size 1 kB\n format hdf5\n compress {phrase}", more=more)
    assert found.compress == compression


@pytest.mark.parametrize(
    ("phrase", "ratio"), [("2 : 1", 2.0), ("3:2", 1.5), ("off", 1.0), ("2.5 : 1", 2.5), ("1 : 1", 1.0)]
)
def test_contents_may_be_compressible_whatever_compresses_them(phrase: str, ratio: float, patterns: Patterns) -> None:
    assert patterns.dataset(f"samples 8\n size 1 kB\n compressible {phrase}").compressible == ratio


def test_what_was_never_said_before_leaves_the_digest_as_it_was(patterns: Patterns) -> None:
    plain = patterns.dataset("samples 8\n size 16 B")
    assert plain.digest() == Dataset("d", 0, 8, constant(16.0), Layout("file per sample", 8), "d").digest()
    assert patterns.dataset("samples 8\n shape 4 x 4 of uint8").digest() != plain.digest()


def test_a_shape_takes_the_place_of_a_size_that_stands_below_it(patterns: Patterns) -> None:
    below = 'dataset a {\n samples 8\n size 1 kB\n path "a"\n}\n'
    above = "dataset d from a {\n shape 2 x 2 of int8\n}\nprepare d\n"
    assert patterns.workload(below + above).dataset("d").constant_size == 4
    assert patterns.workload(below + above, ("d.size", "7 B")).dataset("d").constant_size == 7
    assert patterns.workload(below + "prepare a\n", ("a.shape", "3 of int16")).dataset("a").constant_size == 6
    assert patterns.codes(below + "prepare a\n", ("a.shape", "3 of int16"), ("a.size", "6 B")) == ["E213"]


def test_what_the_format_refuses_is_shown_where_it_is_said(patterns: Patterns) -> None:
    text = 'dataset d {\n samples 8\n size uniform(1 kB, 2 kB)\n format csv\n path "d"\n}\nprepare d\n'
    with pretended():
        (found,) = patterns.mistakes(text)
    assert (found.code, found.labels[0].span.text, found.labels[0].text) == (
        "E212",
        "uniform(1 kB, 2 kB)",
        "a line has one length",
    )


@pytest.mark.parametrize("error", [UsageError("no such thing", "R403"), ImportError("libhdf5.so: not found")])
def test_a_format_that_cannot_be_loaded_is_said_at_its_line(
    error: Exception, patterns: Patterns, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(built: Dataset) -> Stub:
        raise error

    monkeypatch.setattr(storage_settings, "bind", fail)
    (found,) = patterns.mistakes('dataset d {\n samples 8\n size 1 kB\n format hdf5\n path "d"\n}\nprepare d\n')
    assert (found.code, found.labels[0].span.text) == ("R403", "hdf5")


def test_a_format_of_another_package_is_known_by_its_name(patterns: Patterns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_settings, "FORMATS", replace(FORMATS, own=("raw", "zarr_v3")))
    monkeypatch.setattr(storage_settings, "bind", Stub)
    assert patterns.dataset("samples 8\n size 1 kB\n format zarr_v3").format == "zarr_v3"
    (found,) = patterns.mistakes('dataset d {\n samples 8\n size 1 kB\n format Zarr_v\n path "d"\n}\nprepare d\n')
    assert found.help == ("did you mean `zarr_v3`?",)


@settings(max_examples=examples(64))
@given(st.text(st.sampled_from('0123456789xX ofuintgz:.,()$n"-+*/ m\u00d7'), max_size=24))
def test_any_phrase_gives_a_data_set_or_a_mistake(tmp_path_factory: pytest.TempPathFactory, phrase: str) -> None:
    path = tmp_path_factory.mktemp("phrases") / "p.dlio"
    for head in ("shape", "chunk", "compress", "compressible", "datasets", "from files"):
        lines = f'samples 8\n size 8 B\n format hdf5\n {head} {phrase}\n path "d"'
        path.write_text(f"dlio 1\nworkload w\nparam n = 2\ndataset d {{\n {lines}\n}}\nprepare d\n", encoding="utf-8")
        with pretended():
            try:
                compile_pattern(Path(path), [], Job(2))
            except PatternError as error:
                assert error.diagnostics


@pytest.mark.parametrize(
    ("lines", "place"),
    [("format npy\n datasets 2", "2"), ("format npy\n compress gzip", "gzip"),
     ("format csv\n chunk 1 sample", "1 sample"), ("format npz\n compress zstd 3", "zstd 3"),
     ("format npy\n header 1 kB", "1 kB")],
)  # fmt: skip
def test_what_our_own_formats_refuse_is_shown_at_the_line_that_says_it(
    lines: str, place: str, patterns: Patterns
) -> None:
    (found,) = patterns.mistakes(f'dataset d {{\n samples 8\n size 1 kB\n {lines}\n path "d"\n}}\nprepare d\n')
    assert (found.code, found.labels[0].span.text) == ("E212", place)
