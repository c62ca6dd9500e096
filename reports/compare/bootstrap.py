"""How sure a ratio of two medians is: the percentile bootstrap in closed form, widened by how far runs lie apart.

The bootstrap of a median needs no random numbers: how often a resample of m draws out of n has the k-th smallest sample
as its median is a binomial probability (Maritz and Jarrett 1978, Efron 1979). What is computed here is the limit of
infinitely many resamples, so there is no seed, and equal samples give equal intervals.

Resampling one run cannot know two things. Iterations in a row are alike, so n of them count as m (`counted`). And
another run of the same program lies further off than its own iterations tell: `scatter`, the standard deviation of the
logarithm of a ratio between runs of one program, is a normal law on top of the resamples.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import median

RARE = 1e-9
ATOMS = 48
FINE = 4
LARGE = 400
Law = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Ratio:
    """The median of `new` over that of `old`: positive samples. `counted` is what old and new samples count as, and
    `scatter` is above 0."""

    old: tuple[float, ...]
    new: tuple[float, ...]
    counted: tuple[int, int]
    scatter: float

    @cached_property
    def log(self) -> float:
        """Logarithm of the ratio; turned round it is the same with the other sign, to the last bit."""
        return math.log(median(self.new)) - math.log(median(self.old))

    @cached_property
    def chance(self) -> float:
        """Twice the share of resamples on the other side of 1, but no less than `least`."""
        return min(1.0, max(2 * min(self._tail(0.0, 1), self._tail(0.0, -1)), self.least))

    @property
    def least(self) -> float:
        """The least chance that so many samples can have."""
        return fewest(*self.counted)

    def interval(self, alpha: float) -> tuple[float, float]:
        """What resamples leave at most alpha/2 below and above."""
        return grown(self._bound(alpha / 2, 1)), grown(self._bound(alpha / 2, -1))

    @cached_property
    def _law(self) -> Law:
        """Differences of both logarithms with their probabilities, those together that scatter does not tell apart."""
        old, new = (_law_of(_logs(values), m) for values, m in zip((self.old, self.new), self.counted, strict=True))
        return _merged(((y - x, v * w) for x, v in old for y, w in new), self.scatter / FINE)

    def _tail(self, at: float, side: int) -> float:
        """Probability of at most `at` (side 1) or of at least `at` (side -1)."""
        scale = side / (self.scatter * math.sqrt(2))
        return math.fsum(w * math.erfc((x - at) * scale) for x, w in self._law) / 2

    def _bound(self, share: float, side: int) -> float:
        """Where `share` lies beyond, to 1e-5, rounded outwards."""
        values = [x for x, _ in self._law]
        inner, outer = (max(values), min(values)) if side == 1 else (min(values), max(values))
        inner, outer = inner + side * 9 * self.scatter, outer - side * 9 * self.scatter
        while abs(inner - outer) > 1e-5:
            half = (inner + outer) / 2
            inner, outer = (inner, half) if self._tail(half, side) <= share else (half, outer)
        return outer


class Shift(Ratio):
    """The median of many ratios, one a trial, against 1: `new` are the ratios, `old` is (1.0,)."""

    @property
    def least(self) -> float:
        """The chance that all of them lie on one side of 1."""
        return 2.0 ** (1 - len(self.new))


def shift(ratios: Sequence[float], scatter: float) -> Shift:
    """What so many ratios say together; `scatter` is what all trials of a run may have in common."""
    return Shift((1.0,), tuple(ratios), (1, len(ratios)), scatter)


def grown(log: float) -> float:
    """The ratio of a logarithm, as far as a float goes."""
    return math.exp(min(log, 700.0))


def fewest(old: int, new: int) -> float:
    """The least two-sided chance that so many samples can have at all: 2 over the ways to deal them to two sides."""
    return 2 / math.comb(old + new, old)


def count(samples: int, correlation: float) -> int:
    """How many independent samples so many in a row are worth, of which neighbours correlate by so much."""
    return max(1, int(samples * (1 - correlation) / (1 + correlation) + 1e-9))


def correlation(series: Sequence[Sequence[float]]) -> float:
    """Lag-1 correlation of the ranks that samples have in their own series, pooled over all series; 0 to 0.9.

    Ranks, since one very long iteration hides how alike the others are. In n samples about their own mean r is seen as
    r - (1 + 3 r)/n (Kendall 1954), which is given back. Fewer than four samples tell nothing.
    """
    along, whole, bias = [], [], []
    for samples in series:
        if len(samples) >= 4:
            centred = _ranks(samples)
            whole.append(math.fsum(x * x for x in centred))
            along.append(math.fsum(x * y for x, y in zip(centred, centred[1:])))
            bias.append(whole[-1] / len(samples))
    seen, given = math.fsum(along) + math.fsum(bias), math.fsum(whole) - 3 * math.fsum(bias)
    return min(0.9, max(0.0, seen / given)) if given else 0.0


def spread(values: Sequence[float]) -> float:
    """Standard deviation by the half of the values that lie closest together (Rousseeuw and Leroy 1987), so that up to
    half of them may have changed; about any centre."""
    ordered, n = sorted(values), len(values)
    held = n // 2 + 1
    shortest = min(b - a for a, b in zip(ordered, ordered[held - 1:]))
    return shortest / 2 * 1.4826 * (1 + 5 / n)


def error(samples: Sequence[float], counted: int) -> float:
    """Standard deviation of the logarithm of the median over resamples."""
    law = _law_of(_logs(samples), counted)
    centre = math.fsum(w * x for x, w in law)
    return math.sqrt(math.fsum(w * (x - centre) ** 2 for x, w in law))


def discoveries(chances: Sequence[float], rate: float) -> float:
    """The chance up to which rows count, so that a share of at most `rate` of them is expected to be false (Benjamini
    and Hochberg 1995). Where none counts, the one that the first would have to have."""
    n, found = len(chances), 1
    for number, chance in enumerate(sorted(chances), 1):
        if chance <= rate * number / n:
            found = number
    return rate * found / max(n, 1)


def _ranks(samples: Sequence[float]) -> list[float]:
    """Rank less the mean rank; equal samples share theirs."""
    ordered = sorted(samples)
    return [(bisect_left(ordered, x) + bisect_right(ordered, x) - len(ordered)) / 2 for x in samples]


def _logs(samples: Sequence[float]) -> list[float]:
    return [math.log(x) for x in samples]


def _law_of(logs: Sequence[float], m: int) -> Law:
    """The median of m draws: at most ATOMS values with their probabilities."""
    law = [(x, w) for x, w in zip(sorted(logs), _weights(len(logs), m), strict=True) if w > RARE]
    step = -(-len(law) // ATOMS)
    parts = [law[start:start + step] for start in range(0, len(law), step)]
    merged = [(math.fsum(w for _, w in part), part) for part in parts]
    whole = math.fsum(w for w, _ in merged)
    return tuple((math.fsum(x * w for x, w in part) / weight, weight / whole) for weight, part in merged)


def _merged(law: Iterable[tuple[float, float]], width: float) -> Law:
    """Values of one cell of this width as their mean; cells lie alike on both sides of 0."""
    cells: dict[int, list[tuple[float, float]]] = {}
    for x, w in law:
        cells.setdefault(round(x / width), []).append((x, w))
    weights = {cell: math.fsum(w for _, w in held) for cell, held in cells.items()}
    return tuple((math.fsum(x * w for x, w in held) / weights[cell], weights[cell]) for cell, held in cells.items())


@lru_cache(maxsize=512)
def _weights(n: int, m: int) -> tuple[float, ...]:
    """Probability of each of n ordered samples to be the median of m draws; of an even number both middle draws count
    half."""
    low = [_at_least((m + 1) // 2, m, k / n) for k in range(n + 1)]
    high = [_at_least(m // 2 + 1, m, k / n) for k in range(n + 1)]
    both = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    return tuple(max(0.0, b - a) for a, b in zip(both, both[1:]))


def _at_least(wins: int, m: int, share: float) -> float:
    """Probability of so many wins in m draws; the normal law above LARGE."""
    if share in (0.0, 1.0):
        return share
    if m > LARGE:
        return math.erfc((wins - 0.5 - m * share) / math.sqrt(2 * m * share * (1 - share))) / 2
    return math.fsum(math.comb(m, k) * share**k * (1 - share) ** (m - k) for k in range(wins, m + 1))
