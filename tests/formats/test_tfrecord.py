"""TFRecords: records are where they were planned, other readers read them, and damage is found."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import build_framed, check_damage, check_framed, random_contents, write_framed
from dliosim.formats.protocols import CLASSES, Framed, Ints
from dliosim.formats.registry import bind
from dliosim.formats.tfrecord import TfRecord, encode_varints
from dliosim.model import Chunk, Compression
from tests.examples import examples
from tests.formats.datasets import VARYING, dataset, ints
from tests.formats.messages import example_of, field, of_bytes

STEPS = [1 << 7, 1 << 14, 1 << 21]
#: Around where one of the lengths of an Example takes a byte more; contents are up to 100 bytes shorter than these.
SIZES = st.one_of(st.integers(1, 300), *[st.integers(step - 80, step + 3) for step in STEPS[:2]])


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def test_is_a_framed_format() -> None:
    assert isinstance(bind(dataset("tfrecord")), Framed)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("size", [1, 31, 127, 128, 4097, 16383, 16384])
def test_samples_of_one_size_are_where_they_were_planned(count: int, size: int, tmp_path: Path) -> None:
    check_framed(TfRecord(dataset("tfrecord", size)), np.full(count, size), tmp_path / "0.tfrecord")


@settings(max_examples=examples(60))
@given(sizes=st.lists(SIZES, min_size=1, max_size=9))
@example(sizes=[127, 128, 16383, 16384, 1])
def test_samples_of_any_sizes_are_where_they_were_planned(
    sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("records") / "0.tfrecord"
    check_framed(TfRecord(dataset("tfrecord", VARYING)), ints(*sizes), path)
    indexed = TfRecord(dataset("tfrecord", VARYING)).index(path)
    path.with_suffix(".index").unlink()
    scanned = TfRecord(dataset("tfrecord", VARYING)).index(path)
    assert np.array_equal(indexed.columns[0].offset, scanned.columns[0].offset)
    assert np.array_equal(indexed.columns[0].length, scanned.columns[0].length)


@given(st.lists(st.one_of(st.integers(1, 1 << 62), *[st.integers(s - 60, s + 2) for s in STEPS]), min_size=1))
def test_closed_forms_of_sizes_are_those_of_an_encoder(sizes: list[int]) -> None:
    given_sizes = ints(*[min(size, 1 << 22) for size in sizes])
    stride = TfRecord(dataset("tfrecord")).stride(given_sizes)
    at, length = TfRecord(dataset("tfrecord")).content(given_sizes)
    for row, size in enumerate(given_sizes.tolist()):
        # Lengths of nested messages, by adding up what an encoder puts before each.
        inside = size
        for tags in (1, 1, 1 + len("image/encoded") + 2, 1):
            inside += tags + len(encode_varints(ints(inside))[0])
        inside += 29
        inside += 1 + len(encode_varints(ints(inside))[0])
        assert stride[row] == inside + 16
        assert (at[row], length[row]) == (12 + inside - size, size)


def test_records_are_framed_as_tensorflow_frames_them() -> None:
    whole = build_framed(TfRecord(dataset("tfrecord")), ints(5), first=1234)
    label = field(3, field(1, bytes([234 % 128 | 128, 234 >> 7])))
    data = random_contents(dataset("tfrecord"), 1234, 5).tobytes()
    features = {"image/class/label": label, "image/encoded": of_bytes(data)}
    assert whole == record(example_of(**features))


def test_framing_writes_all_but_contents_whatever_was_there() -> None:
    sizes, starts = ints(3, 200, 17000), ints(0, 0, 0)
    stride = TfRecord(dataset("tfrecord")).stride(sizes)
    starts = np.cumsum(stride) - stride
    at, length = TfRecord(dataset("tfrecord")).content(sizes)
    made = []
    for before in (0, 255):
        out = np.full(int(stride.sum()), before, np.uint8)
        for begin, size in zip((starts + at).tolist(), length.tolist(), strict=True):
            out[begin : begin + size] = 9
        TfRecord(dataset("tfrecord")).frame(np.arange(3), sizes, starts, out.data)
        made.append(out)
    assert np.array_equal(made[0], made[1])


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("size", [77, 9000])
def test_a_cut_file_is_refused_or_read_as_far_as_it_goes(size: int, count: int, sidecar: bool, tmp_path: Path) -> None:
    path = tmp_path / "0.tfrecord"
    write_framed(TfRecord(dataset("tfrecord", size)), path, np.full(count, size))
    if not sidecar:
        path.with_suffix(".index").unlink()
    check_damage(TfRecord(dataset("tfrecord", size)), path)


@settings(max_examples=examples(200))
@given(st.data())
def test_every_flipped_bit_is_found(data: st.DataObject) -> None:
    whole = bytearray(build_framed(TfRecord(dataset("tfrecord")), ints(data.draw(SIZES))))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ExecutionError, match="R401"):
        TfRecord(dataset("tfrecord")).decode(None, memoryview(whole))


@given(st.integers(0, 200))
def test_a_cut_record_is_refused(kept: int) -> None:
    whole = build_framed(TfRecord(dataset("tfrecord")), ints(130))
    with pytest.raises(ExecutionError, match="R401"):
        TfRecord(dataset("tfrecord")).decode(None, memoryview(whole)[:kept])


def test_a_header_with_a_wrong_crc_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "0.tfrecord"
    write_framed(TfRecord(dataset("tfrecord", 100)), path, np.full(3, 100))
    path.with_suffix(".index").unlink()
    whole = bytearray(path.read_bytes())
    each = len(whole) // 3
    whole[each + 1] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ExecutionError, match=f"{path}: record 1, at {each}, .*CRC"):
        TfRecord(dataset("tfrecord", 100)).index(path)


def test_a_length_that_points_outside_is_refused_without_being_believed(tmp_path: Path) -> None:
    path = tmp_path / "0.tfrecord"
    length = struct.pack("<Q", 1 << 62)
    path.write_bytes(record(b"good") + length + struct.pack("<I", masked(length)) + b"short")
    with pytest.raises(ExecutionError, match=r"record 1, at 20, .*outside"):
        TfRecord(dataset("tfrecord")).index(path)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"0 90\n", b"0 108\n107 108\n", b"0 108\n108 109\n", b"0 108\n108 108", b"0 108\n\n108 108\n",
        b"0 108 108 108\n", b"0 9223372036854775807\n9223372036854775807 1\n", b"-0 108\n108 108\n", b"0 1e2\n",
        b"\xff\n",
        b"0 108\n108 " + b"9" * 5000, b"5 108\n113 103\n", b"0 15\n15 201\n",
    ],
)  # fmt: skip
def test_a_sidecar_that_is_not_of_this_file_is_passed_over(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "0.tfrecord"
    write_framed(TfRecord(dataset("tfrecord", 100)), path, ints(38, 38))
    assert path.stat().st_size == 216
    path.with_suffix(".index").write_bytes(text)
    index = TfRecord(dataset("tfrecord")).index(path)
    assert index.columns[0].offset.tolist() == [0, 108]
    assert index.touched == 216 + len(text)


def test_touched_is_the_sidecar_or_little_more_than_the_headers(tmp_path: Path) -> None:
    path = tmp_path / "0.tfrecord"
    write_framed(TfRecord(dataset("tfrecord", 100_000)), path, np.full(20, 100_000))
    sidecar = path.with_suffix(".index")
    assert TfRecord(dataset("tfrecord")).index(path).touched == sidecar.stat().st_size
    sidecar.unlink()
    assert TfRecord(dataset("tfrecord")).index(path).touched == 4096 + 19 * 12


def test_small_records_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0.tfrecord"
    path.write_bytes(record(b"x" * 50) * 20_000)
    calls = []
    real = __import__("os").pread
    monkeypatch.setattr("os.pread", lambda *given: calls.append(given) or real(*given))
    assert TfRecord(dataset("tfrecord")).index(path).samples == 20_000
    assert len(calls) < 20
    assert max(count for _, count, _ in calls) <= 256 * 1024


def test_long_sidecars_come_in_pieces_and_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "0.tfrecord"
    sizes: Ints = np.arange(1, 40_001) % 200 + 1
    pieces = list(TfRecord(dataset("tfrecord")).write_sidecar("index", 0, sizes))
    assert len(pieces) > 1
    stride = TfRecord(dataset("tfrecord")).stride(sizes)
    with path.open("wb") as stream:
        stream.truncate(int(stride.sum()))
    path.with_suffix(".index").write_bytes(b"".join(pieces))
    index = TfRecord(dataset("tfrecord")).index(path)
    assert np.array_equal(index.columns[0].length, stride)
    assert np.array_equal(index.columns[0].offset, np.cumsum(stride) - stride)


def test_records_of_others_are_decoded_by_name_or_by_the_first_bytes() -> None:
    floats, numbers = field(2, field(1, b"\0\0\0\0")), field(3, field(1, b"\x05"))
    data = example_of(a=floats, b=numbers, c=of_bytes(b"one", b"two"), d=of_bytes(b"three"), e=of_bytes())
    whole = memoryview(record(data))

    def decoded(*names: str) -> bytes:
        found = TfRecord(dataset("tfrecord", names=names)).decode(None, whole)
        assert found is not None
        return found.tobytes()

    assert decoded() == b"one"
    assert decoded("d") == b"three"
    assert decoded("d", "c") == b"threeone"
    with pytest.raises(ExecutionError, match="no feature `a` of bytes; of bytes it has `c`, `d`"):
        decoded("a")
    nothing = TfRecord(dataset("tfrecord")).decode(None, memoryview(record(example_of(a=floats))))
    assert nothing is None


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\x05abc", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80" * 30, b"\x0b", b"\x0d\0"]
)
def test_an_example_that_points_outside_itself_is_refused(data: bytes) -> None:
    with pytest.raises(ExecutionError, match="R401"):
        TfRecord(dataset("tfrecord")).decode(None, memoryview(record(data)))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("header", 8), ("align", 4096), ("chunk", Chunk(4, "samples")), ("compress", Compression("gzip", 1)),
        ("parts", 2), ("size", 2**31 - 20),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_held_are_named(setting: str, value: object) -> None:
    refused = TfRecord(dataset("tfrecord", **{setting: value})).refuse()  # type: ignore[arg-type]
    assert refused is not None
    assert refused[0] == setting


def test_what_can_be_held_is_not_refused() -> None:
    assert TfRecord(dataset("tfrecord", 2**31 - 200)).refuse() is None
    assert TfRecord(dataset("tfrecord", VARYING)).refuse() is None


def test_too_large_a_sample_is_refused_before_anything_is_written() -> None:
    with pytest.raises(ExecutionError, match="sample 3 of"):
        TfRecord(dataset("tfrecord", VARYING)).frame(ints(2, 3), ints(5, 2**31), ints(0, 90), memoryview(bytearray(9)))


MIXED = ints(1, 40, 41, 127, 128, 5000, 16383, 16384, 70000)


def test_the_package_tfrecord_reads_every_sample(tmp_path: Path) -> None:
    reader = pytest.importorskip("tfrecord.reader")
    tools = pytest.importorskip("tfrecord.tools.tfrecord2idx")
    path, form = tmp_path / "0.tfrecord", dataset("tfrecord", VARYING)
    write_framed(TfRecord(form), path, MIXED, first=995)
    found = list(reader.tfrecord_loader(str(path), None, {"image/encoded": "byte", "image/class/label": "int"}))
    assert len(found) == len(MIXED)
    for row, sample in enumerate(found):
        assert bytes(sample["image/encoded"]) == random_contents(form, 995 + row, int(MIXED[row])).tobytes()
        assert int(sample["image/class/label"][0]) == (995 + row) % CLASSES
    tools.create_index(str(path), str(tmp_path / "theirs"))
    assert (tmp_path / "theirs").read_bytes() == path.with_suffix(".index").read_bytes()


READ_BY_TENSORFLOW = """
import sys
from pathlib import Path
import tensorflow as tf

features = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
for row, record in enumerate(tf.data.TFRecordDataset(sys.argv[1])):
    fast = tf.io.parse_single_example(record, features)
    slow = tf.train.Example.FromString(record.numpy()).features.feature["image/class/label"].int64_list.value[0]
    assert int(fast["image/class/label"]) == slow
    Path(sys.argv[2], f"{row}.{slow}").write_bytes(fast["image/encoded"].numpy())
"""


def test_tensorflow_reads_every_sample(tmp_path: Path) -> None:
    if find_spec("tensorflow") is None:
        pytest.skip("needs tensorflow-cpu")
    path, form, out = tmp_path / "0.tfrecord", dataset("tfrecord", VARYING), tmp_path / "out"
    write_framed(TfRecord(form), path, MIXED, first=995)
    out.mkdir()
    # A process of its own: tensorflow and the package tfrecord both claim the name tensorflow.Example.
    subprocess.run([sys.executable, "-c", READ_BY_TENSORFLOW, str(path), str(out)], check=True, capture_output=True)
    expected = {
        f"{row}.{(995 + row) % CLASSES}": random_contents(form, 995 + row, size).tobytes()
        for row, size in enumerate(MIXED.tolist())
    }
    assert {found.name: found.read_bytes() for found in out.iterdir()} == expected


def test_records_in_a_gzip_file_are_said_to_be_that(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(gzip.compress(bytes(1000)))
    with pytest.raises(ExecutionError, match="begins as gzip does"):
        TfRecord(dataset("tfrecord")).index(tmp_path / "x.tfrecord")
