"""A job that saves has its checkpoints to itself, for as long as it lives."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from dliosim.execute.store import checkpoint_store
from dliosim.execute.store.locking import NAME
from tests.mpi.jobs import CHECKPOINT, Place, only_error
from tests.mpi.launch import running, start_ranks


def test_a_second_job_is_locked_out_until_the_first_is_gone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(CHECKPOINT, "save c\npause 60 s\n")
    with running(start_ranks(2, *place.arguments(), cwd=tmp_path)) as first:
        first.wait_until(lambda: bool(place.files("c/*/000001")))
        other = Place(tmp_path)
        other.write(CHECKPOINT, "restore c written by 2 ranks\n")
        error = only_error(other.run(1))
        (base,) = place.files("c/*")
        assert error.startswith(f"error[R405]: {base} cannot be read from now, because another job writes to it")
        assert f"process {first.ranks()[0]}, since " in error
        assert (base / NAME).exists()
        os.kill(first.ranks()[0], signal.SIGKILL)
        first.finish()
    other.write(CHECKPOINT, "restore c\nsave c\n")
    assert place.run(2).returncode == 0
    assert checkpoint_store.checkpoint_numbers(base) == [2, 1]
    assert not (base / NAME).exists()
