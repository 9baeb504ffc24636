"""Token data sets: samples are where they were planned, the index is Megatron's, and a damaged index is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import (
    build_framed,
    check_damage,
    check_framed,
    random_contents,
    sample_ranges,
    write_framed,
)
from dliosim.formats.megatron import CODES, Indexed
from dliosim.formats.protocols import ENCODED, Framed
from dliosim.formats.registry import bind
from dliosim.model import ELEMENTS, Chunk, Compression, Dataset, Shape
from tests.examples import examples
from tests.formats.datasets import VARYING, dataset, ints


class Megatron(NamedTuple):
    """Read both files by the published layout, as maps, without code of dliosim."""

    tokens: NDArray[np.generic]
    lengths: NDArray[np.int32]
    pointers: NDArray[np.int64]
    documents: NDArray[np.int64]

    def sequence(self, number: int) -> NDArray[np.generic]:
        begin = int(self.pointers[number]) // self.tokens.itemsize
        return self.tokens[begin : begin + int(self.lengths[number])]


def read_as_megatron(prefix: Path) -> Megatron:
    types = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 6: "f8", 7: "f4", 8: "u2"}
    raw = np.memmap(prefix.with_suffix(".idx"), mode="r", order="C")
    assert raw[:9].tobytes() == b"MMIDIDX\x00\x00"
    assert struct.unpack("<Q", raw[9:17].tobytes()) == (1,)
    kind = types[int(raw[17])]
    count, document_count = struct.unpack("<QQ", raw[18:34].tobytes())
    buffer = memoryview(raw)
    lengths = np.frombuffer(buffer, "<i4", count, 34)
    pointers = np.frombuffer(buffer, "<i8", count, 34 + lengths.nbytes)
    documents = np.frombuffer(buffer, "<i8", document_count, 34 + lengths.nbytes + pointers.nbytes)
    assert len(raw) == 34 + lengths.nbytes + pointers.nbytes + documents.nbytes
    assert documents[-1] == count
    return Megatron(np.memmap(prefix.with_suffix(".bin"), kind, mode="r"), lengths, pointers, documents)


def tokens(count: int, element: str = "uint16") -> Dataset:
    """Samples of `tokens` tokens, the shared one included."""
    return dataset("indexed", count * ELEMENTS[element], shape=Shape((count,), element))


def test_is_a_framed_format() -> None:
    assert isinstance(bind(tokens(3)), Framed)
    assert tokens(3).file_name(0) == "000000000.bin"


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("element", list(CODES))
@pytest.mark.parametrize("sample", [2, 3, 129])
def test_samples_are_where_they_were_planned(count: int, element: str, sample: int, tmp_path: Path) -> None:
    form = tokens(sample, element)
    assert form.constant_size is not None
    check_framed(Indexed(form), np.full(count, form.constant_size), tmp_path / "0.bin")


@settings(max_examples=examples(50))
@given(size=st.integers(4, 20_000), count=st.integers(1, 9))
def test_without_a_shape_even_sizes_are_of_uint16_and_odd_ones_of_uint8(
    size: int, count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tokens") / "0.bin"
    check_framed(Indexed(dataset("indexed", size)), np.full(count, size), path)
    assert read_as_megatron(path).tokens.dtype == ("u1" if size % 2 else "u2")


@settings(max_examples=examples(50))
@given(sample=st.integers(2, 3000), count=st.integers(1, 50), first=st.integers(0, 1000))
def test_megatron_finds_every_sample_across_sequences(
    sample: int, count: int, first: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tokens") / "0.bin"
    form, sequence = tokens(sample), sample - 1
    write_framed(Indexed(form), path, np.full(count, 2 * sample), first)
    read = read_as_megatron(path)
    stream = np.concatenate([read.sequence(number) for number in range(len(read.lengths))])
    assert np.array_equal(stream, read.tokens), "sequences hold all tokens, in order"
    assert (len(stream) - 1) // sequence == count, "as many samples as Megatron takes of it"
    assert np.array_equal(read.documents, np.arange(len(read.lengths) + 1))
    assert (read.lengths[:-1] >= max(1, sequence // 2)).all()
    assert (read.lengths <= max(1, sequence + sequence // 2)).all()
    for row in range(count):
        begin = row * sequence
        own = stream[begin : begin + sequence]
        assert own.tobytes() == random_contents(form, first + row, 2 * sequence).tobytes()
        following = random_contents(form, first + row + 1, 2 * sequence)[:2].tobytes() if row + 1 < count else b"\0\0"
        assert stream[begin + sequence].tobytes() == following


def test_sequences_do_not_coincide_with_samples_and_differ_from_file_to_file() -> None:
    form, sizes = tokens(1025), np.full(100, 2050)
    one, other = (b"".join(Indexed(form).write_sidecar("idx", first, sizes)) for first in (0, 100))
    assert one != other
    lengths = np.frombuffer(one, "<i4", 90, 34)
    assert (np.cumsum(lengths) % 1024 != 0).mean() > 0.9
    assert lengths.min() < 600
    assert lengths.max() > 1400


def test_long_indexes_come_in_bounded_pieces(tmp_path: Path) -> None:
    count = 300_000
    pieces = list(Indexed(tokens(3)).write_sidecar("idx", 0, np.full(count, 6)))
    assert max(len(piece) for piece in pieces) <= 65_536 * 8
    path = tmp_path / "0.bin"
    path.with_suffix(".idx").write_bytes(b"".join(pieces))
    with path.open("wb") as stream:
        stream.truncate((2 * count + 1) * 2)
    read = read_as_megatron(path)
    assert int(read.lengths.sum()) == 2 * count + 1
    assert np.array_equal(np.cumsum(read.lengths * 2) - read.lengths * 2, read.pointers)
    index = Indexed(tokens(3)).index(path)
    assert index.samples == count
    assert index.touched == path.with_suffix(".idx").stat().st_size


def test_where_sizes_vary_a_sequence_is_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "0.bin"
    write_framed(Indexed(tokens(101)), path, np.full(9, 202))
    read = read_as_megatron(path)
    form = dataset("indexed", VARYING)
    index = Indexed(form).index(path)
    assert index.samples == len(read.lengths)
    assert index.columns[0].row_bytes == ENCODED
    whole = path.read_bytes()
    for row in range(index.samples):
        [(offset, length)] = sample_ranges(index, row)
        found = Indexed(form).decode(index.columns[0], memoryview(whole)[offset : offset + length])
        assert found is not None
        assert found.tobytes() == read.sequence(row).tobytes()


def write_index(path: Path, **changes: object) -> None:
    """Two sequences of 3 and 4 int32 in 28 bytes, and their index, but for what `changes` says."""
    usual: dict[str, object] = {
        "magic": b"MMIDIDX\0\0", "version": 1, "code": 4, "count": 2, "documents": 3, "lengths": [3, 4],
        "pointers": [0, 12], "indices": [0, 1, 2], "end": b"", "bin": bytes(28),
    }  # fmt: skip
    value = {**usual, **changes}
    head = struct.pack("<9sQBQQ", *(value[name] for name in ("magic", "version", "code", "count", "documents")))
    arrays = [np.array(value[name], kind).tobytes() for name, kind in
              (("lengths", "<i4"), ("pointers", "<i8"), ("indices", "<i8"))]  # fmt: skip
    path.write_bytes(value["bin"])  # type: ignore[arg-type]
    path.with_suffix(".idx").write_bytes(head + b"".join(arrays) + value["end"])  # type: ignore[operator]


def test_what_others_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "0.bin"
    write_index(path)
    index = Indexed(tokens(3, "int32")).index(path)
    assert (index.columns[0].offset.tolist(), index.columns[0].length.tolist()) == ([0, 8, 16], [12, 12, 12])
    without_shape = Indexed(dataset("indexed", 12)).index(path)  # the index knows the type better
    assert without_shape.columns[0].unit_bytes == 8
    write_index(path, end=b"\0\1", bin=bytes(40))  # modes, and bytes that no sequence has
    assert Indexed(tokens(3, "int32")).index(path).samples == 3
    write_index(path, pointers=[16, 0])
    assert Indexed(dataset("indexed", VARYING)).index(path).columns[0].offset.tolist() == [16, 0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"magic": b"MMIDIDX\0\1"}, "does not begin"),
        ({"version": 2}, "version 2"),
        ({"code": 9}, "type 9"),
        ({"code": 8}, "tokens have 2 bytes"),
        ({"count": 3}, "3 sequences"),
        ({"count": 2**63}, "sequences"),
        ({"documents": 2**64 - 1}, "document"),
        ({"end": b"\0"}, "has 83 bytes"),
        ({"lengths": [3, 5]}, "sequence 1, 20 bytes at 12"),
        ({"lengths": [3, -4]}, "-4 tokens"),
        ({"pointers": [-4, 12]}, "sequence 0, 12 bytes at -4"),
        ({"pointers": [0, 2**63 - 8]}, "sequence 1"),
        ({"pointers": [0, 8]}, "does not follow"),
        ({"indices": [0, 3, 2]}, "documents"),
        ({"indices": [0, 1, 3]}, "documents"),
        ({"bin": bytes(27)}, "sequence 1"),
    ],
)
def test_an_index_that_is_not_of_this_file_is_refused(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    path = tmp_path / "0.bin"
    write_index(path, **changes)
    with pytest.raises(ExecutionError, match=said) as raised:
        Indexed(tokens(3, "int32")).index(path)
    assert raised.value.code == "R401"
    assert str(path.with_suffix(".idx")) in raised.value.message


def test_a_size_that_is_no_two_tokens_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.bin"
    write_index(path)
    for size in (4, 10):
        with pytest.raises(ExecutionError, match=f"samples of {size} bytes"):
            Indexed(dataset("indexed", size)).index(path)


def test_a_missing_index_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "0.bin").write_bytes(bytes(10))
    with pytest.raises(FileNotFoundError):
        Indexed(tokens(3)).index(tmp_path / "0.bin")


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("sample", [3, 2049])
def test_a_cut_file_or_index_is_refused(sample: int, count: int, tmp_path: Path) -> None:
    path, form = tmp_path / "0.bin", tokens(sample)
    write_framed(Indexed(form), path, np.full(count, 2 * sample))
    check_damage(Indexed(form), path)
    sidecar = path.with_suffix(".idx")
    whole = sidecar.read_bytes()
    for cut in range(len(whole)):
        sidecar.write_bytes(whole[:cut])
        with pytest.raises(ExecutionError, match="R401"):
            Indexed(form).index(path)


@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), min_size=1, max_size=5))
def test_an_index_with_flipped_bits_is_refused_or_points_inside(
    flips: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Any bytes are tokens: the contents have no checksum that a decoder could look at.
    path, form = tmp_path_factory.mktemp("tokens") / "0.bin", tokens(65)
    write_framed(Indexed(form), path, np.full(7, 130))
    sidecar = path.with_suffix(".idx")
    whole = bytearray(sidecar.read_bytes())
    for place, bit in flips:
        whole[place % len(whole)] ^= 1 << bit
    sidecar.write_bytes(whole)
    try:
        index = Indexed(form).index(path)
    except ExecutionError as error:
        assert error.code == "R401"
        return
    column = index.columns[0]
    assert (column.offset >= 0).all()
    assert (column.offset + column.length <= index.size).all()


def test_a_sample_of_another_length_is_refused() -> None:
    with pytest.raises(ExecutionError, match="5 bytes, and not 6"):
        Indexed(tokens(3)).decode(None, memoryview(bytes(5)))


@pytest.mark.parametrize(
    ("setting", "form"),
    [
        ("size", dataset("indexed", VARYING)), ("size", dataset("indexed", 2)), ("size", dataset("indexed", 1)),
        ("size", tokens(1)), ("shape", tokens(3, "uint32")), ("shape", tokens(3, "float16")),
        ("header", dataset("indexed", header=8)), ("align", dataset("indexed", align=512)),
        ("chunk", dataset("indexed", chunk=Chunk(4, "samples"))), ("parts", dataset("indexed", parts=2)),
        ("compress", dataset("indexed", compress=Compression("gzip", 1))),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_held_are_named(setting: str, form: Dataset) -> None:
    refused = Indexed(form).refuse()
    assert refused is not None
    assert refused[0] == setting


def test_what_can_be_held_is_not_refused() -> None:
    for form in (tokens(2), tokens(2, "uint8"), dataset("indexed", 3), dataset("indexed", 4)):
        assert Indexed(form).refuse() is None
        assert form.constant_size is not None
        assert len(build_framed(Indexed(form), ints(form.constant_size))) == form.constant_size
