"""False alarms of `dliosim compare`, and differences that it finds, on rows whose truth is known.

    python scripts/dev/false_alarms.py [--draws 4000] [--seed 1]

Rows are drawn (tests/compare/synthetic.py) and judged as a comparison judges its own, with the default number of
repetitions. `the table` is the share of comparisons in which any variant is called different from the first; `any pair`
that in which the table or the sentences below it call any two different; `the answer` that in which it says what to
use, or, where the first one takes 10 % longer and the others are equal, calls the one to use faster than an equal one.
About ten minutes on one core. The status is 1 if a share of false alarms in the table or in the answer is above 6 %,
or a difference of 10 % at 5 % noise of ratios is found in less than 80 %.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from harness import ROOT, header, orderly, row

sys.path.insert(0, str(ROOT))

from dliosim.compare.statistics import choose_variant, compare_pairs, compare_variants
from tests.compare.synthetic import KINDS, equal, passes

#: Largest share of false alarms, and smallest share of differences found.
_ALARMS, _FOUND = 0.06, 0.8

#: Draws for each one in which sentences, and differences found, are judged: shares of 5 % are then known to 0.7 %.
_FEWER = 4

#: Numbers of equal variants among which the answer chooses.
_ANSWERED = (2, 3, 5, 8)

#: The noise of a pass where the ratio of two has 5 %.
_PAIRED = 0.05 / 2**0.5


def alarms(kind: str, variants: int, draws: int, seed: int) -> tuple[float, float]:
    """Return the shares of comparisons of equal variants in which the table, and the sentences, call any different."""
    random = np.random.default_rng([seed, KINDS.index(kind), variants])
    table = sentences = 0
    for number, seconds in enumerate(equal(kind, random, draws, variants)):
        found = compare_variants(seconds)
        table += any(one.verdict != "no difference shown" for one in found)
        sentences += number % _FEWER == 0 and any(one.is_shown for one in compare_pairs(seconds, found).values())
    return table / draws, sentences / -(-draws // _FEWER)


def wrong_answers(kind: str, variants: int, slower: float, draws: int, seed: int) -> float:
    """Return the share of comparisons whose answer calls a variant faster than an equal one.

    The first variant takes `slower` times as long as the others, which are equal; with 1 it is equal, too.
    """
    random = np.random.default_rng([seed, KINDS.index(kind), variants, int(100 * slower)])
    first, wrong = np.array([slower] + [1.0] * (variants - 1)), 0
    for seconds in equal(kind, random, draws, variants):
        choice = choose_variant(seconds * first, compare_variants(seconds * first))
        # All but the one to use and the equal ones are called worse; the first one rightly where it is slower.
        wrong += choice is not None and len(choice.tied) < variants - 1 - (slower > 1 and choice.use > 0)
    return wrong / draws


def power(draws: int, variants: int, noise: float, outliers: float) -> float:
    """Return the share of comparisons in which the one variant that takes 10 % longer is called slower."""
    slower = (1.0, 1.1, *(1.0,) * (variants - 2))
    found = (compare_variants(passes(seed, slower, noise=noise, outliers=outliers))[0] for seed in range(draws))
    return sum(one.verdict == "slower" for one in found) / draws


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000, help="comparisons of each kind")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    missed = False
    header("noise, no difference", "the table, 2 variants", "the table, 5 variants", "any pair, 5 variants")
    for kind in KINDS:
        (two, _), (five, pairs) = (alarms(kind, variants, given.draws, given.seed) for variants in (2, 5))
        missed |= max(two, five) > _ALARMS
        row(kind, *(f"{share:.1%}" for share in (two, five, pairs)))
    header("noise, the answer", *(f"{variants} equal" for variants in _ANSWERED), "4 equal, the first 10 % slower")
    for kind in KINDS:
        shares = [wrong_answers(kind, variants, 1.0, given.draws, given.seed) for variants in _ANSWERED]
        shares.append(wrong_answers(kind, 5, 1.1, given.draws // _FEWER, given.seed))
        missed |= max(shares[:-1]) > _ALARMS
        row(kind, *(f"{share:.1%}" for share in shares))
    header("10 % slower, among", "5 % noise of ratios", "5 % of each pass, no outliers", "5 % of each pass, outliers")
    for variants in (2, 3, 5, 8):
        settings = ((_PAIRED, 0.02), (0.05, 0.0), (0.05, 0.02))
        shares = [power(given.draws // _FEWER, variants, noise, outliers) for noise, outliers in settings]
        missed |= shares[0] < _FOUND
        row(f"{variants} variants", *(f"{share:.1%}" for share in shares))
    return int(missed)


if __name__ == "__main__":
    orderly(main)
