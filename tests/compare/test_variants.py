"""The variants of a pattern, and those that are impossible."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.compare.experiment import ComparisonPlan, parse_varied
from dliosim.compare.variants import compile_variants
from dliosim.errors import UsageError
from dliosim.language.diagnostics import PatternError
from dliosim.model import Job

PATTERN = """dlio 1
workload tiny "a test"
param batch = 4 "samples of a step"
dataset d {
    samples  400
    size     4 kB
    layout   shared file
    path     "d"
}
prepare d
train {
    read     d
    batch    $batch per rank
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pattern = tmp_path / "tiny.dlio"
    pattern.write_text(PATTERN)
    return pattern


def made(path: Path, *vary: str, ranks: int = 4, given: tuple[tuple[str, str], ...] = ()) -> ComparisonPlan:
    """The variants of a pattern."""
    return compile_variants(path, given, Job(ranks), parse_varied(vary), None)[0]


def labels(found: ComparisonPlan) -> list[str]:
    """Return the labels of variants."""
    return [one.label for one in found.variants]


def test_a_parameter_a_setting_and_a_short_name_can_vary(path: Path) -> None:
    found = made(path, "batch=4,8", "d.samples=400,800", "transfer=2 kB,whole sample")
    assert len(found.variants) == 8
    last = found.variants[-1]
    assert (last.verb.batch, last.workload.dataset("d").samples, last.verb.access.transfer) == (8, 800, None)
    assert last.label == "batch=8, d.samples=800, transfer=whole sample"


def test_a_short_name_may_be_a_setting_of_the_data_set(path: Path) -> None:
    found = made(path, "layout=shared file,file per sample")
    assert [one.workload.dataset("d").layout.files for one in found.variants] == [1, 400]


def test_a_combination_that_cannot_be_is_reported_with_its_reason_and_not_fatal(path: Path) -> None:
    found = made(path, "api=posix,mpi-collective", "layout=shared file,file per sample")
    assert labels(found) == [
        "api=posix, layout=shared file",
        "api=posix, layout=file per sample",
        "api=mpi-collective, layout=shared file",
    ]
    (left_out,) = found.not_run
    assert left_out.label == "api=mpi-collective, layout=file per sample"
    assert "one file shared by every rank" in left_out.reason


def test_a_value_that_is_wrong_by_itself_is_a_mistake(path: Path) -> None:
    with pytest.raises(PatternError, match=r"E003|E001"):
        made(path, "api=posix,mpi-colective")


def test_a_name_that_is_nothing_is_a_mistake(path: Path) -> None:
    with pytest.raises(PatternError, match="E104"):
        made(path, "apj=posix,mpi-collective")


def test_the_defaults_of_the_library_are_always_among_sets_of_hints(path: Path) -> None:
    found = made(path, "api=mpi-collective", "hints=no-aggregation")
    assert labels(found) == ["api=mpi-collective, hints=no-aggregation", "api=mpi-collective, hints=library"]
    assert found.variants[1].verb.access.hints == ()


def test_and_where_the_pattern_itself_gives_hints(path: Path) -> None:
    path.write_text(PATTERN.replace("    read     d\n", '    read     d\n    hint "romio_ds_read" = "disable"\n'))
    found = made(path, "api=mpi-collective,mpi-independent")
    assert labels(found)[2:] == ["api=mpi-collective, hints=library", "api=mpi-independent, hints=library"]
    assert [one.added != "" for one in found.variants] == [False, False, True, True]
    assert found.variants[2].workload.digest() not in {one.workload.digest() for one in found.variants[:2]}


def test_two_phase_alone_stands_for_numbers_of_aggregators_and_sizes_of_buffers(path: Path) -> None:
    found = made(path, "api=mpi-collective", "hints=two-phase", given=(("d.stripe", "4 MiB over 2 targets"),))
    asked = [dict(one.verb.access.hints) for one in found.variants[:-1]]
    assert [(hints["cb_nodes"], hints["cb_buffer_size"]) for hints in asked] == [
        (nodes, str(size << 20)) for nodes in ("1", "2", "4") for size in (4, 16, 64)
    ]
    assert all(hints["romio_ds_read"] == "disable" for hints in asked)


def test_no_more_aggregators_than_ranks_are_tried(path: Path) -> None:
    found = made(path, "api=mpi-collective", "hints=two-phase", ranks=2, given=(("d.stripe", "4 MiB over 32 targets"),))
    assert {dict(one.verb.access.hints)["cb_nodes"] for one in found.variants[:-1]} == {"1", "2"}


def test_hints_that_change_nothing_are_not_run_as_if_they_did(path: Path) -> None:
    found = made(path, "api=posix,mpi-independent,mpi-collective", "hints=library,no-aggregation")
    assert len(found.variants) == 4
    assert {one.label for one in found.not_run} == {
        "api=posix, hints=no-aggregation",
        "api=mpi-independent, hints=no-aggregation",
    }


def test_what_changes_nothing_in_the_loop_is_not_run_under_another_name(path: Path) -> None:
    path.write_text(PATTERN.replace("dataset d", 'param api = posix "who reads"\nparam spare = 1 "unused"\ndataset d'))
    with pytest.raises(UsageError, match=r"not run: spare=2: `train` does exactly what it does with spare=1"):
        made(path, "spare=1,2")
    # A parameter that a setting of the command line hides.
    path.write_text(path.read_text().replace("    read     d\n", "    read     d\n    api $api\n"))
    with pytest.raises(UsageError, match=r"not run: api=mpi-collective: `train` does exactly"):
        made(path, "api=posix,mpi-collective", given=(("train.api", "posix"),))
    assert labels(made(path, "api=posix,mpi-collective", "transfer=1 kB,1000 B")) == [
        "api=posix, transfer=1 kB",
        "api=mpi-collective, transfer=1 kB",
    ]


def test_hints_of_the_pattern_are_no_reason_to_leave_posix_out(path: Path) -> None:
    path.write_text(
        PATTERN.replace("    read     d\n", "    read     d\n    api mpi-collective\n    hints two-phase\n")
    )
    found = made(path, "api=posix,mpi-collective")
    assert labels(found) == ["api=posix", "api=mpi-collective", "api=mpi-collective, hints=library"]
    assert not found.not_run


def test_what_is_given_cannot_vary(path: Path) -> None:
    with pytest.raises(UsageError, match="cannot vary and be given"):
        made(path, "api=posix,mpi-independent", given=(("train.api", "posix"),))
    with pytest.raises(UsageError, match="same setting"):
        made(path, "api=posix,mpi-independent", "train.api=mpi-collective")


def test_a_single_variant_is_nothing_to_compare(path: Path) -> None:
    with pytest.raises(UsageError, match=r"(?s)nothing to compare.*not run: layout=file per sample"):
        made(path, "layout=shared file,file per sample", given=(("train.api", "mpi-collective"),))


def test_of_several_loops_one_must_be_named(path: Path) -> None:
    path.write_text(PATTERN + "train again {\n    read d\n}\n")
    with pytest.raises(UsageError, match=r"--loop NAME; loops here: train, again"):
        made(path, "api=posix,mpi-independent")
    found = compile_variants(path, (), Job(2), parse_varied(["api=posix,mpi-independent"]), "again")[0]
    assert found.what == "again" and found.variants[1].verb.access.api == "mpi-independent"


def test_what_needs_a_package_that_is_not_installed_is_left_out_and_no_mistake(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(PATTERN.replace('    path     "d"', '    path     "d"\n    format   hdf5'))
    monkeypatch.setattr("dliosim.language.checks.access_checks.is_hdf5_parallel", lambda: False)
    found = made(path, "api=posix,mpi-independent", "through=direct,library")
    assert len(found.variants) == 3
    (left_out,) = found.not_run
    assert left_out.label == "api=mpi-independent, through=library" and "a parallel HDF5" in left_out.reason
    with pytest.raises(PatternError, match="a parallel HDF5"):
        made(
            path, "hints=library,no-aggregation", given=(("train.api", "mpi-independent"), ("train.through", "library"))
        )
