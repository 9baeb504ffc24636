"""`stage`: each node has a complete copy or none, which loops read; killed jobs leave no half copy that counts."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from shutil import rmtree
from time import sleep
from typing import Any

import numpy as np
import pytest

from dliosim.execute.store.checkpoint_store import CheckpointStores
from dliosim.execute.store.locking import NAME
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast
from tests.examples import ALL
from tests.mpi import found_files
from tests.mpi.jobs import DATASET, Place, only_error, phases
from tests.mpi.launch import running, start_ranks
from tests.mpi.waiting import run_command

FILES = DATASET.replace("layout   shared file", "layout   7 files in 2 folders")
TRAIN = "train {\n read d\n batch 2 per rank\n epochs 3\n}\n"


def local(place: Place) -> list[str]:
    """The option that names the nodes' own root."""
    return ["--root", f"local={place.directory / 'local'}"]


def copies(place: Place) -> dict[str, dict[str, bytes]]:
    """The files of the copies, by node."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted((place.directory / "local" / "staged").rglob("*.raw")):
        node, _, _, *name = path.relative_to(place.directory / "local" / "staged").parts
        found.setdefault(node, {})["/".join(name)] = path.read_bytes()
    return found


def originals(place: Place) -> dict[str, bytes]:
    return {"/".join(path.parts[-2:]): path.read_bytes() for path in place.files("d/*/*/*.raw")}


def two_nodes(place: Place, ranks: int, broken: str = "-") -> tuple[int, str, dict[str, Any]]:
    """Run the pattern with the ranks on two nodes; status, messages and results."""
    command = place.command(*local(place))
    done = run_command(ranks, [broken, *command], place.directory, module="tests.mpi.staging_program")
    saved = place.output / "results.json"
    content = json.loads(saved.read_text()) if done.returncode == 0 else {}
    saved.unlink(missing_ok=True)
    return done.returncode, done.stdout + done.stderr, content


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_copy_is_read_in_the_same_order_and_kept_by_the_next_run(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    path = place.write(FILES, "prepare d\n", "stage d to local\n", TRAIN)
    plain = place.results(ranks, *local(place), define={"stage d.copy": "off"})
    assert not (tmp_path / "local" / "staged").exists()
    first, again = (place.results(ranks, *local(place), "--verify") for _ in range(2))
    (stage,), (train,) = phases(first, "stage"), phases(first, "train")
    assert (stage["root"], train["root"], phases(plain, "train")[0]["root"]) == ("local", "local", "data")
    assert first["order_hash"] == plain["order_hash"] and first["extent_hash"] == plain["extent_hash"]
    (copied,) = copies(place).values()
    assert copied == originals(place)
    size = sum(map(len, copied.values()))
    done = stage["files"]
    assert (done["bytes"], done["source_bytes"], done["files"], done["opens"]) == (size, size, 7, 7)
    assert done["node_bytes_per_second"] > 0
    planned = next(one for one in forecast(compile_pattern(path, [], Job(ranks))[0]).phases if one.verb == "stage")
    assert [planned.bytes.total, planned.files.total, planned.calls.total] == [size, 7, done["calls"]]
    (kept,) = phases(again, "stage")
    assert kept["files"]["bytes"] == 0
    assert kept["notes"] == ["kept: 1 of 1 nodes have a complete copy of the same description"]
    assert phases(again, "train")[0]["root"] == "local"


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_each_node_copies_its_own_files(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(FILES, "prepare d\n", "stage d to local\n", TRAIN)
    status, said, results = two_nodes(place, ranks)
    assert status == 0, said
    whole = originals(place)
    assert copies(place) == {"left": whole, "right": whole}
    (stage,) = phases(results, "stage")
    assert stage["files"]["bytes"] == 2 * sum(map(len, whole.values()))
    assert results["nodes"] == 2


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_share_has_only_what_the_ranks_of_a_node_read(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    loop = "train {\n read d\n shard by file\n shuffle samples within shard\n epochs 3\n steps 1\n}\n"
    place.write(FILES, "prepare d\n", "stage d to local {\n holds own share\n}\n", loop)
    status, said, results = two_nodes(place, ranks)
    assert status == 0, said
    found = copies(place)
    assert not set(found["left"]) & set(found["right"])
    assert found["left"] | found["right"] == originals(place)
    assert phases(results, "train")[0]["root"] == "local"


def test_a_share_has_what_ranks_without_samples_pad_their_batches_with(tmp_path: Path) -> None:
    place = Place(tmp_path)
    data = 'dataset d {\n samples 2\n size 1 kB\n layout 2 files\n path "d"\n}\n'
    loop = "train {\n read d\n shard by block\n last batch pad\n}\n"
    place.write(data, "prepare d\n", "stage d to local {\n holds own share\n}\n", loop)
    status, said, _ = two_nodes(place, 4)
    assert status == 0, said
    assert {node: len(files) for node, files in copies(place).items()} == {"left": 1, "right": 2}


@pytest.mark.parametrize("how", ["", " in the background"])
def test_a_copy_that_cannot_begin_is_never_read(how: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "staged").touch()
    loop = TRAIN.replace("epochs 3", "epochs 40\n compute 1 ms")
    place.write(FILES, "prepare d\n", f"stage d to local{how}\n", loop)
    text = only_error(place.run(2, *local(place)))
    assert "mkdir failed on " in text and text.endswith(": Not a directory")


def test_a_file_in_place_of_a_folder_of_a_copy_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(FILES, "prepare d\n", "stage d to local\n", TRAIN)
    place.results(2, *local(place))
    folder = next((tmp_path / "local").rglob("*.raw")).parent
    rmtree(folder)
    folder.touch()
    text = only_error(place.run(2, *local(place)))
    assert f"mkdir failed on {folder}: File exists" in text


def test_a_node_that_cannot_copy_ends_the_job_with_its_name_and_the_file(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(FILES, "prepare d\n", "stage d to local\n", TRAIN)
    status, said, _ = two_nodes(place, 3, "000000000.raw")
    assert status
    assert "rank 2: node right: pwrite failed on " in said and "000000000.raw: No space left on device" in said
    assert not list((tmp_path / "local" / "staged" / "right").rglob("manifest.json"))
    status, said, _ = two_nodes(place, 3)
    assert status == 0, said
    assert copies(place)["right"] == originals(place)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_copy_in_the_background_is_complete_at_the_end(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    loop = TRAIN.replace("epochs 3", "epochs 40\n compute 1 ms")
    place.write(FILES, "prepare d\n", "stage d to local in the background\n", loop)
    results = place.results(ranks, *local(place), "--verify")
    (copied,) = copies(place).values()
    assert copied == originals(place)
    (stage,), (train,) = phases(results, "stage"), phases(results, "train")
    assert stage["files"]["bytes"] == sum(map(len, copied.values()))
    assert train["root"] in ("local", "data, local")
    assert any("read the copies of the nodes on root local" in note for note in train["notes"])


def test_a_copy_whose_file_was_cut_or_whose_manifest_is_missing_is_made_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(FILES, "prepare d\n", "stage d to local\n", TRAIN)
    place.results(2, *local(place))
    (manifest,) = (tmp_path / "local").rglob("manifest.json")
    manifest.unlink()
    assert phases(place.results(2, *local(place)), "stage")[0]["files"]["files"] == 7
    file = next((tmp_path / "local").rglob("*.raw"))
    file.write_bytes(file.read_bytes()[:-1])
    assert phases(place.results(2, *local(place)), "stage")[0]["files"]["files"] == 7
    (copied,) = copies(place).values()
    assert copied == originals(place)


@pytest.mark.parametrize("form", ["size 300 B\n format tfrecord", "shape 129 of uint16\n format indexed"])
def test_files_next_to_data_files_are_copied_too(form: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    data = f'dataset d {{\n samples 41\n layout 4 files\n {form}\n path "d"\n}}\n'
    place.write(data, "prepare d\n", "stage d to local\n", TRAIN)
    place.results(3, *local(place), "--verify")
    (made,), (copied,) = (list(each.rglob("manifest.json")) for each in (place.data, tmp_path / "local"))
    assert {path.name: path.read_bytes() for path in copied.parent.iterdir() if path != copied} == {
        path.name: path.read_bytes() for path in made.parent.iterdir() if path != made
    }


def test_existing_files_are_copied_under_their_numbers(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for number in range(3):
        (place.data / f"of {number}").mkdir(parents=True)
        np.save(place.data / f"of {number}" / "x.npy", np.full((6, 50), number, np.float32))
    place.write(
        'dataset d {\n from files "*/*.npy"\n format npy\n}\n',
        "stage d to local\n",
        TRAIN.replace("batch 2", "batch 1"),
    )
    assert phases(place.results(2, *local(place)), "train")[0]["root"] == "local"
    found = sorted((tmp_path / "local").rglob("*.npy"))
    assert [path.name for path in found] == [f"{number:08}.npy" for number in range(3)]
    assert [int(np.load(path)[0, 0]) for path in found] == [0, 1, 2]


def test_a_changed_file_of_the_same_size_is_copied_again_and_missing_indices_are_not(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.data.mkdir()
    for number in range(3):
        found_files.tfrecord(place.data / f"{number}.tfrecord", 6)
    place.write(
        'dataset d {\n from files "*.tfrecord"\n format tfrecord\n}\n',
        "stage d to local\n",
        TRAIN.replace("batch 2", "batch 1"),
    )
    (first,) = phases(place.results(2, *local(place)), "stage")
    assert first["files"]["files"] == 3
    (kept,) = phases(place.results(2, *local(place)), "stage")
    assert kept["files"]["files"] == 0
    copy = sorted((tmp_path / "local").rglob("*.tfrecord"))[1]
    copy.with_suffix(".index").write_text("of another copy")
    (place.data / "0.tfrecord").write_bytes((place.data / "2.tfrecord").read_bytes())
    again = phases(place.results(2, *local(place)), "stage")[0]["files"]
    assert again["files"] == 3
    assert not copy.with_suffix(".index").exists()
    for path in place.data.glob("*.tfrecord"):
        assert (copy.parent / f"{int(path.stem):08}.tfrecord").read_bytes() == path.read_bytes()


def test_one_job_writes_a_copy_and_others_read_it_once_it_is_complete(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(FILES, "prepare d\n", "stage d to local\n", TRAIN)
    place.results(2, *local(place))
    (base,) = {path.parent for path in (tmp_path / "local").rglob("manifest.json")}
    assert not (base / NAME).exists()
    for writes, whole, error in (True, True, "writes to"), (False, True, ""), (False, False, "reads from"):
        with CheckpointStores() as other:
            other.lock_copy(base, writes)
            if not whole:
                (base / "manifest.json").unlink()
            done = place.run(2, *local(place))
            if not error:
                assert done.returncode == 0, done.stderr
                continue
            text = only_error(done)
            assert text.startswith("error[R405]: ") and f"because another job {error} it, " in text
            assert f"process {os.getpid()}, since " in text and f"node {os.uname().nodename}: {base} cannot" in text
    assert phases(place.results(2, *local(place)), "stage")[0]["files"]["files"] == 7
    assert not (base / NAME).exists()


def test_without_io_nothing_is_copied(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(FILES, "stage d to local\n", TRAIN)
    (stage,) = phases(place.results(2, *local(place), "--null"), "stage")
    assert stage["notes"] == ["nothing copied (--null)"]
    assert not (tmp_path / "local").exists()


def test_dropped_caches_are_those_of_copies_too(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(FILES, "prepare d\n", "stage d to local\n", "drop caches\n", TRAIN)
    (drop,) = phases(place.results(2, *local(place)), "drop caches")
    assert drop["files"]["files"] == 14


def test_a_root_without_room_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write('dataset d {\n samples 4\n size 1 GB\n path "d"\n}\n', "prepare d\n", "stage d to local\n", TRAIN)
    huge = {"d.samples": "4_000_000"}
    text = only_error(place.run(2, *local(place), define=huge))
    assert text.startswith("error[R402]:") and "the copy of data set `d`" in text


@pytest.mark.parametrize("how", ["", " in the background"])
def test_jobs_that_are_killed_while_they_stage_leave_no_half_copy_that_counts(how: str, tmp_path: Path) -> None:
    place, random = Place(tmp_path), Random(how)
    data = 'dataset d {\n samples 400\n size 50 kB\n layout 20 files\n path "d"\n}\n'
    place.write(data, "prepare d\n", f"stage d to local{how}\n", "train {\n read d\n batch 20 per rank\n}\n")
    place.results(2, *local(place), define={"stage d.copy": "off"})
    staged = tmp_path / "local" / "staged"
    for _ in range(30 if ALL else 4):
        rmtree(place.output, ignore_errors=True)
        again = staged.exists()
        with running(start_ranks(random.choice([2, 3]), *place.arguments(*local(place)))) as job:
            job.wait_until(lambda job=job: staged.exists() and job.ranks(), 60)  # type: ignore[misc]
            sleep(random.uniform(0, 3 if again else 0.1))
            with suppress(ProcessLookupError, IndexError):  # it may be over
                os.kill(random.choice(job.ranks()), signal.SIGKILL)
            job.launcher.communicate(timeout=60)
        for manifest in staged.rglob("manifest.json"):
            assert [path.read_bytes() for path in sorted(manifest.parent.glob("*.raw"))] == [
                path.read_bytes() for path in place.files()
            ]
            manifest.unlink()
        if random.random() < 0.8:
            rmtree(staged)
    rmtree(place.output, ignore_errors=True)
    place.results(2, *local(place), "--verify")
    (copied,) = copies(place).values()
    assert list(copied.values()) == [path.read_bytes() for path in place.files()]
