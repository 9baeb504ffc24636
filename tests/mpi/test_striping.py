"""Striping is asked before anything is made that could inherit it, and what was not granted is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.execute.node.striping import add_striping_hints, striping_hint_note
from dliosim.model import Access, Stripe
from tests.mpi.jobs import DATASET, PREPARE, Place, phases

STRIPED = DATASET.replace("header   100 B", "header   100 B\n    stripe   1 MiB over 8 targets")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place with a data set of many folders that asks for striping."""
    made = Place(tmp_path)
    made.write(STRIPED.replace("shared file", "12 files in 3 folders"), PREPARE)
    return made


STATE = """checkpoint c {
    part     w 100 kB total
    stripe   1 MiB over 8 targets
    drain to local
    path     "c"
}
checkpoint staged {
    part     w 100 kB total
    stripe   1 MiB over 8 targets
    async    on
    path     "staged"
}
"""
NO_TOOL = "striping was not asked: there is no `lfs` here, the tool of Lustre (the file system is "


def lustre_tool(place: Place, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """Put an `lfs` that does this on the path; where it can write down what it saw."""
    tool = place.directory / "bin" / "lfs"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    return place.directory / "seen"


def test_striping_is_asked_of_an_empty_directory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = lustre_tool(
        place,
        monkeypatch,
        f'[ "$1" = setstripe ] || {{ echo "count 4"; exit; }}\n'
        f'for last; do :; done\n{{ echo "$*"; ls "$last"; }} >> {place.directory / "seen"}',
    )
    results = place.results(2)
    [line] = seen.read_text().splitlines()
    assert line.startswith("setstripe -S 1048576 -c 8 ")
    assert line.endswith(str(place.files("d/*/manifest.json")[0].parent))
    assert phases(results, "prepare")[0]["notes"] == []
    assert [system["striping"] for system in results["environment"]["file_systems"]] == ["count 4"]


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("echo no such pool >&2; exit 3", "striping was not granted: lfs setstripe said: no such pool"),
        ("exec /no/such/program 2>/dev/null", "striping was not granted: lfs setstripe said: "),
    ],
)
def test_striping_that_is_refused_is_a_note(
    place: Place, monkeypatch: pytest.MonkeyPatch, body: str, note: str
) -> None:
    lustre_tool(place, monkeypatch, body)
    assert phases(place.results(2), "prepare")[0]["notes"] == [note]


def test_striping_that_is_refused_to_a_checkpoint_is_a_note(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lustre_tool(place, monkeypatch, "echo no such pool >&2; exit 3")
    place.write(STATE, "save c\nsave staged\n")
    said = "striping was not granted: lfs setstripe said: no such pool"
    copied, staged = phases(place.results(2, "--root", f"local={place.directory / 'local'}"), "save")
    assert copied["notes"] == [said, f"{said} (root `local`)"] and staged["notes"] == [said]


def test_that_there_is_no_tool_to_ask_is_a_note(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place.directory))
    place.write(STRIPED, STATE, PREPARE + "save c\nsave staged\n")
    results = place.results(1, "--root", f"local={place.directory / 'local'}")
    [prepared], (copied, staged) = phases(results, "prepare"), phases(results, "save")
    notes = [*prepared["notes"], *copied["notes"], *staged["notes"]]
    assert len(notes) == 4 and all(note.startswith(NO_TOOL) for note in notes)


def test_a_tool_that_cannot_run_is_a_note(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lustre_tool(place, monkeypatch, "")
    (place.directory / "bin" / "lfs").write_text("#!/no/such/shell\n")
    [note] = phases(place.results(1), "prepare")[0]["notes"]
    assert note.startswith("striping was not asked: ")


def test_mpi_asks_by_the_reserved_hints_unless_the_pattern_names_them() -> None:
    stripe = Stripe(1 << 20, 8)
    independent = Access("mpi-independent", hints=(("striping_factor", "2"), ("cb_nodes", "1")))
    asked = dict(add_striping_hints(independent, stripe).hints)
    assert asked == {"striping_factor": "2", "striping_unit": "1048576", "cb_nodes": "1"}
    assert add_striping_hints(independent, None) == independent
    assert add_striping_hints(Access(), stripe) == Access()


@pytest.mark.not_under("Open MPI", reason="OMPIO ignores striping hints")
@pytest.mark.parametrize("api", ["mpi-independent", "mpi-collective"])
def test_the_hints_asked_stay_those_of_the_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    place = Place(tmp_path)
    place.write(STRIPED, PREPARE)
    lustre_tool(place, monkeypatch, "exit 0")
    [phase] = phases(place.results(2, define={"prepare d.api": api}), "prepare")
    assert not phase["hints_asked"]
    assert phase["hints_granted"]["striping_unit"] == str(1 << 20)
    dropped = 'the MPI library dropped the striping hints "striping_factor"'
    assert phase["notes"] == ([] if "striping_factor" in phase["hints_granted"] else [dropped])


def test_dropped_hints_are_named() -> None:
    access, stripe = Access("mpi-independent"), Stripe(1 << 20, 8)
    assert striping_hint_note(access, stripe, {"striping_unit": "1048576", "striping_factor": "8"}) == ""
    assert striping_hint_note(access, stripe, {}).endswith('"striping_factor" and "striping_unit"')
    assert striping_hint_note(access, stripe, None) == ""
    assert striping_hint_note(Access(), stripe, {}) == ""
    assert striping_hint_note(access, None, {}) == ""
