"""Data sets of files that are there already."""

from __future__ import annotations

import numpy as np
import pytest

from dliosim.errors import ExecutionError, UsageError
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.language.unparse import explain_pattern
from dliosim.model import Dataset, Distribution, FileSurvey, Job, Layout, Shape, constant
from dliosim.model.dataset import pack_counts
from tests.language.conftest import Patterns
from tests.language.stubs import finder, pretended, uneven


def text(*lines: str) -> str:
    inside = "\n    ".join(lines)
    return f"dataset d {{\n    {inside}\n}}\ntrain {{\n    read d\n}}\n"


def read(patterns: Patterns, *lines: str) -> Dataset:
    with pretended():
        return patterns.workload(text(*lines)).dataset("d")


@pytest.mark.parametrize(
    ("found", "layout"),
    [
        (FileSurvey(1000, 10, "a"), Layout("files", 10)),
        (FileSurvey(1000, 1000, "a"), Layout("file per sample", 1000)),
        (FileSurvey(1000, 1, "a"), Layout("shared file", 1)),
        (FileSurvey(5, 1, "a"), Layout("shared file", 1)),
    ],
)
def test_the_files_say_how_many_samples_there_are_and_where_they_are(
    found: FileSurvey, layout: Layout, patterns: Patterns
) -> None:
    patterns.finder = lambda dataset: found
    dataset = read(patterns, 'from files "imagenet/**/*.h5"', 'datasets "image", "label"', "root local")
    assert (dataset.samples, dataset.layout, dataset.found) == (found.samples, layout, "a")
    assert (dataset.source, dataset.names, dataset.root) == ("imagenet/**/*.h5", ("image", "label"), "local")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("*.h5", "hdf5"), ("*.HDF5", "hdf5"), ("*.he5", "hdf5"), ("x.nc4", "hdf5"), ("*.tfrecord", "tfrecord"),
        ("*.tfrecords", "tfrecord"), ("*.npy", "npy"), ("*.npz", "npz"), ("*.csv", "csv"), ("*.bin", "indexed"),
        ("*.jpg", "jpeg"), ("*.jpeg", "jpeg"), ("*.png", "png"), ("*.tar", "tar"), ("*.dat", "raw"),
    ],
)  # fmt: skip
def test_the_format_is_that_of_the_names_unless_given(name: str, form: str, patterns: Patterns) -> None:
    patterns.finder = finder
    assert read(patterns, f'from files "data/{name}"').format == form
    assert read(patterns, f'from files "data/{name}"', "format csv").format == "csv"


@pytest.mark.parametrize("name", ["*", "*.*", "train-[0-9]?-of-*", "a.h5/*"])
def test_names_that_say_no_format_need_one(name: str, patterns: Patterns) -> None:
    patterns.finder = finder
    assert patterns.codes(text(f'from files "data/{name}"')) == ["E215"]
    assert read(patterns, f'from files "data/{name}"', "format raw").format == "raw"


@pytest.mark.parametrize("form", ["raw", "npy", "indexed"])
def test_a_size_or_shape_may_be_given_for_files_that_do_not_say_it(form: str, patterns: Patterns) -> None:
    patterns.finder = finder
    shaped = read(patterns, 'from files "*"', f"format {form}", "shape 4 x 4 of int16")
    assert (shaped.shape, shaped.size) == (Shape((4, 4), "int16"), constant(32.0))
    assert read(patterns, 'from files "*"', f"format {form}", "size 4 KiB").constant_size == 4096


def test_a_shape_says_which_axis_of_an_archives_arrays_counts_samples(patterns: Patterns) -> None:
    patterns.finder = finder
    assert read(patterns, 'from files "*.npz"', "shape 4 of int8").shape == Shape((4,), "int8")
    with pretended():
        assert patterns.codes(text('from files "*.npz"', "size 4 B")) == ["E215"]


def test_files_of_different_lengths_are_no_file_per_sample(patterns: Patterns) -> None:
    patterns.finder = lambda dataset: FileSurvey(30, 30, "a", counts=pack_counts(np.array([2, 0, *[1] * 28])))
    dataset = read(patterns, 'from files "*.npy"')
    assert dataset.layout == Layout("files", 30)
    assert dataset.counts is not None and dataset.counts.array.tolist()[:3] == [2, 0, 1]


def test_how_many_samples_each_file_holds_is_known_from_what_was_found(patterns: Patterns) -> None:
    patterns.finder = lambda dataset: FileSurvey(30, 2, "a", counts=pack_counts(np.array([10, 20])))
    with pretended():
        counted = patterns.workload(text('from files "*.npy"'))
        patterns.finder = lambda dataset: FileSurvey(30, 2, "a")
        assert patterns.workload(text('from files "*.npy"')).digest() == counted.digest()


def test_shuffled_files_of_different_lengths_are_not_dealt_out(patterns: Patterns) -> None:
    dealt, kept = "shuffle files globally once", "shuffle files within shard each epoch"
    patterns.finder = uneven
    pattern = 'dataset d {{ from files "*.h5" }}\ntrain {{\n read d\n shard by file\n last batch keep\n {}\n}}\n'
    with pretended():
        assert patterns.codes(pattern.format(dealt)) == ["E215"]
        assert patterns.workload(pattern.format(kept)).datasets
        patterns.finder = finder
        assert patterns.workload(pattern.format(dealt)).datasets


def test_a_root_that_is_missing_is_no_mistake_of_the_pattern(patterns: Patterns) -> None:
    def look(dataset: Dataset) -> FileSurvey:
        raise UsageError("no place is given for `root local`")

    patterns.finder = look
    with pretended(), pytest.raises(UsageError, match="no place"):
        patterns.workload(text('from files "*.h5"', "root local"))


def test_files_that_are_wrong_end_a_command_as_they_would_end_a_run(patterns: Patterns) -> None:
    def look(dataset: Dataset) -> FileSurvey:
        raise ExecutionError("imagenet/0.h5 is cut short", "R401")

    patterns.finder = look
    for more, status in (("", 1), ("batch 0 per rank", 2)):
        pattern = f'dataset d {{ from files "*.h5" }}\ntrain {{\n read d\n {more}\n}}\n'
        with pretended(), pytest.raises(PatternError) as raised:
            patterns.workload(pattern)
        assert raised.value.exit_code == status, more


def test_where_nothing_says_the_size_it_is_what_was_found(patterns: Patterns) -> None:
    patterns.finder = finder
    assert read(patterns, 'from files "*.h5"').constant_size is None
    patterns.finder = lambda dataset: FileSurvey(10, 2, "a", Distribution("constant", (512.0,)))
    assert read(patterns, 'from files "*.h5"').constant_size == 512


@pytest.mark.parametrize(
    "line",
    ["samples 8", "layout shared file", "prepared by 4 ranks", "header 1 kB", "align 4 KiB",
     "stripe 1 MiB over 2 targets", "chunk 1 sample", "compress gzip", "compress off", "compressible 2 : 1", 'path "x"',
     "size 1 kB", "shape 4 of int8", "datasets 2"],
)  # fmt: skip
def test_what_the_files_say_is_not_said_again(line: str, patterns: Patterns) -> None:
    patterns.finder = finder
    with pretended():
        assert patterns.codes(text('from files "*.h5"', line)) == ["E215"]


@pytest.mark.parametrize(
    ("glob", "code"),
    [
        ("/data/*.h5", "E208"),
        ("../*.h5", "E208"),
        ("a/../*.h5", "E208"),
        ("~/x", "E208"),
        ("", "E208"),
        ("a**.h5", "E003"),
        ("a/**", "E003"),
        (".", "E003"),
    ],
)
def test_names_stay_below_the_root(glob: str, code: str, patterns: Patterns) -> None:
    patterns.finder = finder
    with pretended():
        assert patterns.codes(text(f'from files "{glob}"')) == [code]


def test_what_the_format_refuses_of_them_is_what_the_block_says_only(patterns: Patterns) -> None:
    patterns.finder = finder
    assert read(patterns, 'from files "*.csv"').format == "csv"
    with pretended():
        assert patterns.codes(text('from files "*.dat"', 'datasets "image"')) == ["E212"]


def test_files_are_looked_at_once_and_only_where_a_loop_reads_them(patterns: Patterns) -> None:
    asked: list[str] = []

    def look(dataset: Dataset) -> FileSurvey:
        asked.append(dataset.name)
        return finder(dataset)

    patterns.finder = look
    nouns = "".join(f'dataset {name} {{ from files "{name}/*.h5" }}\n' for name in "ab")
    with pretended():
        workload = patterns.workload(nouns + "train {\n read a\n evaluate every epoch { read a }\n}\n")
    assert (asked, [dataset.name for dataset in workload.datasets]) == (["a"], ["a"])


@pytest.mark.parametrize(
    "found",
    [FileSurvey(0, 0, ""), ExecutionError("imagenet/0.h5 is cut short", "R401"), ExecutionError("no such file")],
)
def test_files_that_are_not_there_or_damaged_are_said_at_the_line(
    found: FileSurvey | ExecutionError, patterns: Patterns
) -> None:
    def look(dataset: Dataset) -> FileSurvey:
        if isinstance(found, ExecutionError):
            raise found
        return found

    patterns.finder = look
    with pretended():
        (mistake,) = patterns.mistakes(text('from files "*.h5"'))
    assert (mistake.code, mistake.labels[0].span.text) == ("R401", '"*.h5"')


def test_files_as_explained_are_the_same_files(patterns: Patterns) -> None:
    written = patterns.file(
        "w.dlio", "workload w\n" + text('from files "**/*.h5"', 'datasets "a/b", "c"', "root local")
    )
    with pretended():
        explained = explain_pattern(written, [], Job(2), finder)
        resolved = patterns.folder / "r.dlio"
        resolved.write_text(explained, encoding="utf-8")
        first, again = (compile_pattern(path, [], Job(2), finder)[0] for path in (written, resolved))
    assert "# found: 1000 samples in 10 files" in explained
    assert first.digest() == again.digest()


def test_no_prepare_is_missed_for_files_that_are_there(patterns: Patterns) -> None:
    patterns.finder = finder
    with pretended():
        assert patterns.workload(text('from files "*.h5"')).missing_prepares() == {}


def test_other_files_are_other_data(patterns: Patterns) -> None:
    patterns.finder = finder
    first = read(patterns, 'from files "*.h5"')
    patterns.finder = lambda dataset: FileSurvey(1000, 10, "another")
    assert read(patterns, 'from files "*.h5"').digest() != first.digest()
