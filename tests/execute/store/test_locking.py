"""One job saves to a directory at a time, several restore from it, and nothing of their locks stays."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.store import locking
from dliosim.execute.store.checkpoint_store import CheckpointStores
from dliosim.execute.store.locking import NAME

HOLDER = """
import sys
from pathlib import Path
from dliosim.execute.store.checkpoint_store import CheckpointStores
stores = CheckpointStores()
stores.open_to_save(Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is taken is asked for twice."""
    monkeypatch.setattr(locking, "_ASKED", 2)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory in which something was saved before."""
    made = tmp_path / "c" / "digest"
    (made / "000001").mkdir(parents=True)
    return made


@pytest.fixture
def holder(base: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock."""
    command = [sys.executable, "-c", HOLDER, str(base)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def refusal(base: Path, saves: bool) -> str:
    with CheckpointStores() as stores, pytest.raises(ExecutionError) as caught:
        (stores.open_to_save if saves else stores.open_to_restore)(base)
    assert caught.value.code == "R405"
    return caught.value.message


def test_another_job_gets_the_name_of_the_holder(base: Path, holder: subprocess.Popen[str]) -> None:
    text = refusal(base, saves=True)
    assert text.startswith(f"{base} cannot be written to now, because another job writes to it, on host ")
    assert f", process {holder.pid}, since 20" in text
    assert refusal(base, saves=False).startswith(f"{base} cannot be read from now")


def test_the_lock_ends_with_a_killed_holder_and_its_file_with_the_next_one(
    base: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (base / NAME).exists()
    with CheckpointStores() as stores:
        assert stores.open_to_save(base).lock.note == ""
    assert [entry.name for entry in base.iterdir()] == ["000001"]


def test_those_that_restore_do_so_together_and_keep_off_who_saves(base: Path) -> None:
    with CheckpointStores() as one:
        with CheckpointStores() as other:
            one.open_to_restore(base)
            other.open_to_restore(base)
            assert "because another job reads from it" in refusal(base, saves=True)
        assert (base / NAME).exists()
        assert "another job" in refusal(base, saves=True)
    assert [entry.name for entry in base.iterdir()] == ["000001"]
    with CheckpointStores() as stores:
        stores.open_to_save(base)


def test_within_a_run_it_is_one_hold_that_becomes_one_to_save(base: Path) -> None:
    with CheckpointStores() as stores:
        hold = stores.open_to_restore(base)
        assert not hold.lock.saves
        assert stores.open_to_save(base) is hold
        assert stores.open_to_restore(base) is hold
        assert hold.lock.saves
        assert "another job writes to it" in refusal(base, saves=False)


def test_what_was_restored_from_is_not_saved_to_while_others_restore(base: Path) -> None:
    with CheckpointStores() as one, CheckpointStores() as other:
        one.open_to_restore(base)
        other.open_to_restore(base)
        with pytest.raises(ExecutionError, match="reads from"):
            one.open_to_save(base)
    with CheckpointStores() as stores:
        stores.open_to_save(base)


def test_a_copy_is_written_by_one_and_read_by_several_when_that_one_is_done(base: Path) -> None:
    with CheckpointStores() as one, CheckpointStores() as other:
        assert one.lock_copy(base, writes=True) == ""
        with pytest.raises(ExecutionError, match="cannot be read from now, because another job writes to it"):
            other.lock_copy(base, writes=False)
        one.lock_copy(base, writes=False)
        other.lock_copy(base, writes=False)
        with pytest.raises(ExecutionError, match="cannot be written to now, because another job reads from it"):
            one.lock_copy(base, writes=True)
        other.lock_copy(base, writes=True)
    assert not (base / NAME).exists()


def test_a_place_where_nothing_was_made_is_not_left_and_restoring_makes_none(tmp_path: Path) -> None:
    with CheckpointStores() as stores:
        stores.open_to_restore(tmp_path / "c" / "digest")
        assert not (tmp_path / "c").exists()
        stores.open_to_save(tmp_path / "c" / "digest")
    assert not (tmp_path / "c" / "digest").exists()


def test_an_error_that_all_know_lets_go_and_one_of_this_rank_alone_does_not(base: Path) -> None:
    failure = ExecutionError("something")
    with pytest.raises(ExecutionError, match="something"), CheckpointStores() as stores:
        stores.open_to_save(base)
        raise failure
    assert "another job writes to it" in refusal(base, saves=True)
    failure.shared = True
    with pytest.raises(ExecutionError, match="something"), stores:
        raise failure
    assert not (base / NAME).exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_a_note_says_so(base: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    with CheckpointStores() as stores:
        assert stores.lock_note(base) == ""
        assert f"no lock on {base} ({os.strerror(number)}): nothing keeps" in stores.open_to_save(base).lock.note
        assert stores.lock_note(base) == stores.open_to_save(base).lock.note
    assert [entry.name for entry in base.iterdir()] == ["000001"]


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'{"host": "a\\u001b[2J", "process": [1]}', b"\xff", b"[" * 5000])
def test_what_a_lock_file_says_is_believed_as_far_as_it_can_be(base: Path, said: bytes) -> None:
    with CheckpointStores() as stores:
        stores.open_to_save(base)
        (base / NAME).write_bytes(said)
        text = refusal(base, saves=True)
    assert "another job writes to it" in text
    assert text.isprintable()


def test_what_is_no_file_is_no_lock(base: Path) -> None:
    os.mkfifo(base / NAME)
    with (
        CheckpointStores() as stores,
        pytest.raises(ExecutionError, match="lock: no regular file stands where a file should be"),
    ):
        stores.open_to_save(base)
    (base / NAME).unlink()
    (base / NAME).symlink_to(base / "elsewhere")
    with CheckpointStores() as stores, pytest.raises(OSError, match="symbolic link"):
        stores.open_to_save(base)
    assert not (base / "elsewhere").exists()
