"""Text and values of bytes and seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.units import (
    RATIO,
    SIZE,
    Dimension,
    format_bytes,
    format_seconds,
    parse_quantity,
    parse_rate,
    parse_seconds,
    parse_size,
)


@given(st.integers(0, 2**62))
def test_bytes_survive_the_round_trip(size: int) -> None:
    assert parse_quantity(format_bytes(size), SIZE) == size


@given(st.floats(0, 1e9, allow_subnormal=False).filter(lambda value: value == 0 or value > 1e-30))
def test_seconds_survive_the_round_trip(seconds: float) -> None:
    assert parse_seconds(format_seconds(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("4 KiB", 4096), ("4kB", 4000), ("2.8 MB", 2_800_000), ("2_828_486 B", 2_828_486), ("1.5 GiB", 3 * 2**29)],
)
def test_units_are_powers_of_ten_or_two_as_written(text: str, size: int) -> None:
    assert parse_quantity(text, SIZE) == size


@pytest.mark.parametrize("text", ["4", "4 mb", "4 KB", "4 k", "4 ms", "", "MB", "9" * 100 + " B"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_quantity(text, SIZE)


def test_exact_text_is_the_shortest() -> None:
    assert [format_bytes(size) for size in (0, 1, 4096, 4000, 2_828_486, 2**30)] == [
        "0 B", "1 B", "4 KiB", "4 kB", "2_828_486 B", "1 GiB",
    ]  # fmt: skip
    assert [format_seconds(value) for value in (0.0, 0.01, 1.5, 90.0, 3e-7)] == [
        "0 s",
        "10 ms",
        "1.5 s",
        "90 s",
        "300 ns",
    ]


def test_dimensions_name_themselves() -> None:
    assert (str(SIZE), str(RATIO)) == ("a size", "a ratio")
    assert str(Dimension(2, 0)) == "a product of bytes^2 and seconds^0"


def test_a_rate_has_bytes_and_seconds() -> None:
    assert parse_rate("1.5 GB/s") == 1.5e9
    assert parse_rate("1 MiB/s") == 2**20
    with pytest.raises(ValueError, match="is not a rate such as 10 GB/s"):
        parse_rate("10 GB")


def test_a_size_has_bytes() -> None:
    assert parse_size("512 GB") == 512e9
    with pytest.raises(ValueError, match="is not a size such as 4 KiB"):
        parse_size("512")
