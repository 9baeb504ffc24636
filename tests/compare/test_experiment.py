"""--vary: what it takes, which combinations come of it, and in which order passes run."""

from __future__ import annotations

import pytest

from dliosim.compare.experiment import draw_pass_order, parse_varied, split_values
from dliosim.compare.variants import combine_values
from dliosim.errors import UsageError


def test_values_are_split_at_commas_that_are_not_inside_of_something() -> None:
    assert split_values('posix, lognormal(1 kB, 2 kB),"a" = "b,c"') == ("posix", "lognormal(1 kB, 2 kB)", '"a" = "b,c"')


@pytest.mark.parametrize("text", ["api", "api=", "=a,b", "api=a,,b", "api=a,a"])
def test_what_names_no_values_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--vary"):
        parse_varied([text])


def test_a_name_is_varied_once() -> None:
    with pytest.raises(UsageError, match="given twice"):
        parse_varied(["api=a,b", "api=c"])


def test_two_names_make_all_combinations_the_last_one_fastest() -> None:
    pairs = combine_values(parse_varied(["a=1,2", "b=x,y"]))
    assert pairs == [
        (("a", "1"), ("b", "x")),
        (("a", "1"), ("b", "y")),
        (("a", "2"), ("b", "x")),
        (("a", "2"), ("b", "y")),
    ]


def test_more_combinations_than_anyone_could_read_are_refused() -> None:
    numbers = ",".join(map(str, range(9)))
    with pytest.raises(UsageError, match="81 combinations"):
        combine_values(parse_varied([f"a={numbers}", f"b={numbers}"]))


def test_every_block_has_every_variant_once_in_an_order_of_its_own() -> None:
    order = draw_pass_order(5, 8, seed=1)
    assert all(sorted(block) == [0, 1, 2, 3, 4] for block in order)
    assert len({tuple(block) for block in order}) > 4
    assert order == draw_pass_order(5, 8, seed=1) != draw_pass_order(5, 8, seed=2)
