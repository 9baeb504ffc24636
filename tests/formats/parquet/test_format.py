from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import check_damage, check_resolved, random_contents, sample_ranges, write_resolved
from dliosim.formats.parquet.format import ROW_GROUP, Parquet
from dliosim.formats.protocols import Bytes, EncodeTime
from dliosim.model import Chunk, Columns, Compression, Dataset, Distribution, Layout, Shape, constant
from tests.examples import examples

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def dataset(size: int = 100, **changed: object) -> Dataset:
    described = {"name": "d", "seed": 3, "samples": 10, "size": constant(size), "layout": Layout("files", 2)}
    return Dataset(**{**described, "path": "d", **changed})  # type: ignore[arg-type]


WAYS = {
    "one column": dataset(),
    "a byte": dataset(1),
    "parts": dataset(99, parts=3),
    "chunks": dataset(chunk=Chunk(4, "samples")),
    "chunks in bytes": dataset(chunk=Chunk(450, "bytes")),
    "chunks below a sample": dataset(chunk=Chunk(1, "bytes")),
    "gzip": dataset(compress=Compression("gzip", 6)),
    "snappy": dataset(compress=Compression("snappy"), parts=2),
    "zstd": dataset(compress=Compression("zstd", 3), chunk=Chunk(3, "samples")),
    "features": dataset(32, parts=8, shape=Shape((1,), "float32")),
    "lists": dataset(96, parts=2, shape=Shape((2, 3), "int64"), chunk=Chunk(5, "samples")),
    "halves": dataset(24, shape=Shape((12,), "float16")),
    "pixels": dataset(147, shape=Shape((7, 7, 3), "uint8")),
    "unsigned": dataset(32, shape=Shape((8,), "uint32")),
    "table": dataset(31, parts=4, columns=(Columns(1, "float32"), Columns(2, "int64"), Columns(1, "uint8", 11))),
    "table of lists": dataset(
        60, parts=3, columns=(Columns(2, "float32", 7), Columns(1, "int32")), chunk=Chunk(3, "samples")
    ),
    "large": dataset(3_000_001, chunk=Chunk(2, "samples")),
}


def rows_of(table: pa.Table) -> list[bytes]:
    """The bytes of each row, by pyarrow's own conversion to numpy."""
    columns = []
    for column in table.columns:
        array = column.combine_chunks()
        if pa.types.is_fixed_size_list(array.type):
            values = array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), -1)
            columns.append([value.tobytes() for value in values])
        elif pa.types.is_fixed_size_binary(array.type):
            columns.append(array.to_pylist())
        else:
            columns.append([value.tobytes() for value in array.to_numpy(zero_copy_only=False)])
    return [b"".join(parts) for parts in zip(*columns, strict=True)]


@pytest.mark.parametrize("count", [1, 4, 5, 11])
@pytest.mark.parametrize("way", WAYS)
def test_pyarrow_reads_every_row_as_it_was_given(way: str, count: int, tmp_path: Path) -> None:
    described = WAYS[way]
    path = tmp_path / "a.parquet"
    assert Parquet(described).refuse() is None
    check_resolved(Parquet(described), count, path)
    size = described.constant_size
    assert size is not None
    assert rows_of(pq.read_table(path)) == [random_contents(described, row, size).tobytes() for row in range(count)]
    file = pq.ParquetFile(path)
    assert file.schema_arrow.names == [f"column_{part}" for part in range(described.parts)]
    groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    most = Parquet(described).batch
    assert groups == [most] * (count // most) + [count % most] * (count % most > 0)


def test_shapes_are_stored_as_readers_want_them() -> None:
    from dliosim.formats.parquet.format import table_schema

    def kind(way: str) -> str:
        return str(table_schema(WAYS[way])[0].type)

    assert kind("parts") == "fixed_size_binary[33]"
    assert kind("features") == "float"
    assert kind("lists").startswith("fixed_size_list<element: int64 not null>[6]")
    assert kind("pixels") == "fixed_size_binary[147]"  # as integers of 8 bits they would take 32 in the file


@pytest.mark.parametrize("way", WAYS)
def test_the_index_gives_the_column_chunks(way: str, tmp_path: Path) -> None:
    described = WAYS[way]
    path = tmp_path / "a.parquet"
    write_resolved(Parquet(described), path, 11)
    index = Parquet(described).index(path)
    metadata = pq.read_metadata(path)
    assert len(index.columns) == metadata.num_columns
    end = index.size - index.touched
    units = sorted(
        (int(offset), int(length))
        for column in index.columns
        for offset, length in zip(column.offset, column.length, strict=True)
    )
    assert units[0][0] == 4
    gaps = [after - sum(unit) for unit, after in zip(units, [*(offset for offset, _ in units[1:]), end], strict=True)]
    assert all(0 <= gap < 200 for gap in gaps)  # pyarrow 15 repeats what the footer says after each chunk
    assert index.touched == metadata.serialized_size + 8
    assert index.columns[0].first is None
    assert index.columns[0].samples == min(Parquet(described).batch, 11)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, 11, 500])
def test_a_forecast_says_about_what_the_index_of_the_file_will_say(way: str, count: int, tmp_path: Path) -> None:
    described = WAYS[way]
    if way == "large":
        count = min(count, 11)
    path = tmp_path / "a.parquet"
    write_resolved(Parquet(described), path, count)
    index, forecast = Parquet(described).index(path), Parquet(described).forecast(count)
    assert forecast.samples == index.samples
    overhead = 400 + 200 * sum(len(column.offset) for column in index.columns)
    assert abs(forecast.size - index.size) <= 0.05 * index.size + overhead
    assert len(forecast.columns) == len(index.columns)
    for said, found in zip(forecast.columns, index.columns, strict=True):
        assert len(said.offset) == len(found.offset)
        assert np.abs(said.length - found.length).max() <= 0.1 * found.length.max() + 60
        assert len(found.offset) == 1 or said.samples == found.samples
    last = max(int((column.offset + column.length).max()) for column in forecast.columns)
    assert last == forecast.size - forecast.touched


def test_a_forecast_counts_on_what_a_codec_can_do() -> None:
    described = dataset(1 << 20, compressible=4.0)
    plain, compressed = [
        Parquet(one).forecast(100)
        for one in (described, dataset(1 << 20, compressible=4.0, compress=Compression("snappy")))
    ]
    assert plain.size >= 100 << 20
    assert compressed.size == pytest.approx((100 << 20) / 4, rel=0.01)
    assert compressed.columns[0].unit_bytes >= ROW_GROUP


def test_row_groups_are_bounded_where_nothing_else_is_said() -> None:
    assert Parquet(dataset(1000)).batch == ROW_GROUP // 1000
    assert Parquet(dataset(1 << 28)).batch == 1


@settings(max_examples=examples(30))
@given(sizes=st.lists(st.integers(0, 9), max_size=12), most=st.integers(1, 7))
def test_batches_of_any_size_give_the_same_file(
    sizes: list[int], most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    described = dataset(10, chunk=Chunk(most, "samples"))
    count = sum(sizes)
    all_rows = np.arange(count * 10, dtype=np.uint8).reshape(count, 10)
    directory = tmp_path_factory.mktemp("batches")

    def batches() -> Iterator[Bytes]:
        used, done = np.empty((9, 10), np.uint8), 0  # the same buffer again and again
        for size in sizes:
            used[:size] = all_rows[done : done + size]
            done += size
            yield used[:size]

    Parquet(described).build(directory / "a", count, batches(), EncodeTime())
    Parquet(described).build(directory / "b", count, iter([all_rows]), EncodeTime())
    assert (directory / "a").read_bytes() == (directory / "b").read_bytes()
    assert rows_of(pq.read_table(directory / "a")) == [row.tobytes() for row in all_rows]


def test_values_larger_than_a_page_have_a_page_each(tmp_path: Path) -> None:
    described = dataset(2 << 20)
    write_resolved(Parquet(described), tmp_path / "a", 6)
    (column,) = Parquet(described).index(tmp_path / "a").columns
    assert column.length[0] - 6 * (2 << 20) > 5 * 20


class _Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_encoding_is_timed_without_contents_and_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, real = _Clock(), pq.ParquetWriter.write_table
    monkeypatch.setattr("dliosim.formats.parquet.format.perf_counter_ns", clock)

    def write_table(self: object, table: object, **options: int) -> None:
        clock.now += 7
        real(self, table, **options)

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", write_table)

    class Slow:
        def __init__(self, file: object) -> None:
            self.file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

        def write(self, data: object) -> int:
            clock.now += 1000
            return self.file.write(data)  # type: ignore[attr-defined, no-any-return]

    from dliosim.formats.parquet import format

    sink = format._Sink
    monkeypatch.setattr(format, "_Sink", lambda file: sink(Slow(file)))  # type: ignore[arg-type]

    def batches() -> Iterator[Bytes]:
        for _ in range(3):
            clock.now += 50
            yield np.zeros((4, 100), np.uint8)

    encoding = EncodeTime()
    Parquet(WAYS["chunks"]).build(tmp_path / "a", 12, batches(), encoding)
    assert encoding.encode_ns == 3 * 7


def test_a_full_file_system_is_said_as_the_call_says_it() -> None:
    with pytest.raises(OSError) as error:
        Parquet(dataset(1 << 20)).build(Path("/dev/full"), 4, iter([np.zeros((4, 1 << 20), np.uint8)]), EncodeTime())
    assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("described", "setting"),
    [
        (dataset(header=8), "header"),
        (dataset(align=512), "align"),
        (dataset(compress=Compression("lzf")), "compress"),
        (dataset(parts=3), "parts"),
        (dataset((1 << 30) + 1), "size"),
        (dataset(1 << 20, samples=5000, chunk=Chunk(4097, "samples")), "chunk"),
        (dataset(names=("column_1",)), "names"),
        (dataset(samples=1 << 40, chunk=Chunk(1, "samples")), "chunk"),
    ],
)
def test_what_a_parquet_file_cannot_hold_is_refused(described: Dataset, setting: str) -> None:
    refused = Parquet(described).refuse()
    assert refused is not None
    assert refused[0] == setting


def test_a_row_group_may_be_said_larger_than_all_samples() -> None:
    assert Parquet(dataset(1 << 20, samples=100, chunk=Chunk(1 << 40, "samples"))).refuse() is None


def test_sizes_that_vary_are_refused() -> None:
    varied = Dataset("d", 1, 10, Distribution("normal", (100, 10)), Layout("files", 1), "d")
    refused = Parquet(varied).refuse()
    assert refused is not None
    assert refused[0] == "size"


def test_columns_of_its_own_can_be_chosen(tmp_path: Path) -> None:
    described = dataset(99, parts=3, names=("column_2", "column_0"))
    assert Parquet(described).refuse() is None
    write_resolved(Parquet(described), tmp_path / "a", 5)
    index, forecast = Parquet(described).index(tmp_path / "a"), Parquet(described).forecast(5)
    metadata = pq.read_metadata(tmp_path / "a").row_group(0)
    assert [int(column.offset[0]) for column in index.columns] == [
        metadata.column(leaf).data_page_offset for leaf in (0, 2)
    ]
    assert [int(column.offset[0]) for column in forecast.columns] == [4, pytest.approx(4 + 2 * 190, abs=60)]


def test_pyarrow_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Parquet(dataset()).needs() is None
    monkeypatch.setattr("dliosim.formats.parquet.format.find_spec", lambda name: None)
    assert Parquet(dataset()).needs() == ("pyarrow", "parquet")


# ---- files by others ----------------------------------------------------------------------------------------------

SOURCE = dataset(source="*.parquet")


def images(path: Path, rows: list[int], **options: object) -> None:
    """A file as those of image data sets: a struct of bytes and path, and a label; groups of different sizes."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", kind), ("label", pa.int64())])
    with pq.ParquetWriter(path, schema, **options) as writer:
        for count in rows:
            batch = [{"bytes": bytes([row]) * (100 + row), "path": f"{row}.jpg"} for row in range(count)]
            labels = [row % 3 for row in range(count)]
            writer.write_table(pa.table([pa.array(batch, kind), labels], schema=schema))


def test_row_groups_of_different_sizes_are_found_by_their_first_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    images(path, [3, 5, 2, 5])
    index = Parquet(SOURCE).index(path)
    assert (index.samples, len(index.columns)) == (15, 3)
    metadata = pq.read_metadata(path)
    for leaf, column in enumerate(index.columns):
        assert column.first is not None
        assert (column.samples, column.first.tolist()) == (5, [0, 3, 8, 10])
        for group in range(4):
            chunk = metadata.row_group(group).column(leaf)
            assert chunk.has_dictionary_page
            assert column.offset[group] == chunk.dictionary_page_offset
            assert column.length[group] == chunk.total_compressed_size
        assert column.filters[0].name == "snappy"
    assert sample_ranges(index, 9) == [(int(column.offset[2]), int(column.length[2])) for column in index.columns]


@pytest.mark.parametrize(
    ("names", "leaves"),
    [(("image",), [0, 1]), (("image.path",), [1]), (("label", "image.bytes"), [0, 2]), (("label", "label"), [2])],
)
def test_names_choose_columns_or_what_is_in_them(names: tuple[str, ...], leaves: list[int], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    images(path, [4, 4, 1])
    every = Parquet(SOURCE).index(path).columns
    index = Parquet(dataset(source="*", names=names)).index(path)
    assert [column.offset.tolist() for column in index.columns] == [every[leaf].offset.tolist() for leaf in leaves]


def test_a_name_that_the_file_has_not_is_said_with_those_that_it_has(tmp_path: Path) -> None:
    images(tmp_path / "a.parquet", [2])
    with pytest.raises(ExecutionError, match=r"a\.parquet has no column `im`; it has `image\.bytes`, `image\.path`"):
        Parquet(dataset(source="*", names=("im",))).index(tmp_path / "a.parquet")


def test_files_by_pandas_are_indexed(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "a.parquet"
    frame = pandas.DataFrame({"text": ["a", "b", None] * 40, "value": np.arange(120) / 7, "when": range(120)})
    frame.to_parquet(path, row_group_size=50)
    index = Parquet(dataset(source="*", names=("text", "value"))).index(path)
    assert index.samples == 120
    for column in index.columns:
        assert (column.samples, column.first, len(column.offset)) == (50, None, 3)
        assert ((column.offset >= 4) & (column.offset + column.length <= index.size - index.touched)).all()
    frame[:0].to_parquet(path)
    assert Parquet(SOURCE).index(path).samples == 0


def test_empty_row_groups_hold_no_unit(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    images(path, [3, 0, 3, 0])
    index = Parquet(SOURCE).index(path)
    assert index.samples == 6
    assert [len(column.offset) for column in index.columns] == [2, 2, 2]
    assert index.columns[0].first is None


def test_a_file_of_no_rows_has_no_units(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    Parquet(dataset()).build(path, 0, iter(()), EncodeTime())
    index = Parquet(dataset()).index(path)
    assert (index.samples, len(index.columns[0].offset)) == (0, 0)


# ---- damage -------------------------------------------------------------------------------------------------------


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "a.parquet"
    images(path, [3, 5, 2])
    return path


def test_a_file_cut_anywhere_is_refused(good: Path) -> None:
    check_damage(Parquet(SOURCE), good)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x00\x00\x00\x00PAR1", b"PAR1" + bytes(8), b"x" * 1000])
def test_what_is_no_parquet_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ExecutionError, match=str(tmp_path / "a")) as error:
        Parquet(SOURCE).index(tmp_path / "a")
    assert error.value.code == "R401"


@pytest.mark.parametrize("change", [-1, 0, 1, "all", "too many"])
def test_a_footer_of_another_length_is_refused_before_it_is_read(change: int | str, good: Path) -> None:
    whole = good.read_bytes()
    length = {"all": len(whole) - 12, "too many": (1 << 32) - 1, 0: 0}.get(change)
    if length is None:
        assert isinstance(change, int)
        length = len(whole) - 11 + change if change > 0 else len(whole) - 12
    good.write_bytes(whole[:-8] + length.to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ExecutionError, match=r"says that its footer has|is damaged"):
        Parquet(SOURCE).index(good)


def test_an_encrypted_footer_is_named(good: Path) -> None:
    good.write_bytes(good.read_bytes()[:-4] + b"PARE")
    with pytest.raises(ExecutionError, match="encrypted"):
        Parquet(SOURCE).index(good)


def _patched(path: Path, before: int, after: int) -> None:
    """Put another zigzag varint of the same length in the place of one that stands in the footer."""

    def varint(number: int) -> bytes:
        coded, left = b"", number << 1
        while left > 127:
            coded, left = coded + bytes([left & 127 | 128]), left >> 7
        return coded + bytes([left])

    assert len(varint(before)) == len(varint(after))
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert whole.count(varint(before), footer) >= 1
    path.write_bytes(whole[:footer] + whole[footer:].replace(varint(before), varint(after)))


def test_chunks_outside_the_data_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    described = dataset(chunk=Chunk(30, "samples"))
    write_resolved(Parquet(described), path, 90)
    (column,) = Parquet(described).index(path).columns
    _patched(path, int(column.offset[2]), int(column.offset[2]) + 500)
    with pytest.raises(
        ExecutionError, match=r"column `column_0` of row group 2 is said to have \d+ bytes from \d+, outside"
    ):
        Parquet(described).index(path)
    write_resolved(Parquet(described), path, 90)
    _patched(path, int(column.length[0]), 8000)
    with pytest.raises(ExecutionError, match=r"row group 2 is said to have 8000 bytes|row group 1 is said to have"):
        Parquet(described).index(path)


def test_rows_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    described = dataset(chunk=Chunk(3000, "samples"))
    write_resolved(Parquet(described), path, 3500)
    _patched(path, 3500, 3600)
    with pytest.raises(ExecutionError, match=r"there are 3600 rows, but the row groups have 3500"):
        Parquet(described).index(path)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_footer_with_changed_bytes_gives_an_index_inside_the_file_or_an_error(
    good: Path, data: st.DataObject
) -> None:
    images(good, [3, 5, 2])
    whole = bytearray(good.read_bytes())
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(footer, len(whole) - 1))] = data.draw(st.integers(0, 255))
    good.write_bytes(whole)
    try:
        index = Parquet(SOURCE).index(good)
    except ExecutionError as error:
        assert error.code == "R401"
        return
    for column in index.columns:
        assert ((column.offset >= 4) & (column.offset + column.length <= len(whole))).all()
        assert (column.length > 0).all()
