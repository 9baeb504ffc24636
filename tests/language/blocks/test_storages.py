"""Storages that a file describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern, compile_storage, describes_storage
from dliosim.language.diagnostics import PatternError
from dliosim.language.unparse import explain_storage
from dliosim.model import CallSizes, Job, Servers, StorageModel, Stripe

WHOLE = """dlio 1
param mds = 80_000 opens/s "opens of the metadata servers"
storage scratch "a Lustre of 16 servers" {
    servers    16 of 6.25 GB/s
    writes     5 GB/s
    client     7 GB/s
    stream     3 GB/s
    latency    400 us
    tail       pareto 2.1
    metadata   $mds
    stripe     1 MiB over 4 servers
    call time  20 us
    step time  730 us
    step tail  pareto 3
    measured   4 KiB to 1 MiB
    uncertain  latency 9 %, step time 0.5 %
}
"""


def compiled(place: Path, text: str, *given: tuple[str, str]) -> StorageModel:
    path = place / "scratch.dlio"
    path.write_text(text)
    return compile_storage(path, given).storage


def codes(place: Path, text: str) -> list[str]:
    with pytest.raises(PatternError) as error:
        compiled(place, text)
    return [found.code for found in error.value.diagnostics]


def test_every_setting_is_read(tmp_path: Path) -> None:
    assert compiled(tmp_path, WHOLE) == StorageModel(
        "scratch",
        Servers(16, 6.25e9),
        5e9,
        7e9,
        3e9,
        400e-6,
        2.1,
        80_000.0,
        Stripe(1 << 20, 4),
        20e-6,
        730e-6,
        3.0,
        CallSizes(4 << 10, 1 << 20),
        (("latency", 0.09), ("step time", 0.005)),
    )


def test_servers_are_enough(tmp_path: Path) -> None:
    one = compiled(tmp_path, "dlio 1\nstorage s {\n servers 2 of 1 GB/s\n tail off\n metadata off\n client off\n}\n")
    assert one == StorageModel("s", Servers(2, 1e9))
    assert one.file_servers == 1


def test_parameters_and_settings_are_overridden(tmp_path: Path) -> None:
    one = compiled(tmp_path, WHOLE, ("mds", "1_000 opens/s"), ("scratch.latency", "1 ms"), ("scratch.tail", "off"))
    assert (one.metadata, one.latency, one.tail) == (1000.0, 1e-3, None)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("servers 2 of 1 GB", "E111"),
        ("servers 0 of 1 GB/s", "E113"),
        ("servers 2 of 1 GB/s\n metadata 5 GB/s", "E111"),
        ("servers 2 of 1 GB/s\n latency 1 ms\n tail pareto 1", "E113"),
        ("servers 2 of 1 GB/s\n tail pareto 2", "E211"),
        ("servers 2 of 1 GB/s\n step tail pareto 2", "E211"),
        ("servers 2 of 1 GB/s\n step time 1 ms\n step tail pareto 1", "E113"),
        ("servers 2 of 1 GB/s\n stripe 1 MiB over 4 servers", "E113"),
        ("servers 2 of 1 GB/s\n uncertain servers 100 %", "E113"),
        ("servers 2 of 1 GB/s\n uncertain servers 9", "E111"),
        ("servers 2 of 1 GB/s\n uncertain latency 9 %", "E104"),
        ("servers 2 of 1 GB/s\n client off\n uncertain client 9 %", "E104"),
        ("servers 2 of 1 GB/s\n uncertain servers 9 %, servers 8 %", "E102"),
        ("client 1 GB/s", "E003"),
        ("servers 2 of 1 GB/s\n serves 2", "E001"),
    ],
)
def test_a_mistake_is_found_at_its_line(tmp_path: Path, line: str, code: str) -> None:
    assert codes(tmp_path, f"dlio 1\nstorage s {{\n {line}\n}}\n") == [code]


@pytest.mark.parametrize(
    ("phrase", "label"),
    [
        ("30 %", "expected `off` or a setting (servers, writes, client, "),
        ("latency 9 %, 20 %", "expected a setting (servers, writes, client, "),
        ("latency", "expected a quantity or a word"),
    ],
)
def test_what_may_be_uncertain_is_listed(tmp_path: Path, phrase: str, label: str) -> None:
    with pytest.raises(PatternError) as error:
        compiled(tmp_path, f"dlio 1\nstorage s {{\n servers 2 of 1 GB/s\n uncertain {phrase}\n}}\n")
    (found,) = error.value.diagnostics
    assert found.labels[0].text.startswith(label)
    assert found.help == ("it is written as `uncertain latency 9 %, tail 20 %`",)


def test_it_is_explained_as_a_file_that_describes_the_same(tmp_path: Path) -> None:
    given = [("scratch.latency", "1 ms")]
    path, again = tmp_path / "scratch.dlio", tmp_path / "again.dlio"
    path.write_text(WHOLE)
    again.write_text(explain_storage(path, given))
    assert describes_storage(path)
    assert "latency    1 ms " in again.read_text()
    assert compile_storage(again, []).storage == compile_storage(path, given).storage


def test_a_file_describes_one_storage(tmp_path: Path) -> None:
    block = "storage {} {{\n servers 1 of 1 GB/s\n}}\n"
    assert codes(tmp_path, "dlio 1\n" + block.format("a") + block.format("b")) == ["E003"]
    assert codes(tmp_path, "dlio 1\nparam n = 1\n") == ["E003"]


def test_a_storage_alone_is_no_pattern(tmp_path: Path) -> None:
    path = tmp_path / "scratch.dlio"
    path.write_text(WHOLE)
    with pytest.raises(PatternError) as error:
        compile_pattern(path, [], Job(4))
    assert [found.code for found in error.value.diagnostics] == ["E003"]
    assert "--storage FILE" in error.value.diagnostics[0].help[0]
