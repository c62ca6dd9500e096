"""Which times changed: ratios of medians, all of them judged together, so that many of them give few false alarms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from reports.compare import bootstrap, changes
from reports.compare.bootstrap import Ratio
from reports.compare.sides import Pair
from reports.compare.states import Row

METRICS = (("step ms", "step_s"), ("forward ms", "forward_s"))
FLOOR = 0.01
"""Least scatter between two runs of one program, and what is taken where too few trials tell it."""
LEAST = 1e-12
"""Seconds that no clock shows."""
ENOUGH = 10
"""So many trials tell how far two runs scatter; fewer are held to FLOOR."""


@dataclass(frozen=True)
class Samples:
    """One time of one trial on both sides; slowest rank, seconds an iteration."""

    pair: Pair
    metric: str
    old: tuple[float, ...]
    new: tuple[float, ...]

    @property
    def log(self) -> float:
        return math.log(median(self.new)) - math.log(median(self.old))


@dataclass(frozen=True)
class Noise:
    """What the records themselves tell of the noise of one metric.

    correlation  of neighbouring iterations, old and new
    scatter      standard deviation of the logarithm of a ratio between runs, beyond what iterations tell
    shift        median ratio of all trials
    shows        ratio from which on a single trial would be told; None where none has samples enough to be told
    unjudged     trials with too few samples to be told, whatever their ratio
    known        whether there were ENOUGH trials for it
    """

    metric: str
    trials: int
    correlation: tuple[float, float]
    scatter: float
    shift: float
    shows: float | None
    known: bool
    unjudged: int = 0


@dataclass(frozen=True)
class Times:
    """Rows of all times; `level`: two-sided chance up to which one counts; `noise` a metric each."""

    rows: list[Row]
    noise: list[Noise]
    level: float
    tested: int


def compare(pairs: Sequence[Pair], threshold: float, confidence: float) -> Times:
    """Times of pairs that passed and may be compared. Threshold: a ratio's least distance from 1, as a share."""
    rate = 1 - confidence
    by_metric = [[_samples(pair, metric, field) for pair in pairs] for metric, field in METRICS]
    judged = [(one, ratio) for samples in by_metric for one, ratio in _ratios(samples)]
    tested = [ratio.chance for _, ratio in judged if ratio and bootstrap.fewest(*ratio.counted) <= rate]
    level = bootstrap.discoveries(tested, rate)
    rows = [row for one, ratio in judged if (row := _row(one, ratio, level, rate, threshold))]
    noise = [_noise(samples, level) for samples in by_metric if any(_timed(one) for one in samples)]
    return Times(rows, noise, level, len(tested))


def _samples(pair: Pair, metric: str, name: str) -> Samples:
    sides = (tuple(changes.sound(one.trial, "measurement", name)) for one in pair)
    return Samples(pair, metric, *(side if all(x > LEAST for x in side) else () for side in sides))


def _timed(one: Samples) -> bool:
    return bool(one.old and one.new)


def _ratios(samples: Sequence[Samples]) -> list[tuple[Samples, Ratio | None]]:
    correlation, scatter, _ = _measured(samples)
    return [(one, Ratio(one.old, one.new, _counted(one, correlation), scatter) if _timed(one) else None)
            for one in samples]


def _counted(one: Samples, correlation: tuple[float, float]) -> tuple[int, int]:
    return tuple(bootstrap.count(len(x), r) for x, r in zip((one.old, one.new), correlation, strict=True))


def _measured(samples: Sequence[Samples]) -> tuple[tuple[float, float], float, float]:
    """Correlation of both sides, scatter between runs, and the squared error that iterations tell of.

    The scatter is what the ratios of all trials spread beyond their own errors, of which the lower quartile is taken
    off: the bootstrap of few samples with long tails overstates them.
    """
    timed = [one for one in samples if _timed(one)]
    correlation = tuple(bootstrap.correlation([getattr(one, side) for one in timed]) for side in ("old", "new"))
    if not timed:
        return correlation, FLOOR, 0.0
    squares = sorted(sum(bootstrap.error(x, m) ** 2 for x, m in zip((one.old, one.new), _counted(one, correlation)))
                     for one in timed)
    scatter = FLOOR
    if len(timed) >= ENOUGH:
        beyond = bootstrap.spread([one.log for one in timed]) ** 2 - squares[len(squares) // 4]
        scatter = math.sqrt(max(FLOOR**2, beyond))
    return correlation, scatter, squares[len(squares) // 2]


def _noise(samples: Sequence[Samples], level: float) -> Noise:
    correlation, scatter, square = _measured(samples)
    logs = [one.log for one in samples if _timed(one)]
    far = NormalDist().inv_cdf(1 - level / 2) * math.sqrt(scatter**2 + square)
    shift, shows = bootstrap.grown(median(logs)), bootstrap.grown(far)
    few = sum(bootstrap.fewest(*_counted(one, correlation)) > level for one in samples if _timed(one))
    return Noise(samples[0].metric, len(logs), correlation, scatter, shift, None if few == len(logs) else shows,
                 len(logs) >= ENOUGH, few)


def _row(one: Samples, ratio: Ratio | None, level: float, rate: float, threshold: float) -> Row | None:
    """The row of one time; None where neither side has it."""
    if not ratio:
        if not one.old and not one.new:
            return None
        state, side = ("missing", "NEW") if one.old else ("new", "OLD")
        return _told(one, state, None, f"no samples of {side}")
    least = bootstrap.fewest(*ratio.counted)
    sizes = " and ".join(str(len(x)) if len(x) == m else f"{len(x)} (count as {m})"
                         for x, m in zip((one.old, one.new), ratio.counted, strict=True))
    if least > level:
        crowd = "" if least > rate else " for so many trials"
        return _told(one, "unjudged", None, f"too few samples{crowd}: {sizes}")
    interval = ratio.interval(level)
    if abs(ratio.log) < math.log1p(threshold):
        return _told(one, "insignificant", interval, f"within {threshold:.3g} of 1")
    if ratio.chance <= level:
        return _told(one, "slower" if ratio.log > 0 else "faster", interval, changes.remarks(*one.pair))
    return _told(one, "insignificant", interval, "the interval holds 1")


def _told(one: Samples, state: str, interval: tuple[float, float] | None, note: str) -> Row:
    old, new = (median(x) * 1e3 if x else None for x in (one.old, one.new))
    ratio = bootstrap.grown(one.log) if _timed(one) else None
    return Row(state, *one.pair[1].name, one.metric, old, new, ratio, *(interval or (None, None)), note)
