"""Checkpoints that were damaged afterwards: the one before is restored, and what was passed over is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.execute.alone import checkpoint_faults
from tests.mpi.jobs import CHECKPOINT, Place, only_error, phases


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Take the last byte away."""
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("settings", "file"),
    [("", "000001.ckpt"), ("writers all ranks into shared file\n    api mpi-collective", "*.ckpt")],
)
def test_the_newest_one_that_is_not_damaged_is_restored(tmp_path: Path, settings: str, file: str) -> None:
    place = Place(tmp_path)
    checkpoint = CHECKPOINT.replace("}", f"    {settings}\n}}")
    place.write(checkpoint, "repeat 4 {\n    save c\n}\n")
    assert place.run(2).returncode == 0
    (flipped,), (shorter,), (gone,) = (place.files(f"c/*/00000{number}/{file}") for number in (4, 3, 2))
    flip(flipped)
    cut(shorter)
    gone.unlink()
    assert [len(checkpoint_faults(path.parent)) for path in (flipped, shorter, gone)] == [1, 1, 1]
    place.write(checkpoint, "restore c\n")
    (restored,) = phases(place.results(2), "restore")
    assert [note.partition(" (found after")[0] for note in restored["notes"]] == [
        f"passed over 000004: {flipped.name} differs from what was saved, at byte {flipped.stat().st_size // 2}",
        f"passed over 000003: {shorter.name} has {shorter.stat().st_size} bytes, not {shorter.stat().st_size + 1}",
        f"passed over 000002: {gone.name}: No such file or directory",
        "read 000001",
    ]
    (last,) = place.files(f"c/*/000001/{file}")
    cut(last)
    error = only_error(place.run(2))
    assert error.startswith("error[R404]: ")
    assert all(f"00000{number}: {flipped.name}" in error for number in (1, 2, 3, 4))
