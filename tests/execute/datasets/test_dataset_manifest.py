"""Prepared data count only where their manifest is of this data set, and where a reboot cannot have lost them."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import call_error
from dliosim.execute.store import manifest
from dliosim.execute.store.manifest import (
    damage_error,
    find_dataset_fault,
    find_preparing_ranks,
    write_dataset_manifest,
)
from dliosim.model import Dataset, Distribution, Layout
from tests.execute.failing import failing

DATASET = Dataset("d", 1, 10, Distribution("constant", (100.0,)), Layout("file per rank", 2), "d")


def made(root: Path, dataset: Dataset = DATASET, durable: bool = True) -> Path:
    """The directory of a data set with a manifest."""
    directory = root / dataset.digest()
    directory.mkdir()
    write_dataset_manifest(dataset, directory, 1000, "", durable)
    return directory


def test_nothing_and_half_a_data_set_are_distinguished(tmp_path: Path) -> None:
    assert find_dataset_fault(DATASET, tmp_path / "absent") == "has not been prepared"
    assert find_dataset_fault(DATASET, tmp_path) == "is incomplete"


def test_a_manifest_of_another_description_is_not_believed(tmp_path: Path) -> None:
    directory = made(tmp_path)
    assert find_dataset_fault(DATASET, directory) is None
    assert (
        find_dataset_fault(replace(DATASET, samples=11), directory)
        == "has something else where it should have its manifest.json"
    )


def test_a_manifest_that_cannot_be_read_makes_no_data_set_incomplete(tmp_path: Path) -> None:
    directory = made(tmp_path)
    with failing("open", errno.EMFILE, "manifest.json"):
        with pytest.raises(ExecutionError, match=r"manifest\.json: Too many open files") as caught:
            find_dataset_fault(DATASET, directory)
        # The data next to it are only good for a hint, and then there is none.
        assert find_preparing_ranks(DATASET, tmp_path / "absent") == 0
    assert caught.value.code == "R401"
    assert find_dataset_fault(DATASET, directory) is None


def test_unsynced_data_are_believed_until_the_next_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "boot_id", lambda: "first")
    directory = made(tmp_path, durable=False)
    assert find_dataset_fault(DATASET, directory) is None
    for later in ("second", None):
        monkeypatch.setattr(manifest, "boot_id", lambda later=later: later)
        assert "`fsync off`" in str(find_dataset_fault(DATASET, directory))


def test_data_of_another_number_of_ranks_are_found_nearby(tmp_path: Path) -> None:
    made(tmp_path, replace(DATASET, layout=Layout("file per rank", 3)))
    assert find_preparing_ranks(DATASET, tmp_path / DATASET.digest()) == 3


def test_data_of_another_description_are_not_the_same_by_other_ranks(tmp_path: Path) -> None:
    made(tmp_path, replace(DATASET, samples=11, layout=Layout("file per rank", 3)))
    made(tmp_path, replace(DATASET, seed=2))
    assert find_preparing_ranks(DATASET, tmp_path / DATASET.digest()) == 0


def test_damage_names_the_remedy() -> None:
    assert "`prepare d afresh` writes it again" in str(damage_error(DATASET, "x"))


def test_of_existing_files_no_user_is_asked_to_prepare_them() -> None:
    message = damage_error(replace(DATASET, source="*.h5"), "open failed on 0.h5").message
    assert "has changed" in message and "prepare" not in message


def test_an_error_that_says_it_all_is_not_wrapped() -> None:
    error = ExecutionError("0.h5 is cut short", "R401")
    assert call_error("open", "0.h5", error) is error
