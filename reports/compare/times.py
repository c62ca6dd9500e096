"""Which times changed: ratios of medians, all of them judged together, so that many of them give few false alarms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from reports.compare import bootstrap, changes, noise
from reports.compare.bootstrap import Ratio
from reports.compare.noise import Noise
from reports.compare.sides import Pair, Trial
from reports.compare.states import Row
from reports.compare.values import Values, seconds

METRICS = (("step ms", "step_s"), ("forward ms", "forward_s"))


@dataclass(frozen=True)
class Samples:
    """One time of one trial on both sides; slowest rank, seconds an iteration. A side without one may say why."""

    pair: Pair
    metric: str
    sides: tuple[Values, Values]

    @property
    def old(self) -> tuple[float, ...]:
        return self.sides[0].numbers

    @property
    def new(self) -> tuple[float, ...]:
        return self.sides[1].numbers

    @property
    def timed(self) -> bool:
        return bool(self.old and self.new)

    @property
    def wrong(self) -> str:
        return "; ".join(f"{name} {side.wrong}" for name, side in zip(("OLD", "NEW"), self.sides) if side.wrong)

    @cached_property
    def log(self) -> float:
        return math.log(median(self.new)) - math.log(median(self.old))


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
    measured = [noise.measured([(one.old, one.new) for one in samples if one.timed]) for samples in by_metric]
    judged = [[(one, _ratio(one, found)) for one in samples] for samples, found in zip(by_metric, measured)]
    tested = [ratio.chance for part in judged for _, ratio in part if ratio and ratio.least <= rate]
    level = bootstrap.discoveries(tested, rate)
    rows, told = [], []
    for part, found in zip(judged, measured, strict=True):
        made = [row for one, ratio in part if (row := _row(one, ratio, level, rate, threshold))]
        ratios = [ratio for _, ratio in part if ratio]
        if ratios:
            told.append(noise.of(part[0][0].metric, found, ratios, level))
            rows += _together(told[-1], made, rate / len(METRICS), threshold)
        rows += made
    return Times(rows, told, level, len(tested))


def unusable(trial: Trial) -> list[str]:
    """Why times of a trial are none."""
    return [words for _, name in METRICS if (words := seconds(trial, name).wrong)]


def _samples(pair: Pair, metric: str, name: str) -> Samples:
    return Samples(pair, metric, tuple(seconds(one.trial, name) for one in pair))


def _ratio(one: Samples, found: noise.Measured) -> Ratio | None:
    return Ratio(one.old, one.new, found.counted(one.old, one.new), found.scatter) if one.timed else None


def _together(found: Noise, rows: Sequence[Row], rate: float, threshold: float) -> list[Row]:
    """One row where all trials together moved, although most of them cannot tell so alone."""
    state = "slower" if found.shift > 1 else "faster"
    alone = sum(row.state == state for row in rows)
    if found.chance > rate or abs(math.log(found.shift)) < math.log1p(threshold) or 2 * alone >= found.trials:
        return []
    return [Row(state, f"all {found.trials} trials together", "all", found.metric, None, None, found.shift, found.low,
                found.high, f"told alone: {alone}", together=found.trials)]


def _row(one: Samples, ratio: Ratio | None, level: float, rate: float, threshold: float) -> Row | None:
    """The row of one time; None where neither side has it."""
    if not ratio:
        return _lost(one)
    sizes = " and ".join(str(len(x)) if len(x) == m else f"{len(x)} (count as {m})"
                         for x, m in zip((one.old, one.new), ratio.counted, strict=True))
    if ratio.least > level:
        crowd = "" if ratio.least > rate else " for so many trials"
        return _told(one, "unjudged", None, f"too few samples{crowd}: {sizes}")
    interval = ratio.interval(level)
    if abs(ratio.log) < math.log1p(threshold):
        return _told(one, "insignificant", interval, f"within {threshold:.3g} of 1")
    if ratio.chance <= level:
        return _told(one, "slower" if ratio.log > 0 else "faster", interval, changes.remarks(*one.pair))
    return _told(one, "insignificant", interval, "the interval holds 1")


def _lost(one: Samples) -> Row | None:
    """A time that one side does not have is lost or new, like a count."""
    if one.old or one.new:
        return _told(one, "missing" if one.old else "new", None,
                     one.wrong or f"no samples of {'NEW' if one.old else 'OLD'}")
    return _told(one, "unjudged", None, one.wrong) if one.wrong else None


def _told(one: Samples, state: str, interval: tuple[float, float] | None, note: str) -> Row:
    old, new = (median(x) * 1e3 if x else None for x in (one.old, one.new))
    ratio = bootstrap.grown(one.log) if one.timed else None
    return Row(state, *one.pair[1].name, one.metric, old, new, ratio, *(interval or (None, None)), note)
