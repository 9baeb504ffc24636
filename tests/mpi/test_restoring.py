"""A checkpoint of one split is restored by any other split, by every api; all ranks skip a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mpi.jobs import Place, only_error, phases

STATE = """
checkpoint c {
    part      rows 101 x 300 of bf16 split by rows
    part      columns 67 x 211 of bf16 split by columns
    part      norm 77 of bf16 whole
    part      moments 100_001 B total
    parallel  SPLIT
    transfer  25_000 B
    path      "c"
}
"""
ROWS, COLUMNS, NORM, MOMENTS = 101 * 300 * 2, 67 * 211 * 2, 77 * 2, 100_001
TENSORS = ROWS + COLUMNS + NORM

RESTORES = (
    """
restore c { parallel tensor $ranks }
restore c { parallel data $ranks, reads own part once, shifted by 1 ranks }
restore c { parallel data $ranks, reads everything once }
restore c { parallel tensor $ranks, reads everything, shifted by 1 ranks }
""".replace(", ", "\n    ")
    .replace("{ ", "{\n    written by tensor 2\n    ")
    .replace(" }", "\n}")
)

APIS = {
    "posix": ("into file per rank", (1, 5)),
    "mpi-independent": ("all ranks into shared file", (2,)),
    "mpi-collective": ("all ranks into shared file", (3,)),
}


def saved(place: Place, api: str, times: int = 1) -> None:
    """Two ranks that split tensors save."""
    place.write(STATE.replace("SPLIT", "tensor 2"), "save c\n" * times)
    place.results(2, define=by(api))


def by(api: str) -> dict[str, str]:
    return {"c.api": api, "c.writers": APIS[api][0]}


def restored(results: dict[str, Any]) -> list[int]:
    """The bytes that all ranks have read, of each restore."""
    return [phase["files"]["bytes"] for phase in phases(results, "restore")]


@pytest.mark.parametrize("api", APIS)
def test_any_ranks_restore_what_two_have_saved(tmp_path: Path, api: str) -> None:
    place = Place(tmp_path)
    saved(place, api)
    place.write(STATE.replace("SPLIT", "data $ranks"), RESTORES)
    for ranks in APIS[api][1]:
        results = place.results(ranks, define=by(api))
        # Every byte is compared with what was saved, so that these were the right ones.
        assert restored(results) == [
            ROWS + COLUMNS + ranks * NORM + MOMENTS,
            TENSORS + MOMENTS,
            TENSORS + MOMENTS,
            ranks * (TENSORS + MOMENTS),
        ]
        restores = phases(results, "restore")
        assert all(phase["notes"] == [] for phase in restores)
        assert [phase["how"] for phase in restores] == [
            f"by {f'tensor {ranks}' if ranks > 1 else 'data 1'} from tensor 2",
            f"by data {ranks} from tensor 2 shifted by 1 once",
            f"by data {ranks} from tensor 2 everything once",
            f"by {f'tensor {ranks}' if ranks > 1 else 'data 1'} from tensor 2 shifted by 1 everything",
        ]
        assert [phase["files"]["broadcast_seconds"]["max"] > 0 for phase in restores] == [False, True, True, False]


COPIED = """
checkpoint c {
    part      weights 100_001 B whole
    part      moments 30_001 B total
    transfer  25_000 B
    writers   rank $ranks - 1
    path      "c"
}
"""


def test_one_rank_saves_what_all_hold_and_any_restore_it_whole(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for ranks in (1, 2, 3, 5):
        place.write(COPIED, "save c\nrestore c\n", "restore c written by 5 ranks\n" * (ranks == 5))
        found = place.results(ranks)
        (save,) = phases(found, "save")
        assert save["files"]["bytes"] == 100_001 + 30_001
        assert restored(found)[0] == ranks * 100_001 + 30_001
    place.write(COPIED.replace("    part      moments 30_001 B total\n", "").replace("$ranks - 1", "2"), "save c\n")
    (save,) = phases(place.results(3), "save")
    assert save["files"]["bytes"] == 100_001
    assert save["files"]["send_seconds"]["max"] == 0  # each has all of it
    place.write(COPIED.replace("rank $ranks - 1", "rank 0"), "save c\n")
    place.results(5)
    place.write(COPIED.replace("rank $ranks - 1", "rank 0"), "restore c written by 5 ranks\n")
    assert restored(place.results(2)) == [2 * 100_001 + 30_001]


@pytest.mark.parametrize(("api", "reads"), [("posix", "own part once"), ("mpi-collective", "own part")])
def test_what_is_damaged_is_passed_over_by_all_ranks(tmp_path: Path, api: str, reads: str) -> None:
    place = Place(tmp_path)
    saved(place, api, times=3)
    flipped, cut = (place.files(f"c/*/{number}/000000.ckpt")[0] for number in ("000003", "000002"))
    data = bytearray(flipped.read_bytes())
    data[20_000] ^= 1
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-1])
    place.write(
        STATE.replace("SPLIT", "data $ranks"), f"restore c {{\n    written by tensor 2\n    reads {reads}\n}}\n"
    )
    (phase,) = phases(place.results(3, define=by(api)), "restore")
    first, second, read = phase["notes"]
    assert first.startswith("passed over 000003: 000000.ckpt differs from what was saved, at byte 20000 (found after ")
    assert second.startswith(f"passed over 000002: 000000.ckpt has {len(data) - 1} bytes, not {len(data)}")
    assert read == "read 000001"
    assert phase["files"]["bytes"] == (3 * TENSORS + MOMENTS if reads == "own part" else TENSORS + MOMENTS)
    last = place.files("c/*/000001/000000.ckpt")[0]
    last.write_bytes(b"\0" * last.stat().st_size)
    error = only_error(place.run(3, define=by(api)))
    assert error.startswith("error[R404]: no complete checkpoint of `c` in ")
    assert [number for number in ("000003", "000002", "000001") if f"{number}: 000000.ckpt " in error] == [
        "000003",
        "000002",
        "000001",
    ]


def test_each_once_restores_all_that_were_saved_the_oldest_first(tmp_path: Path) -> None:
    place = Place(tmp_path)
    size = TENSORS + MOMENTS
    for run, ranks in enumerate((1, 2, 3, 5)):
        place.write(
            STATE.replace("SPLIT", "tensor $ranks"),
            "save c\nrepeat 2 {\n    save c\n}\ndrop caches\nrestore c each once {\n    pause 1 ms\n}\n",
            "save c\nrestore c each once\n",
        )
        results = place.results(ranks)
        norms = (ranks - 1) * NORM
        assert restored(results) == [size + norms] * 7
        assert {phase["how"] for phase in phases(results, "restore")} == {"oldest first"}
        assert len(phases(results, "pause")) == 3
        # Another job restores some of them, and finds a damaged one in its turn.
        place.write(STATE.replace("SPLIT", "tensor $ranks"), "restore c each of 4 once\n")
        assert restored(place.results(ranks)) == [size + norms] * 4, run
    for number in (4, 2):
        cut = place.files(f"c/*/00000{number}/000000.ckpt")
        for file in cut:
            file.write_bytes(file.read_bytes()[:-1])
        said = only_error(place.run(3))
        assert f"error[R404]: checkpoint 00000{number} of `c`: 000000.ckpt has " in said
    place.write(STATE.replace("SPLIT", "tensor $ranks"), "restore c each of 1 once\n")
    assert len(restored(place.results(3))) == 1
    place.write(STATE.replace("SPLIT", "tensor $ranks"), "restore c each of 5 once\n")
    said = only_error(place.run(3))
    assert "error[R404]: 5 checkpoints of `c` are to be restored, and 4 are there, in " in said


STAGES = """
checkpoint c {
    part      first 10_007 B whole on stage 0
    part      second 20_011 B whole on stage 1
    part      moments 100_001 B total
    parallel  pipeline 2 data 2 ORDER
    path      "c"
}
"""


@pytest.mark.parametrize(("order", "saver"), [("", 2), ("order tp-dp-pp", 2), ("order tp-pp-dp", 1)])
def test_the_order_of_ranks_says_who_saves_and_restores_what(tmp_path: Path, order: str, saver: int) -> None:
    place = Place(tmp_path)
    wholes, moments = 10_007 + 20_011, 100_001
    other = "order tp-dp-pp" if "pp-dp" in order else "order tp-pp-dp"
    reads = ("own part", "own part once", "own part once without sending", "everything once without sending")
    verbs = "".join(f"restore c {{\n    reads {each}\n}}\n" for each in reads)
    verbs += f"restore c {{\n    parallel pipeline 2 data 2 {other}\n}}\n"
    place.write(STAGES.replace("ORDER", order), "save c\n", verbs)
    results = place.results(4)
    sizes = {file.name: file.stat().st_size for file in place.files("c/*/000001/*.ckpt")}
    share = {rank: (rank + 1) * moments // 4 - rank * moments // 4 for rank in range(4)}
    more = {0: 10_007, saver: 20_011}
    assert sizes == {f"00000{rank}.ckpt": share[rank] + more.get(rank, 0) for rank in range(4)}
    once = wholes + moments
    assert restored(results) == [2 * wholes + moments, once, once, once, 2 * wholes + moments]
    sent = [phase["files"]["broadcast_seconds"]["max"] > 0 for phase in phases(results, "restore")]
    assert sent == [False, True, False, False, False]


LAYERS = """
model m transformer {
    layers      3
    hidden      8
    ffn         16
    heads       2
    vocabulary  50
}
checkpoint c {
    model  m
    path   "c"
}
"""


@pytest.mark.parametrize("order", ["tp-dp-pp", "tp-pp-dp"])
def test_any_ranks_restore_what_was_saved_in_another_order(tmp_path: Path, order: str) -> None:
    place = Place(tmp_path)
    place.write(LAYERS, "save c\n")
    split = f"pipeline 2 data 2 order {order}"
    (saved,) = phases(place.results(4, define={"c.parallel": split}), "save")
    weights = sum(file.stat().st_size for file in place.files("c/*/000001/layer*.ckpt"))
    rest = saved["files"]["bytes"] - weights
    place.write(LAYERS, f"restore c {{\n    written by {split}\n}}\n")
    for ranks in (1, 2, 3, 5):
        (total,) = restored(place.results(ranks))
        assert total == ranks * weights + rest
        (total,) = restored(place.results(ranks, define={"restore.reads": "own part once without sending"}))
        assert total == weights + rest
