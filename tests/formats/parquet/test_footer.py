from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.parquet.footer import read_footer
from tests.examples import examples


def varint(number: int) -> bytes:
    coded = b""
    while number > 127:
        coded, number = coded + bytes([number & 127 | 128]), number >> 7
    return coded + bytes([number])


def number(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def text(value: bytes) -> bytes:
    return varint(len(value)) + value


def items(kind: int, values: list[bytes]) -> bytes:
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + varint(len(values))
    return head + b"".join(values)


def struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Fields (number, type, value), in order, by Thrift's compact protocol."""
    coded, before = b"", 0
    for field, kind, value in fields:
        if 0 < field - before < 16:
            coded += bytes([field - before << 4 | kind])
        else:
            coded += bytes([kind]) + number(field)
        coded, before = coded + value, field
    return coded + b"\x00"


I32, I64, BINARY, LIST, MAP, STRUCT = 5, 6, 8, 9, 11, 12


def leaf(name: bytes) -> bytes:
    return struct((1, I32, number(2)), (4, BINARY, text(name)))


def branch(name: bytes, children: int) -> bytes:
    return struct((4, BINARY, text(name)), (5, I32, number(children)))


def chunk(begin: int = 4, length: int = 10, decoded: int = 10, dictionary: int | None = None) -> bytes:
    meta = [(4, I32, number(6)), (6, I64, number(decoded)), (7, I64, number(length)), (9, I64, number(begin))]
    if dictionary is not None:
        meta.append((11, I64, number(dictionary)))
    return struct((2, I64, number(0)), (3, STRUCT, struct(*meta)))


def group(rows: int, *chunks: bytes) -> bytes:
    return struct((1, LIST, items(STRUCT, list(chunks))), (3, I64, number(rows)))


def footer(schema: list[bytes], rows: int, groups: list[bytes]) -> bytes:
    return struct(
        (1, I32, number(2)), (2, LIST, items(STRUCT, schema)), (3, I64, number(rows)), (4, LIST, items(STRUCT, groups))
    )


SCHEMA = [branch(b"schema", 2), leaf(b"a"), branch(b"b", 2), leaf(b"c"), leaf(b"d")]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(b"PAR1" + bytes(100) + content + len(content).to_bytes(4, "little") + b"PAR1")
    return path


def test_leaves_have_the_paths_of_what_they_are_in(tmp_path: Path) -> None:
    path = written(tmp_path / "a", footer(SCHEMA, 3, [group(3, chunk(), chunk(14), chunk(24, 7))]))
    found = read_footer(path)
    assert found.leaves == ("a", "b.c", "b.d")
    assert (found.rows.tolist(), found.begin.tolist(), found.length.tolist()) == ([3], [[4, 14, 24]], [[10, 10, 7]])
    assert found.codec == ("zstd",) * 3
    assert found.touched + 104 == found.size
    assert found.select_leaves(path, ("b",)) == [1, 2]


def test_fields_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    strange = struct((900, MAP, varint(1) + bytes([BINARY << 4 | LIST]) + text(b"k") + items(1, [b"\x01", b"\x02"])))
    values = [
        (1, 3, b"\x07"),
        (2, LIST, items(STRUCT, [branch(b"s", 1), leaf(b"a")])),
        (3, I64, number(0)),
        (4, LIST, items(STRUCT, [])),
        (5, STRUCT, strange),
        (6, 1, b""),
        (7, 7, bytes(8)),
        (8, 13, bytes(16)),
        (60, MAP, b"\x00"),
        (61, LIST, items(BINARY, [text(b"x")] * 20)),
    ]
    assert read_footer(written(tmp_path / "a", struct(*values))).leaves == ("a",)


@pytest.mark.parametrize(("dictionary", "begin"), [(None, 50), (0, 50), (20, 20), (60, 50)])
def test_a_chunk_begins_at_its_dictionary_if_it_has_one(dictionary: int | None, begin: int, tmp_path: Path) -> None:
    content = footer([branch(b"s", 1), leaf(b"a")], 1, [group(1, chunk(50, dictionary=dictionary))])
    assert read_footer(written(tmp_path / "a", content)).begin.tolist() == [[begin]]


ONE = [branch(b"s", 1), leaf(b"a")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x00", "schema is missing"),
        (footer([], 0, []), "are missing"),
        (footer([branch(b"s", 0)], 0, []), "no columns"),
        (footer([branch(b"s", 2), leaf(b"a")], 0, []), "are missing"),
        (footer([branch(b"s", 1), leaf(b"a"), leaf(b"b")], 0, []), "root only down to column 2"),
        (footer([branch(b"s", -1), leaf(b"a")], 0, []), "has -1 columns"),
        (footer([branch(b"s", 1)] + [branch(b"x", 1)] * 500 + [leaf(b"a")], 0, []), "over 64 levels"),
        (footer(ONE, 1, [group(1)]), "0 chunks of 1 columns"),
        (footer(ONE, 1, [group(1, chunk(), chunk())]), "2 chunks of 1 columns"),
        (footer(ONE, -1, [group(-1, chunk())]), "-1 rows"),
        (footer(ONE, 2, [group(1, chunk())]), "there are 2 rows, but the row groups have 1"),
        (footer(ONE, 1, [group(1, struct((2, I64, number(0))))]), "or it is encrypted"),
        (footer(ONE, 1, [group(1, struct((1, BINARY, text(b"other"))))]), "another file, b'other'"),
        (struct((2, LIST, bytes([0xF0 | STRUCT]) + varint(1 << 40))), "of 1099511627776 items does not fit"),
        (struct((2, LIST, items(I64, [b"\x00"]))), "a column's name is missing"),
        (struct((3, I32, number(1))), "the schema is missing"),
        (struct((3, I64, b"\xff" * 11)), "over 64 bits"),
        (struct((9, BINARY, varint(1 << 50))), "a value of 1125899906842624 bytes"),
        (struct((9, MAP, varint(1 << 50) + b"\x55")), "a list or map of"),
        (struct((9, 15, b"")), "no type has number 15"),
        (bytes([0x9C]) + b"\x1c" * 5000, "structs in each other"),
        (bytes([0x99]) + b"\x19" * 5000, "structs in each other"),
        (b"\x15", "ends too early"),
    ],
)
def test_a_footer_that_cannot_be_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match=rf"a: the footer, \d+ bytes from 104, is damaged: .*{said}") as error:
        read_footer(written(tmp_path / "a", content))
    assert error.value.code == "R401"


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(content=st.binary(min_size=1, max_size=200))
def test_any_bytes_for_a_footer_are_read_or_refused(content: bytes, tmp_path: Path) -> None:
    try:
        assert read_footer(written(tmp_path / "a", content)).leaves
    except ExecutionError as error:
        assert error.code == "R401"


@pytest.mark.parametrize("rows_in_group", [1, 7, 40])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_it_says_what_pyarrow_says(rows_in_group: int, codec: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table(
        {
            "number": np.arange(40) / 3,
            "text": [None if row % 5 == 0 else "x" * row for row in range(40)],
            "list": [list(range(row % 4)) for row in range(40)],
            "map": pa.array([[("a", row)] for row in range(40)], pa.map_(pa.string(), pa.int32())),
            "deep": [{"a": {"b": [row], "é": True}} for row in range(40)],
        }
    ).replace_schema_metadata({"some": "metadata"})
    path = tmp_path / "a"
    parquet.write_table(
        table, path, row_group_size=rows_in_group, compression=codec, write_page_index=True, sorting_columns=None
    )
    found, metadata = read_footer(path), parquet.read_metadata(path)
    assert found.leaves == tuple(metadata.schema.column(leaf).path for leaf in range(metadata.num_columns))
    assert found.rows.sum() == 40
    assert found.touched == metadata.serialized_size + 8
    for group in range(metadata.num_row_groups):
        assert found.rows[group] == metadata.row_group(group).num_rows
        for number in range(metadata.num_columns):
            said = metadata.row_group(group).column(number)
            place = (group, number)
            assert found.begin[place] == (said.dictionary_page_offset or said.data_page_offset)
            assert found.length[place] == said.total_compressed_size
            assert found.decoded[place] == said.total_uncompressed_size
            name = "" if codec == "none" else codec
            assert found.codec[number] in (name, name + "_raw")
