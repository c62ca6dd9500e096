"""The statistics of a comparison: against plain resampling, against planted changes, against no change at all."""

import math
import random
from statistics import median_high, median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.compare import bootstrap
from reports.compare.bootstrap import Ratio
from tests.reports.compared import noisy

SAMPLES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30)


@pytest.mark.parametrize("n", [5, 8, 21, 60])
def test_the_closed_form_is_what_resampling_comes_to(n):
    generator = random.Random(7)
    old, new = noisy(generator, n=n), noisy(generator, 0.0105, n=n)
    middles = median_low, median_high  # of an even number both middle draws count half
    drawn = sorted(math.log(generator.choice(middles)(generator.choices(new, k=n))
                            / generator.choice(middles)(generator.choices(old, k=n))) for _ in range(4000))
    ratio = Ratio(old, new, (n, n), 1e-4)
    low, high = map(math.log, ratio.interval(0.1))
    width = drawn[3800] - drawn[200]
    assert low == pytest.approx(drawn[200], abs=0.15 * width) and high == pytest.approx(drawn[3800], abs=0.15 * width)
    share = sum(x <= 0 for x in drawn) / 4000
    assert ratio.chance == pytest.approx(max(2 * min(share, 1 - share), bootstrap.fewest(n, n)), abs=0.06)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 4), (20, 7), (33, 33), (700, 700)])
def test_weights_are_probabilities_about_the_middle(n, m):
    weights = bootstrap._weights(n, m)
    assert sum(weights) == pytest.approx(1) and min(weights) >= 0
    assert weights == pytest.approx(weights[::-1], abs=1e-12)


def test_many_samples_are_taken_together_and_still_know_their_error():
    generator = random.Random(1)
    values = [math.exp(generator.gauss(0, 0.1)) for _ in range(2000)]
    assert len(bootstrap._law_of([math.log(x) for x in values], 2000)) <= bootstrap.ATOMS
    assert bootstrap.error(values, 2000) == pytest.approx(1.2533 * 0.1 / math.sqrt(2000), rel=0.2)


@given(SAMPLES, SAMPLES, st.floats(0.01, 1))
def test_turned_round_it_says_the_opposite_to_the_last_bit(old, new, scatter):
    there = Ratio(tuple(old), tuple(new), (len(old), len(new)), scatter)
    back = Ratio(tuple(new), tuple(old), (len(new), len(old)), scatter)
    assert there.log == -back.log and there.chance == back.chance
    low, high = there.interval(0.1)
    assert low <= high and (1 / high, 1 / low) == pytest.approx(back.interval(0.1), rel=1e-5)


@given(SAMPLES, SAMPLES, st.floats(0.02, 0.3))
def test_the_interval_excludes_one_where_the_chance_is_below_its_level(old, new, alpha):
    ratio = Ratio(tuple(old), tuple(new), (len(old), len(new)), 0.01)
    low, high = ratio.interval(alpha)
    if ratio.chance <= alpha * 0.99:
        assert low > 1 or high < 1
    tails = 2 * min(ratio._tail(0.0, 1), ratio._tail(0.0, -1))
    if tails > alpha * 1.01:
        assert low <= 1 <= high


def test_more_scatter_widens_and_fewer_samples_are_never_surer():
    generator = random.Random(3)
    old, new = noisy(generator), noisy(generator, 0.0115)
    chances = [Ratio(old, new, (m, m), scatter).chance for m, scatter in ((20, 0.01), (20, 0.05), (8, 0.05))]
    assert chances == sorted(chances) and chances[0] < 1e-4 < chances[1]
    assert Ratio(old[:3], tuple(x * 9 for x in new[:3]), (3, 3), 0.01).chance == pytest.approx(0.1)


def test_discoveries_by_hand():
    assert bootstrap.discoveries([0.01, 0.04, 0.03, 0.9], 0.05) == pytest.approx(0.05 / 4)
    assert bootstrap.discoveries([0.01, 0.02, 0.03, 0.9], 0.05) == pytest.approx(0.05 * 3 / 4)
    assert bootstrap.discoveries([0.5, 0.6], 0.05) == pytest.approx(0.025)
    assert bootstrap.discoveries([], 0.05) == 0.05


@pytest.mark.parametrize("along", [0.0, 0.5])
def test_correlation_is_found_through_spikes_and_counts_fewer_samples(along):
    generator = random.Random(5)
    found = bootstrap.correlation([noisy(generator, along=along) for _ in range(200)])
    assert found == pytest.approx(along, abs=0.1)  # spikes take a little off
    assert bootstrap.count(20, 0.0) == 20 and bootstrap.count(20, 0.5) == 6 and bootstrap.count(1, 0.9) == 1
    assert bootstrap.correlation([]) == 0 == bootstrap.correlation([[1.0], [2.0, 2.0]])


def test_the_spread_sees_past_less_than_half_that_changed():
    generator = random.Random(2)
    alike = [generator.gauss(0.2, 0.03) for _ in range(60)]
    assert bootstrap.spread(alike) == pytest.approx(0.03, rel=0.4)
    assert bootstrap.spread(alike + [x + 0.5 for x in alike[:40]]) < 0.08
