"""Output of strace becomes calls on files, with the offsets that read() does not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.scripts.fidelity import script

tracing = script("fidelity.tracing")

DATA = Path("/data")

#: A DataLoader's worker: numpy.load of an npz, cut by another thread's lines, among calls on other files.
WORKER = """\
10 100.000100 openat(AT_FDCWD</home>, "/lib/libc.so.6", O_RDONLY|O_CLOEXEC) = 3</lib/libc.so.6> <0.000010>
10 100.000200 read(3</lib/libc.so.6>, ""..., 832) = 832 <0.000010>
10 100.000300 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
11 100.000400 openat(AT_FDCWD</home>, "/data/0.npz", O_RDONLY|O_CLOEXEC <unfinished ...>
10 100.000450 <... clone resumed>, child_tidptr=0x7fa66abc2e50) = 11 <0.000150>
11 100.000460 <... openat resumed>) = 3</data/0.npz> <0.000030>
11 100.000500 newfstatat(3</data/0.npz>, "", {st_mode=S_IFREG|0644, st_size=5000}, AT_EMPTY_PATH) = 0 <0.000005>
11 100.000600 read(3</data/0.npz>, ""..., 4096) = 4096 <0.000040>
11 100.000700 lseek(3</data/0.npz>, -22, SEEK_END) = 4978 <0.000005>
11 100.000800 read(3</data/0.npz>,  <unfinished ...>
10 100.000810 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=12} ---
11 100.000850 <... read resumed>""..., 23) = 22 <0.000030>
11 100.000900 read(3</data/0.npz>, "", 1) = 0 <0.000005>
11 100.000950 close(3</data/0.npz>) = 0 <0.000005>
11 100.001000 openat(AT_FDCWD</home>, "/data/absent.npz", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000005>
11 100.001100 +++ exited with 0 +++
"""


def parsed(text: str) -> list[Any]:
    found: list[Any] = tracing.parse(text.splitlines(keepends=False), DATA)
    return found


def brief(text: str) -> list[tuple[Any, ...]]:
    return [(r.call, r.file, r.offset, r.asked, r.returned) for r in parsed(text)]


def test_a_worker_is_followed_through_cut_lines_and_seeks() -> None:
    assert brief(WORKER) == [
        ("openat", "0.npz", -1, 0, 3),
        ("newfstatat", "0.npz", -1, 0, 0),
        ("read", "0.npz", 0, 4096, 4096),
        ("lseek", "0.npz", 4978, 0, 4978),
        ("read", "0.npz", 4978, 23, 22),
        ("read", "0.npz", 5000, 1, 0),
        ("close", "0.npz", -1, 0, 0),
        ("openat", "absent.npz", -1, 0, -1),
    ]
    assert {(r.pid, r.process) for r in parsed(WORKER)} == {(11, 11)}


def test_a_cut_call_lasts_from_its_first_line_for_as_long_as_its_last_says() -> None:
    read = parsed(WORKER)[4]
    assert (read.start, read.duration) == (100.0008, 0.00003)


def test_calls_that_say_their_offset_are_believed() -> None:
    text = """\
5 1.0 pread64(7</data/a>, ""..., 8, 4096) = 8 <0.000001>
5 2.0 preadv(7</data/a>, [{iov_base=""..., iov_len=10}, {iov_base=""..., iov_len=20}], 2, 64) = 30 <0.000001>
5 3.0 preadv2(7</data/a>, [{iov_base=""..., iov_len=10}], 1, 128, RWF_NOWAIT) = 10 <0.000001>
5 4.0 mmap(NULL, 8192, PROT_READ, MAP_SHARED, 7</data/a>, 0x1000) = 0x7f0000000000 <0.000001>
"""
    assert brief(text) == [
        ("pread64", "a", 4096, 8, 8),
        ("preadv", "a", 64, 30, 30),
        ("preadv2", "a", 128, 10, 10),
        ("mmap", "a", 4096, 8192, 0x7F0000000000),
    ]


def test_an_offset_that_was_not_seen_to_begin_is_unknown() -> None:
    (read,) = parsed('5 1.0 read(7</data/a>, ""..., 10) = 10 <0.000001>')
    assert read.offset == tracing.UNKNOWN


def test_a_child_and_a_copy_share_the_offset_and_a_thread_the_descriptors() -> None:
    text = """\
5 1.0 openat(AT_FDCWD</>, "/data/a", O_RDONLY) = 7</data/a> <0.000001>
5 2.0 fork() = 6 <0.000001>
6 3.0 read(7</data/a>, ""..., 10) = 10 <0.000001>
5 4.0 dup(7</data/a>) = 8</data/a> <0.000001>
5 5.0 clone3({flags=CLONE_VM|CLONE_THREAD, stack=NULL} => {parent_tid=[9]}, 88) = 9 <0.000001>
9 6.0 read(8</data/a>, ""..., 10) = 10 <0.000001>
6 7.0 close(7</data/a>) = 0 <0.000001>
5 8.0 read(7</data/a>, ""..., 10) = 10 <0.000001>
"""
    reads = [r for r in parsed(text) if r.call == "read"]
    assert [(r.pid, r.process, r.offset) for r in reads] == [(6, 6, 0), (9, 5, 10), (5, 5, 20)]


def test_a_number_taken_again_while_its_close_returns_begins_again() -> None:
    text = """\
5 1.0 openat(AT_FDCWD</>, "/data/a", O_RDONLY) = 7</data/a> <0.000001>
5 1.5 clone3({flags=CLONE_VM|CLONE_THREAD, stack=NULL} => {parent_tid=[9]}, 88) = 9 <0.000001>
5 2.0 read(7</data/a>, ""..., 10) = 10 <0.000001>
9 2.9 openat(AT_FDCWD</>, "/data/a", O_RDONLY <unfinished ...>
5 3.0 close(7</data/a> <unfinished ...>
9 3.1 <... openat resumed>) = 7</data/a> <0.200000>
5 3.3 <... close resumed>) = 0 <0.200000>
9 4.0 read(7</data/a>, ""..., 10) = 10 <0.000001>
"""
    assert [r.offset for r in parsed(text) if r.call == "read"] == [0, 0]


def test_added_latency_belongs_to_the_read_before_it_and_a_programs_own_sleep_does_not() -> None:
    text = """\
5 1.0 pread64(7</data/a>, ""..., 8, 0) = 8 <0.000001>
5 1.1 nanosleep({tv_sec=0, tv_nsec=400000000}, NULL) = 0 <0.400000>
5 2.0 pread64(7</data/a>, ""..., 8, 0) = 8 <0.000001>
5 2.1 clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, {tv_sec=3, tv_nsec=0}, NULL) = 0 <0.400000>
"""
    assert [round(r.duration, 6) for r in parsed(text)] == [0.5, 0.000001]


def test_writes_continue_where_the_file_stands_and_a_renaming_has_the_new_name() -> None:
    text = """\
5 1.0 openat(AT_FDCWD</>, "/data/a.tmp", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 7</data/a.tmp> <0.000001>
5 2.0 write(7</data/a.tmp>, ""..., 10) = 10 <0.000001>
5 3.0 writev(7</data/a.tmp>, [{iov_base=""..., iov_len=1}, {iov_base=""..., iov_len=5}], 2) = 6 <0.000001>
5 4.0 pwrite64(7</data/a.tmp>, ""..., 3, 100) = 3 <0.000001>
5 5.0 lseek(7</data/a.tmp>, 4, SEEK_SET) = 4 <0.000001>
5 6.0 write(7</data/a.tmp>, ""..., 2) = 2 <0.000001>
5 7.0 fsync(7</data/a.tmp>) = 0 <0.000001>
5 8.0 rename("/data/a.tmp", "/data/a") = 0 <0.000001>
"""
    assert brief(text)[1:] == [
        ("write", "a.tmp", 0, 10, 10),
        ("writev", "a.tmp", 10, 6, 6),
        ("pwrite64", "a.tmp", 100, 3, 3),
        ("lseek", "a.tmp", 4, 0, 4),
        ("write", "a.tmp", 4, 2, 2),
        ("fsync", "a.tmp", tracing.UNKNOWN, 0, 0),
        ("rename", "a", tracing.UNKNOWN, 0, 0),
    ]


def test_only_files_below_the_folder_count() -> None:
    text = """\
5 1.0 openat(AT_FDCWD</>, "/database/a", O_RDONLY) = 7</database/a> <0.000001>
5 2.0 read(7</database/a>, ""..., 10) = 10 <0.000001>
"""
    assert parsed(text) == []


@given(
    st.lists(st.one_of(st.tuples(st.just("read"), st.integers(0, 99)), st.tuples(st.just("lseek"), st.integers(0, 99))))
)
def test_reads_begin_where_the_last_call_left_the_file(calls: list[tuple[str, int]]) -> None:
    lines = ['5 1.0 openat(AT_FDCWD</>, "/data/a", O_RDONLY) = 7</data/a> <0.000001>']
    expected, place = [], 0
    for number, (name, amount) in enumerate(calls):
        time = f"{2 + number}.0"
        if name == "read":
            lines.append(f'5 {time} read(7</data/a>, ""..., {amount + 1}) = {amount} <0.000001>')
            expected.append(place)
            place += amount
        else:
            lines.append(f"5 {time} lseek(7</data/a>, {amount}, SEEK_SET) = {amount} <0.000001>")
            place = amount
    assert [r.offset for r in tracing.parse(lines, DATA) if r.call == "read"] == expected


@given(st.lists(st.text(max_size=80), max_size=5))
def test_lines_that_are_no_calls_are_passed_over(lines: list[str]) -> None:
    assert tracing.parse(lines, DATA) == []
