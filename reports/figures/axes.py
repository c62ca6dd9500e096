"""Axes: scales that put numbers on a drawing, their ticks, and labels moved apart."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.figures import svg
from reports.figures.values import short


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` between the places `start` and `end`; outside them at the nearer end."""

    low: float
    high: float
    start: float
    end: float
    base: int = 0

    def __call__(self, value: float) -> float:
        if self.base:
            low, high = math.log(self.low), math.log(self.high)
            share = (math.log(value) - low) / (high - low) if value > 0 else 0.0
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def ticks(self, most: int) -> list[float]:
        """At most `most` round numbers of the scale, two where it can be."""
        if self.base == 2 or self.base and self.high / self.low > 4:
            found = _powers(self.low, self.high, self.base)
        else:
            found = _steps(self.low, self.high, most)
        return found[:: max(1, math.ceil(len(found) / max(most, 1)))]


def linear(values: Sequence[float], start: float, end: float) -> Scale:
    """From 0, or the least where it is negative, to a round number above the largest."""
    top, low = max([*values, 0.0]), min([*values, 0.0])
    step = _step(max(top - low, 1e-29) / 4)
    high = math.ceil(top / step - 1e-9) * step
    return Scale(math.floor(low / step) * step, high if high > low else low + step, start, end)


def logarithmic(values: Sequence[float], start: float, end: float, base: int = 10) -> Scale:
    """Round numbers around positive `values`; a lone value stands in the middle."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    if base == 2 or high / low < 1.5:
        pad = max(1.12, 2 / (high / low))
        return Scale(low / pad, high * pad, start, end, base)
    return Scale(_round(low, math.floor), _round(high, math.ceil), start, end, base)


def across(
    scale: Scale, y: float, form: Callable[[float], str] = short, room: float = 46, marked: Sequence[float] = ()
) -> str:
    """Tick marks and labels of an axis that lies at height `y`, at the places `marked` where they are given and have
    room."""
    ticks = _apart(scale, marked, room / 2) or scale.ticks(int(abs(scale.end - scale.start) / room) or 1)
    marks = "".join(f"M{svg.number(scale(tick))} {svg.number(y)}v4" for tick in ticks)
    return svg.path("axis", marks) + "".join(svg.text(scale(tick), y + 14, form(tick), "tick") for tick in ticks)


def _apart(scale: Scale, marked: Sequence[float], room: float) -> list[float]:
    """Those of the places that stand far enough from the one before."""
    found: list[float] = []
    for value in sorted(marked):
        if not found or scale(value) - scale(found[-1]) >= room:
            found.append(value)
    return found


def upward(scale: Scale, x: float, width: float, form: Callable[[float], str] = short, room: float = 24) -> str:
    """Pale lines over `width` at the ticks of an upright axis, labelled on the left of `x`."""
    ticks = scale.ticks(int(abs(scale.end - scale.start) / room) or 1)
    marks = "".join(f"M{svg.number(x)} {svg.number(scale(tick))}h{svg.number(width)}" for tick in ticks)
    return svg.path("grid", marks) + "".join(
        svg.text(x - 6, scale(tick) + 3.5, form(tick), "end quiet") for tick in ticks
    )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, at least `gap` apart where `low` to `high` has room for that; in their order."""
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    gap = min(gap, (high - low) / (len(wanted) - 1)) if len(wanted) > 1 else gap
    placed, edge = [], low
    for index in order:
        edge = max(edge, wanted[index])
        placed.append(edge)
        edge += gap
    edge = high
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], edge)
        edge = placed[place] - gap
    found = [0.0] * len(wanted)
    for index, place in zip(order, placed):
        found[index] = place
    return found


def _step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= rough * (1 - 1e-9))


def _steps(low: float, high: float, most: int) -> list[float]:
    """Multiples of the smallest round step that are at most `most`."""
    step = _step(max((high - low) / max(most, 1), 1e-29))
    while True:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < max(most, 2):
            return [index * step for index in range(first, last + 1)]
        step = _step(step * 1.01)


def _powers(low: float, high: float, base: int) -> list[float]:
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    found = [float(base) ** power for power in range(first, last + 1)]
    if base == 10 and len(found) < 3:
        found = [times * 10.0**power for power in range(first - 1, last + 1) for times in (1, 2, 5)]
        found = [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    return found or [math.sqrt(low) * math.sqrt(high)]


def _round(value: float, way: Callable[[float], int]) -> float:
    """The next of 1, 2, 5 times a power of ten below or above."""
    power = 10.0 ** math.floor(math.log10(value))
    choices = [times * power for times in (1, 2, 5, 10)]
    if way is math.floor:
        return max(one for one in choices if one <= value * (1 + 1e-9))
    return min(one for one in choices if one >= value * (1 - 1e-9))
