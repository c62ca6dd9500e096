"""How far a run is and what is left, on stderr: a line that is drawn anew on a terminal, one a minute in a log."""

import os
import time
from collections.abc import Callable, Sequence
from io import TextIOBase
from math import sqrt
from typing import NamedTuple, TextIO

from cases.case import Case

EVERY_S, FIRST = 60.0, 5
SURE = 2.0
CLEAR = "\r\x1b[K"


class Asked(NamedTuple):
    """What is known of a trial before it runs: its ranks, and pairs of a query and a key, which most of its time goes
    with."""

    ranks: int
    pairs: float


class Range(NamedTuple):
    """Seconds that are left, from and to; `beyond` counts trials larger than all that was done: it may be more."""

    least: float
    most: float
    beyond: int


def weighed(case: Case) -> Asked:
    shape = case.shape
    return Asked(case.ranks, float(shape.batch * shape.heads * shape.tokens ** 2))


class Progress:
    """Draws how many of `trials` are done, and an estimate of the time that the others take.

    The time of a trial is fitted as a + b * pairs to those that are done, first trials of a number of ranks apart, as
    they start processes. The range is two standard errors of that fit, so that unequal cases make it wide.
    """

    def __init__(self, trials: Sequence[Asked], stream: TextIO, clock: Callable[[], float] = time.monotonic):
        self.trials, self.stream, self.clock = list(trials), stream, clock
        self.live = isinstance(stream, TextIOBase) and stream.isatty()  # one that adds prefixes writes whole lines
        self.started = self.last = self.spoken = clock()
        self.seconds: list[float] = []
        self.drawn = False

    def hide(self) -> None:
        """Takes the line off the terminal, before anything else is written there."""
        if self.drawn:
            self._write(CLEAR)
            self.drawn = False

    def done(self) -> None:
        """One more trial is done. Draws the line where it is due."""
        now = self.clock()
        self.seconds.append(now - self.last)
        self.last = now
        if len(self.seconds) >= len(self.trials):
            return
        if self.live:
            self._write(f"{CLEAR}{f'# {self.text()}'[: self._width() - 1]}")
            self.drawn = True
        elif now - self.spoken >= EVERY_S:
            self.spoken = now
            self._write(f"# {self.text()}\n")

    def text(self) -> str:
        """The line."""
        told = f"{len(self.seconds)} of {len(self.trials)} after {spoken(self.last - self.started)}"
        left = self.left()
        if left is None:
            return told
        most = spoken(left.most)
        span = most if spoken(left.least) == most else f"{spoken(left.least)} to {most}"
        larger = f", more if {left.beyond} larger ones take longer" if left.beyond else ""
        return f"{told}, about {span} left{larger}"

    def left(self) -> Range | None:
        """Seconds for the trials that are not done; None while too few are."""
        count = min(len(self.seconds), len(self.trials))
        starts = {ranks: number for number, (ranks, _) in reversed(list(enumerate(self.trials)))}
        known = [number for number in range(count) if starts[self.trials[number].ranks] != number]
        ahead = [self.trials[number] for number in range(count, len(self.trials))]
        if len(known) < FIRST:
            return None
        fitted = fit([self.trials[number].pairs for number in known], [self.seconds[number] for number in known])
        sure = sum(fitted.at(one.pairs) for one in ahead)
        begun = [number for number in starts.values() if number < count]
        extra = sum(max(0.0, self.seconds[n] - fitted.at(self.trials[n].pairs)) for n in begun) / len(begun)
        sure += extra * (len(starts) - len(begun))
        spread = SURE * fitted.error * sqrt(len(ahead) + len(ahead) ** 2 / len(known))
        largest = max(self.trials[number].pairs for number in range(count))
        return Range(max(0.0, sure - spread), sure + spread, sum(one.pairs > largest for one in ahead))

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self.live, self.drawn, self.spoken = False, False, float("inf")


class Fit(NamedTuple):
    """Seconds of a trial as a line over its pairs, and the standard deviation of what it misses."""

    base: float
    slope: float
    error: float

    def at(self, pairs: float) -> float:
        return self.base + self.slope * pairs


def fit(pairs: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Least squares with neither part below zero."""
    count, x, y = len(pairs), sum(pairs) / len(pairs), sum(seconds) / len(seconds)
    wide = sum((one - x) ** 2 for one in pairs)
    slope = sum((one - x) * (took - y) for one, took in zip(pairs, seconds, strict=True)) / wide if wide else 0.0
    base, slope = (y, 0.0) if slope <= 0 else (y - slope * x, slope)
    if base < 0:
        base, slope = 0.0, y / x
    missed = sum((took - base - slope * one) ** 2 for one, took in zip(pairs, seconds, strict=True))
    return Fit(base, slope, sqrt(missed / max(count - 2, 1)))


def spoken(seconds: float) -> str:
    """A time as a person says it: 41 s, 7 min, 2 h 10 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
