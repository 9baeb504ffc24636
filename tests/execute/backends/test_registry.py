"""The backend of each api: the built-in ones, those of other packages, and the errors of those that do not work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import pytest
from mpi4py import MPI

from dliosim import plugins
from dliosim.errors import UsageError
from dliosim.execute.backends.contract import Reader
from dliosim.execute.backends.registry import (
    Backend,
    Files,
    NullReader,
    backend_names,
    backend_of,
    make_writer,
    require_backends,
)
from dliosim.model import (
    MPI_APIS,
    Access,
    Cadence,
    Checkpoint,
    Dataset,
    Evaluation,
    Job,
    Layout,
    Loop,
    Part,
    Prepare,
    Repeat,
    Restore,
    Save,
    Verb,
    Workload,
    Writers,
    constant,
)
from dliosim.plugins import APIS


def reader(access: Access, files: Files) -> Reader:
    return NullReader()


READS_ONLY = Backend("theirs", reader)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of another package, with entry points for what it holds."""
    module = ModuleType("their_package")
    monkeypatch.setitem(sys.modules, "their_package", module)
    names = ("theirs", "gone", "posix", "null", "library")
    points = [EntryPoint(name, f"their_package:{name}", APIS.group) for name in names]
    points.append(EntryPoint("absent", "no_such_package:ABSENT", APIS.group))
    monkeypatch.setattr(plugins, "find_entry_points", lambda group: EntryPoints(points).select(group=group))
    module.theirs = READS_ONLY  # type: ignore[attr-defined]
    backend_of.cache_clear()
    yield module
    backend_of.cache_clear()


def workload(*verbs: Verb, saved: str = "posix") -> Workload:
    dataset = Dataset("d", 1, 10, constant(100.0), Layout("shared file", 1), "d")
    checkpoint = Checkpoint("c", 1, (Part("p", 10, "total"),), Writers("file per rank"), Access(saved), "c")
    return Workload("w", "", 1, Job(1), (dataset,), (checkpoint,), verbs)


def test_the_apis_of_this_package_can_all_write() -> None:
    assert backend_names()[:3] == ("posix", *MPI_APIS)
    for name in ("posix", *MPI_APIS):
        backend = backend_of(name)
        assert (backend.name, backend.writer is None) == (name, False)


def test_another_package_adds_a_name_and_takes_none(installed: ModuleType) -> None:
    assert backend_names() == ("posix", *MPI_APIS, "absent", "gone", "theirs")
    assert backend_of("theirs") is READS_ONLY
    assert backend_of("posix").writer is not None
    for name in ("null", "library", "unknown"):
        with pytest.raises(KeyError):
            backend_of(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "absent",
            "api `absent` cannot be loaded from `no_such_package:ABSENT`: ModuleNotFoundError: ",
        ),
        ("gone", "api `gone` cannot be loaded from `their_package:gone`: AttributeError: "),
    ],
)
def test_what_cannot_be_loaded_is_named_with_its_package_and_reason(
    installed: ModuleType, name: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text) as found:
        backend_of(name)
    assert found.value.code == "R403"


@pytest.mark.parametrize("thing", [reader, "theirs", None, Backend, replace(READS_ONLY, name="another")])
def test_what_is_no_backend_of_its_name_is_refused(installed: ModuleType, thing: object) -> None:
    installed.theirs = thing  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="from `their_package:theirs`, is no backend of that name") as found:
        backend_of("theirs")
    assert found.value.code == "R403"


def test_who_only_reads_may_read_and_restore_what_posix_wrote(installed: ModuleType) -> None:
    theirs = Access("theirs")
    loop = Loop("train", "t", "d", theirs, evaluations=(Evaluation(1, Loop("evaluate", "e", "d", theirs)),))
    require_backends([workload(Prepare("d", Access()), Repeat(2, (loop,)))])
    require_backends([workload(Restore("c"), saved="theirs")])


@pytest.mark.parametrize(
    "verb",
    [
        Prepare("d", Access("theirs")),
        Repeat(2, (Prepare("d", Access("theirs")),)),
        Save("c"),
        Loop("train", "t", "d", Access(), checkpoints=(Cadence("c", "end"),)),
    ],
)
def test_who_only_reads_is_not_asked_to_write(installed: ModuleType, verb: Verb) -> None:
    with pytest.raises(UsageError, match=r"api `theirs` only reads: prepare data .* by another api") as found:
        require_backends([workload(verb, saved="theirs")])
    assert found.value.code == "R403"


def test_nothing_is_written_by_who_only_reads(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only reads"):
        make_writer(READS_ONLY, Access("theirs"), tmp_path / "f", MPI.COMM_SELF)
    assert not list(tmp_path.iterdir())


def test_an_api_that_no_package_brings_is_named_before_anything_is_read(installed: ModuleType) -> None:
    inner = Evaluation(1, Loop("evaluate", "e", "d", Access("nobodys")))
    with pytest.raises(UsageError, match=r"api `nobodys` is not available: apis are posix, .*theirs") as found:
        require_backends([workload(Loop("train", "t", "d", Access(), evaluations=(inner,)))])
    assert found.value.code == "R403"


def test_another_packages_backend_is_asked_for_nothing_that_ranks_do_together() -> None:
    other = Access("theirs", readers=3)
    assert (other.is_mpi, other.collective, other.is_file_ordered, other.counts_reads) == (False, False, False, False)
    assert (Access().is_mpi, Access().counts_reads, Access(engine="mmap").counts_reads) == (False, True, False)
    assert all(Access(api).is_mpi and Access(api).counts_reads for api in MPI_APIS)
    assert [Access(api).collective for api in MPI_APIS] == [False, True]
