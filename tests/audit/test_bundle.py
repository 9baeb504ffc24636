"""Bundles: what is in them, that `report` and `audit` read them as the directories, and what is refused of others."""

from __future__ import annotations

import stat
import tempfile
import warnings
import zipfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.audit.verdict import audit_results
from dliosim.cli import main
from dliosim.errors import ExecutionError, UsageError
from dliosim.report.reader import bundle as reader
from dliosim.report.reader.bundle import write_bundle
from dliosim.report.reader.load import SavedRun, load_results
from tests.audit.sample import repetitions, write_runs
from tests.examples import examples
from tests.pictures.sample import write_run

Files = dict[str, bytes]


def make_bundle(place: Path, runs: int = 2) -> Path:
    places = write_runs(place, repetitions(runs))
    path = place / "artifact.zip"
    write_bundle(path, list(map(Path, places)))
    return path


def contents(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, files: Files, mode: int = 0, how: int = zipfile.ZIP_DEFLATED) -> Path:
    """Write the files as members of that mode, compressed in that way, with their sums."""
    if "SHA256SUMS" in files:
        sums = (f"{sha256(data).hexdigest()}  {name}\n" for name, data in files.items() if name != "SHA256SUMS")
        files = {**files, "SHA256SUMS": "".join(sums).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            archive.writestr(member, data, how)
    return path


def refusal(path: Path) -> str:
    """The message about a bundle, which leaves nothing unpacked."""
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", place)
        with pytest.raises(UsageError) as error:
            load_results([str(path)], with_arrays=False)
        assert list(Path(place).iterdir()) == []
    return error.value.message.replace(place, "")


def test_a_bundle_has_results_pattern_machine_commands_and_sums(tmp_path: Path) -> None:
    files = contents(make_bundle(tmp_path))
    assert set(files) == {"README.txt", "SHA256SUMS"} | {
        f"00{number}-run-{number - 1}/{name}"
        for number in (1, 2)
        for name in ("results.json", "pattern.dlio", "environment.txt")
    }
    assert files["001-run-0/results.json"] == (tmp_path / "run-0/results.json").read_bytes()
    assert files["001-run-0/pattern.dlio"].startswith(b"dlio 1\nworkload clean")
    assert b"first host: node1\n" in files["001-run-0/environment.txt"]
    assert b"mpiexec -n 1 dliosim run clean.dlio --dir /scratch/data" in files["README.txt"]
    sums = {f"{sha256(data).hexdigest()}  {name}" for name, data in files.items() if name != "SHA256SUMS"}
    assert set(files["SHA256SUMS"].decode().splitlines()) == sums


def test_a_bundle_is_read_as_the_directories_are(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, runs=5)
    results = load_results([str(path)], with_arrays=False)
    assert [one.place for one in results] == [f"{path}/00{number + 1}-run-{number}" for number in range(5)]
    assert [one.verdict for one in audit_results(results)] == ["fit to publish: no objection, 0 notes"] * 5


def test_pictures_have_the_arrays_of_a_bundle(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 2)
    places, path = [tmp_path / "run"], tmp_path / "a.zip"
    write_bundle(path, places)
    assert {"001-run/ranks.h5", "001-run/timeline.h5"} <= set(contents(path))
    [own], [found] = (load_results([str(each)], with_arrays=True) for each in (places[0], path))
    assert isinstance(found, SavedRun) and isinstance(own, SavedRun)
    assert found.missing == () and found.loops[0].rank_times.keys() == own.loops[0].rank_times.keys() != set()


def test_a_bundle_never_replaces_a_file(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    before = path.read_bytes()
    with pytest.raises(ExecutionError, match="it is there already"):
        write_bundle(path, [tmp_path / "run-0"])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "given", "said"), [("a.txt", "run-0", r"a\.txt\.zip"), ("b.zip", "artifact.zip", "and no .*artifact")]
)
def test_a_bundle_is_a_zip_of_directories(name: str, given: str, said: str, tmp_path: Path) -> None:
    make_bundle(tmp_path, runs=1)
    with pytest.raises(UsageError, match=said):
        write_bundle(tmp_path / name, [tmp_path / given])
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    "name",
    [
        *("../results.json", "/tmp/results.json", "001/../../results.json", "001/../results.json", "001\\results.json"),
        *(
            "001/results/json",
            "001/evil.sh",
            "001/",
            "1/results.json",
            "results.json",
            "READMEXtxt",
            "001/RESULTS.JSON",
        ),
    ],
)
def test_a_name_that_no_bundle_has_is_refused(name: str, tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    assert "should not be in it" in refusal(pack(path, {**contents(path), name: b"{}"}))
    assert not (tmp_path.parent / "results.json").exists()


@pytest.mark.parametrize(
    ("mode", "how"), [(stat.S_IFLNK | 0o777, 8), (stat.S_IFIFO, 8), (0, zipfile.ZIP_LZMA), (0, zipfile.ZIP_BZIP2)]
)
def test_links_and_other_compression_are_refused(mode: int, how: int, tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    assert "should not be in it" in refusal(pack(path, contents(path), mode, how))


@pytest.mark.parametrize("sums", [None, b"", b"0" * 64 + b"  README.txt\n"])
def test_sums_that_are_missing_or_differ_are_refused(sums: bytes | None, tmp_path: Path) -> None:
    files = contents(make_bundle(tmp_path))
    listed = {"SHA256SUMS": sums} if sums is not None else {}
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in ({name: data for name, data in files.items() if name != "SHA256SUMS"} | listed).items():
            archive.writestr(name, data)
    assert "SHA256SUMS is missing" in refusal(path)


def test_a_bundle_never_follows_a_link(tmp_path: Path) -> None:
    [place] = write_runs(tmp_path, repetitions(1))
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    Path(place, "ranks.h5").symlink_to(secret)
    with pytest.raises(UsageError, match=r"ranks\.h5 is a link"):
        write_bundle(tmp_path / "a.zip", [Path(place)])
    assert not (tmp_path / "a.zip").exists()


def test_a_bundle_takes_no_damaged_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", 2)
    ranks = tmp_path / "run/ranks.h5"
    ranks.write_bytes(ranks.read_bytes()[:100])
    assert main(["audit", "--bundle", str(tmp_path / "a.zip"), str(tmp_path / "run")]) == 2
    assert "ranks.h5" in capsys.readouterr().err and not (tmp_path / "a.zip").exists()


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("README.txt", b"another")
    assert "no whole bundle" in refusal(path)


def test_a_changed_byte_of_a_member_is_refused(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    pack(path, contents(path), how=zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b'"name": "clean"', b'"name": "clear"'))
    assert "Bad CRC-32" in refusal(path)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    files = {name: data for name, data in contents(path).items() if name != "002-run-1/results.json"}
    assert refusal(pack(path, files)).startswith(f"{path}/002-run-1 has neither results.json nor compare.json")


def test_a_bundle_without_results_is_refused(tmp_path: Path) -> None:
    assert "none of its folders has results" in refusal(pack(tmp_path / "a.zip", {"README.txt": b""}))


def test_more_bytes_than_the_limit_are_refused_whatever_the_header_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_bundle(tmp_path, runs=1)
    files = {**contents(path), "001-run-0/ranks.h5": bytes(1 << 20)}
    pack(path, files)
    monkeypatch.setattr(reader, "MAX_BYTES", 1 << 19)
    assert "more than 524288 bytes" in refusal(path)
    # The size in the directory is wrong: the bytes themselves count.
    monkeypatch.undo()
    data = bytearray(path.read_bytes())
    at = data.rindex(b"001-run-0/ranks.h5") - 46 + 24
    data[at : at + 4] = (10).to_bytes(4, "little")
    path.write_bytes(data)
    assert "no whole bundle" in refusal(path)


def test_a_directory_larger_than_any_bundles_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(4000):
            archive.writestr(f"{number:060d}", b"")
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert "its end is not that of a bundle" in refusal(path)


@pytest.mark.parametrize("end", [b"a comment", b"PK\5\6"])
def test_an_end_with_a_comment_is_refused(end: bytes, tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    path.write_bytes(path.read_bytes() + end)
    assert "its end is not that of a bundle" in refusal(path)


def test_a_zip64_locator_does_not_lead_to_another_directory(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-22] + b"PK\6\7" + bytes(16) + data[-22:])
    assert "its end is not that of a bundle" in refusal(path)


def test_a_result_in_a_bundle_that_is_refused_has_the_name_of_the_bundle(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    said = refusal(pack(path, {**contents(path), "002-run-1/results.json": b"{"}))
    assert said.startswith(f"{path}/002-run-1/results.json is not JSON")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_bundle(tmp_path_factory.mktemp("whole"), runs=1).read_bytes()


@settings(max_examples=examples(800))
@given(data=st.data())
def test_a_mutated_bundle_is_read_or_refused_by_one_message(whole: bytes, data: st.DataObject) -> None:
    content = bytearray(whole)
    # Headers and the directory are a small part of the file: most changes go there.
    places = [
        at for mark in (b"PK\3\4", b"PK\1\2", b"PK\5\6") for at in range(len(content)) if content[at : at + 4] == mark
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        near = data.draw(st.sampled_from(places)) + data.draw(st.integers(0, 60))
        at = min(data.draw(st.sampled_from([near, data.draw(st.integers(0, len(content) - 1))])), len(content) - 1)
        match data.draw(st.sampled_from(["set", "cut", "put"])):
            case "set":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at : at + data.draw(st.integers(1, 50))]
            case _:
                content[at:at] = data.draw(st.binary(max_size=30))
        if not content:
            break
    with TemporaryDirectory() as place:
        path = Path(place, "a.zip")
        path.write_bytes(content)
        with suppress(UsageError):
            [found] = load_results([str(path)], with_arrays=False)
            assert isinstance(found, SavedRun) and found.run.name == "clean"
        assert [one.name for one in Path(place).iterdir()] == ["a.zip"]


def test_the_command_writes_a_bundle_and_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places, path = write_runs(tmp_path, repetitions(5)), str(tmp_path / "b.zip")
    assert main(["audit", "--bundle", path, *places]) == 0
    assert main(["report", path, "--json"]) == 0 == main(["audit", path, "--strict"])
    assert capsys.readouterr().out.count("fit to publish") == 5
    assert main(["audit", "--bundle", path, *places]) == 1
    assert main(["audit", "--strict", places[0]]) == 3 and main(["audit", places[0]]) == 0
    assert capsys.readouterr().err.endswith("error: 1 objection\n")
