import math

import pytest

from dliosim import readable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567.8, "1234568"),
        (12.3456, "12.35"),
        (0.00123456, "0.001235"),
        (9.99996, "10.00"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "inf"),
        (-0.5, "-0.5000"),
        (1e-7, "0.0000001000"),
    ],
)
def test_numbers_have_four_significant_digits_and_no_exponent(value, text):
    assert readable.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (1.5, "1.500 s"),
        (0.0123456, "12.35 ms"),
        (1.234e-6, "1.234 us"),
        (5e-9, "5.000 ns"),
        (7200.0, "7200 s"),
        (0.99999, "1.000 s"),
        (1e-12, "0.001000 ns"),
        (math.inf, "inf"),
        (None, "-"),
    ],
)
def test_times_have_the_unit_that_fits(value, text):
    assert readable.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (512, "512 B"), (1000, "1.000 kB"), (2_828_486, "2.828 MB"), (181e9, "181.0 GB"), (0.5, "0.5000 B")],
)
def test_sizes_are_in_powers_of_a_thousand(value, text):
    assert readable.size(value) == text


def test_a_hash_has_16_digits_and_is_absent_where_nothing_was_read():
    assert readable.hash_text(0xAB) == "00000000000000ab"
    assert readable.hash_text(0) == "-"


def test_ratios_are_in_per_cent_and_counts_know_their_plural():
    assert readable.percent(0.12345) == "12.35 %"
    assert readable.percent(None) == "-"
    assert (readable.count(1, "rank"), readable.count(4, "rank")) == ("1 rank", "4 ranks")
