"""What the records of a comparison themselves tell of the noise of their times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from reports.compare import bootstrap
from reports.compare.bootstrap import Ratio

FLOOR = 0.01
"""Least scatter between two runs of one program, and what is taken where too few trials tell it."""
ENOUGH = 10
"""So many trials tell how far two runs scatter; fewer are held to FLOOR."""
Sides = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Measured:
    """Correlation of neighbouring iterations, old and new; scatter between runs; the squared error that iterations
    tell of."""

    correlation: tuple[float, float]
    scatter: float
    square: float

    def counted(self, old: Sequence[float], new: Sequence[float]) -> tuple[int, int]:
        """What the samples of both sides count as."""
        return tuple(bootstrap.count(len(x), r) for x, r in zip((old, new), self.correlation, strict=True))


@dataclass(frozen=True)
class Noise:
    """The noise of one metric.

    trials       with a time on both sides
    judged       of them, those with samples enough to be told slower or faster alone
    samples      median number of them, old and new
    correlation  of neighbouring iterations, old and new
    scatter      standard deviation of the logarithm of a ratio between runs, beyond what iterations tell
    shift        median ratio of all trials; low, high its interval; chance that there is none
    shows        ratio from which on a single trial would be told; None where none can be
    known        whether there were ENOUGH trials for the scatter
    """

    metric: str
    trials: int
    judged: int
    samples: tuple[int, int]
    correlation: tuple[float, float]
    scatter: float
    shift: float
    low: float
    high: float
    chance: float
    shows: float | None
    known: bool


def measured(timed: Sequence[Sides]) -> Measured:
    """The scatter is what the ratios of all trials spread beyond their own errors, of which the lower quartile is taken
    off: the bootstrap of few samples with long tails overstates them."""
    correlation = tuple(bootstrap.correlation([sides[side] for sides in timed]) for side in (0, 1))
    first = Measured(correlation, FLOOR, 0.0)
    if not timed:
        return first
    squares = sorted(sum(bootstrap.error(x, m) ** 2 for x, m in zip(sides, first.counted(*sides))) for sides in timed)
    scatter = FLOOR
    if len(timed) >= ENOUGH:
        logs = [math.log(median(new)) - math.log(median(old)) for old, new in timed]
        scatter = math.sqrt(max(FLOOR**2, bootstrap.spread(logs) ** 2 - squares[len(squares) // 4]))
    return Measured(correlation, scatter, squares[len(squares) // 2])


def of(metric: str, found: Measured, ratios: Sequence[Ratio], level: float) -> Noise:
    """The noise as it is told; `ratios`: of all trials, at least one; `level`: chance up to which one counts."""
    together = bootstrap.shift([bootstrap.grown(one.log) for one in ratios], FLOOR)
    far = NormalDist().inv_cdf(1 - level / 2) * math.sqrt(found.scatter**2 + found.square)
    judged = sum(one.least <= level for one in ratios)
    return Noise(
        metric, len(ratios), judged, tuple(int(median(len(getattr(one, side)) for one in ratios)) for side in
                                           ("old", "new")),
        found.correlation, found.scatter, bootstrap.grown(together.log), *together.interval(level), together.chance,
        bootstrap.grown(far) if judged else None, len(ratios) >= ENOUGH)
