"""dliosim compared with fio and IOR: the same bytes of the same file, and times from what they print."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from types import ModuleType

import pytest

from tests.mpi.launch import Job, mpiexec, running
from tests.scripts.stubs import DEV, RECORDS, calls, environment, stub

#: What IOR 4 prints of a read; IOR 3 has neither IOPS nor latency.
IOR_4 = """\
IOR-4.0.0: MPI Coordinated Test of Parallel I/O
Began               : Sat Nov 21 08:00:00 2026
Command line        : ior -a POSIX -r -k -o /data/file -s 1 -b 33554432 -t 4096 -z
Machine             : Linux node
TestID              : 0
StartTime           : Sat Nov 21 08:00:00 2026

Options:
api                 : POSIX
access              : single-shared-file
xfersize            : 4096 bytes

Results:

access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
read      2222.17    569057     0.000003    32768      4.00       0.000071   0.028791   0.000014   0.028801   0

Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s)
read         2222.17    2222.17    2222.17       0.00  568875.52  568875.52  568875.52       0.00    0.02880
Finished            : Sat Nov 21 08:00:00 2026
"""
IOR_3 = """\
access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ---------- ---------  --------   --------   --------   --------   ----
read      2222.17    32768      4.00       0.000071   0.031415   0.000014   0.031500   0
"""
MIB = 1 << 20


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DEV))


@pytest.fixture
def peers() -> ModuleType:
    return importlib.import_module("peers")


@pytest.fixture
def fio() -> None:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")


def printed_by(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fio_reads_as_much_as_the_ranks_of_dliosim(peers: ModuleType, fio: None, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4 * MIB))
    before = file.stat().st_mtime_ns
    printed = printed_by(peers.fio_reads(file, 4 * MIB, 4096, 2, 16, False), tmp_path)
    job = json.loads(printed)["jobs"][0]["read"]
    assert (job["io_bytes"], job["total_ios"]) == (64 * MIB, 64 * MIB // 4096)
    assert peers.fio_seconds(printed, "read", 64 * MIB) == job["runtime"] / 1000
    with pytest.raises(ValueError, match="67108864 bytes of 4194304"):
        peers.fio_seconds(printed, "read", 4 * MIB)
    assert (file.stat().st_mtime_ns, file.stat().st_size) == (before, 4 * MIB)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("buffers", ["filled once", "refilled for each call", "with checksums"])
@pytest.mark.parametrize("file_size", [8 * MIB, MIB])
def test_fio_writes_as_many_files_as_dliosim(
    peers: ModuleType, fio: None, tmp_path: Path, buffers: str, file_size: int
) -> None:
    (tmp_path / "new").mkdir()
    printed = printed_by(peers.fio_writes(tmp_path / "new", 8 * MIB, file_size, MIB, 2, buffers), tmp_path)
    report = json.loads(printed)["jobs"][0]
    assert report["write"]["total_ios"] == 8
    assert [path.stat().st_size for path in (tmp_path / "new").iterdir()] == [file_size] * (8 * MIB // file_size)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_of_ior_the_time_of_the_calls_counts_not_that_of_opening(peers: ModuleType) -> None:
    assert peers.ior_seconds(IOR_4) == 0.028791
    assert peers.ior_seconds(IOR_3) == 0.031415
    with pytest.raises(ValueError, match="no table of results"):
        peers.ior_seconds("ior ERROR: cannot open file, errno 2\n")


def test_ior_is_asked_for_the_same_file_and_calls(peers: ModuleType) -> None:
    file = Path("/data/file")
    assert peers.ior_reads(file, 64 * MIB, 4096, 2, peers.IOR_WAYS["posix"], True) == [
        *("ior", "-a", "POSIX", "-z", "--posix.odirect", "-r", "-k", "-o", "/data/file"),
        *("-s", "1", "-b", str(32 * MIB), "-t", "4096"),
    ]


def test_reads_against_fio_and_ior(fio: None, tmp_path: Path) -> None:
    launcher = mpiexec()
    of_rank_0 = '[ "$PMI_RANK" = 0 ] || exit 0\n'
    ior = stub(tmp_path / "bin", "ior", f"{of_rank_0}{RECORDS}cat <<'E'\n{IOR_4}E\n")
    done = subprocess.run(
        [
            *(sys.executable, str(DEV / "cross_check.py"), "--place", str(tmp_path), "--launcher", launcher),
            *("--ranks", "2", "--sizes", "64", "--size", "32", "--passes", "2", "--pairs", "1", "--only", "reads"),
            *("--batches", "16", "--json", str(tmp_path / "found.json")),
        ],
        env={**os.environ, "PATH": f"{ior.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {(row["against"], row["order"]): row for row in json.loads((tmp_path / "found.json").read_text())}
    assert list(rows) == [
        ("fio psync", "random"),
        ("fio psync", "random, sync off"),
        ("a bare loop", "random"),
        ("a bare loop", "random, sync off"),
        ("IOR POSIX -z", "random"),
        ("IOR MPIIO -z", "random"),
        ("IOR MPIIO -c", "in order"),
    ]
    assert {row["calls_of_a_rank"] for row in rows.values()} == {2 * 32 * 1024 // 64 // 2}
    assert rows["IOR POSIX -z", "random"]["seconds_a_call_of_the_other"] == [pytest.approx(2 * 0.028791 / 512)]
    for row in rows.values():
        assert row["ratios"] == [row["seconds_a_call"][0] / row["seconds_a_call_of_the_other"][0]]
    assert sum(line.startswith("| 64 KiB, ") for line in done.stdout.splitlines()) == 7
    said = done.stderr.splitlines()
    assert said[0].startswith("7 rows, pairs in each: 1, and one that is dropped; roughly ")
    assert [line.split(" (roughly")[0] for line in said[1:]] == [
        "row 1 of 7: reads, 64 KiB, posix, random, batch 16, ranks 2, fio psync",
        "row 2 of 7: reads, 64 KiB, posix, random, sync off, batch 16, ranks 2, fio psync",
        "row 3 of 7: reads, 64 KiB, posix, random, batch 16, ranks 2, a bare loop",
        "row 4 of 7: reads, 64 KiB, posix, random, sync off, batch 16, ranks 2, a bare loop",
        "row 5 of 7: reads, 64 KiB, posix, random, batch 16, ranks 2, IOR POSIX -z",
        "row 6 of 7: reads, 64 KiB, mpi-independent, random, batch 16, ranks 2, IOR MPIIO -z",
        "row 7 of 7: reads, 64 KiB, mpi-collective, in order, batch 1, ranks 2, IOR MPIIO -c",
    ]
    files = {word for word in calls(ior) if word.endswith(".raw")}
    assert len(files) == 1  # the file that dliosim prepared
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "found.json"]


def test_a_cold_cache_is_as_cold_as_the_kernel_makes_it(fio: None, tmp_path: Path) -> None:
    cross_check = importlib.import_module("cross_check")
    setting = cross_check.Setting(tmp_path, 16 * MIB, 1, 5, "cold", [mpiexec()])
    row = cross_check.compare_read(setting, cross_check.ReadRow(64 << 10, 1, "posix", "random", "fio", "fio psync", 8))
    assert row["calls_of_a_rank"] == 256  # read once
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert row["resident_share"][0] == (1 if kind.strip() == "tmpfs" else pytest.approx(0, abs=0.01))


def test_writes_against_fio_are_of_the_same_bytes_and_verified(fio: None, tmp_path: Path) -> None:
    cross_check = importlib.import_module("cross_check")
    setting = cross_check.Setting(tmp_path, MIB, 1, 1, "warm", [mpiexec()])
    row = cross_check.compare_write(setting, cross_check.WriteRow("file per sample", 64 * MIB, 2, "with checksums"))
    assert row["bytes"] == 64 * MIB
    assert row["ratios"] == [row["seconds"][0] / row["seconds_of_the_other"][0]]
    assert [path.name for path in tmp_path.iterdir()] == ["cross_check.dlio"]


def test_without_any_other_tool_there_is_nothing_to_compare(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEV / "cross_check.py"), "--place", str(tmp_path)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "neither fio nor ior is installed" in done.stderr


#: A fio that does its work for the two runs of the first row, and then never ends.
STUCK = """\
echo >>"$0.count"
[ "$(wc -l <"$0.count")" -le 2 ] || { sleep 300 & wait; }
exec %s "$@"
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_before_the_last_row_leaves_rows_and_nothing_else(
    fio: None, tmp_path: Path, number: signal.Signals
) -> None:
    mark = uuid.uuid4().hex
    stand_in = stub(tmp_path / "bin", "fio", STUCK % shutil.which("fio"))
    (tmp_path / "place").mkdir()
    process = subprocess.Popen(
        [
            *(sys.executable, str(DEV / "cross_check.py"), "--place", str(tmp_path / "place")),
            *("--launcher", mpiexec(), "--ranks", "1", "--sizes", "64", "1024", "--size", "32", "--pairs", "1"),
            *("--passes", "2", "--json", str(tmp_path / "found.json")),
        ],
        env={**environment({}), "DLIOSIM_TEST_JOB": mark, "PATH": f"{stand_in.parent}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with running(Job(process, mark)) as job:
        job.wait_until(lambda: bool(job.processes("sleep 300")), 60)
        process.send_signal(number)
        done = job.finish()
    assert done.returncode == 128 + number
    assert done.stderr.splitlines()[-1].startswith(f"cross_check.py: {number.name}: ended what it started")
    assert "Traceback" not in done.stderr
    (row,) = json.loads((tmp_path / "found.json").read_text())
    assert (row["size"], len(row["ratios"])) == (64 << 10, 1)
    assert list((tmp_path / "place").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "found.json", "place"]


@pytest.mark.parametrize(
    ("ratios", "undecided"),
    [([0.9, 1.0, 1.2], True), ([0.96, 1.0, 1.2], False), ([0.9, 1.0, 1.04], False), ([1.2, 3.0], False)],
)
def test_pairs_that_disagree_about_who_is_faster_decide_nothing(ratios: list[float], undecided: bool) -> None:
    found = importlib.import_module("cross_check").Found(ratios, [1.0] * len(ratios))
    assert found.is_undecided() is undecided
    assert ("undecided" in found.verdict()) is undecided
