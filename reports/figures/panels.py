"""Small multiples of points over x, one scale for all of them, each series labelled where it ends."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from reports.figures import axes, marks, svg
from reports.figures.values import short

Point = tuple[float, float]
GAP = 28
LEFT, ABOVE, BELOW = 50, 40, 36
DIRECT = 4
AUTO = -1


@dataclass(frozen=True)
class Series:
    """Points of one look, `joined` through the median at each x. `index` None is a bound: dashes, no markers."""

    label: str
    index: int | None
    points: tuple[Point, ...]
    joined: bool = True


@dataclass(frozen=True)
class Panel:
    """One plot: its title, series, level lines (place on y, words), and lines of single cases behind them."""

    title: str
    series: tuple[Series, ...]
    levels: tuple[tuple[float, str], ...] = ()
    pale: tuple[tuple[Point, ...], ...] = ()

    @property
    def seen(self) -> list[Point]:
        """All that must be in sight."""
        points = [point for one in (*(one.points for one in self.series), *self.pale) for point in one]
        return points + [(x, level) for level, _ in self.levels for x, _ in points[:1]]


@dataclass(frozen=True)
class Axis:
    """Title with unit, how ticks are written, base of the logarithm: 0 is linear from zero, AUTO as values ask."""

    title: str
    base: int = 0
    form: Callable[[float], str] = short

    def scale(self, values: Sequence[float], start: float, end: float) -> axes.Scale:
        base = steep(values) if self.base == AUTO else self.base
        return axes.logarithmic(values, start, end, base) if base else axes.linear(values, start, end)


def steep(values: Sequence[float], times: float = 20) -> int:
    """10 where values spread over more than `times`, so that a logarithm is due; else 0."""
    return 10 if values and min(values) > 0 and max(values) / min(values) > times else 0


def grid(panels: Sequence[Panel], title: str, x: Axis, y: Axis, key: Sequence[tuple[str, int | None]],
         shared: bool = True) -> str:
    """The drawing: the key, then the panels in rows of two or three; `shared` is one scale upward for all of them.

    Labels beside the series need room between their ends; where there are too many, the key alone names them.
    """
    across = min(len(panels), 2 if len(panels) in (2, 4) else 3)
    width = min((marks.WIDTH - GAP * (across - 1)) / across, 640.0)
    height = 230 if across < 3 else 200
    label = 8.0 if any(len(panel.series) > DIRECT for panel in panels) else _room(panels, width)
    told, top = marks.key(key, marks.WIDTH) if len(key) > 1 else ("", 0.0)
    xs, ys = zip(*(point for panel in panels for point in panel.seen))
    parts = []
    for place, panel in enumerate(panels):
        left, upper = (place % across) * (width + GAP), top + 8 + (place // across) * (height + GAP)
        right = left + width - label
        up = y.scale(ys if shared else [value for _, value in panel.seen], upper + height - BELOW, upper + ABOVE)
        parts.append(_plot(panel, x.scale(xs, left + LEFT + 8, right - 8), up, left + LEFT, right, x, y, label))
    rows = -(-len(panels) // across)
    return svg.drawing(marks.WIDTH, top + rows * (height + GAP), title, told + "".join(parts))


def _room(panels: Sequence[Panel], width: float) -> float:
    """What direct labels get on the right of a panel."""
    longest = max((svg.wide(one.label) for panel in panels for one in panel.series), default=0)
    return min(longest + 22, width * 0.34)


def _plot(
    panel: Panel, across: axes.Scale, up: axes.Scale, left: float, right: float, x: Axis, y: Axis, label: float
) -> str:
    floor, top = up.start, up.end
    parts = [
        svg.text(left - LEFT, top - 26, svg.cut(panel.title, int((right - left + LEFT + label) / 6.7)), "head"),
        svg.text(left - LEFT, top - 11, y.title, "quiet"),
        axes.upward(up, left, right - left, y.form),
        axes.across(across, floor, x.form),
        svg.path("axis", f"M{svg.number(left)} {svg.number(floor)}H{svg.number(right)}"),
        svg.text(right, floor + 28, x.title, "end quiet"),
    ]
    for level, words in panel.levels:
        at = svg.number(up(level))
        parts += [
            svg.path("bound", f"M{svg.number(left)} {at}H{svg.number(right)}"),
            svg.text(right - 4, up(level) - 4, words, "end quiet"),
        ]
    parts.append(svg.path("pale", "".join(svg.polyline([(across(x), up(y)) for x, y in one]) for one in panel.pale)))
    for one in sorted(panel.series, key=lambda one: one.index is not None):
        parts.append(_series(one, across, up))
    ends = "" if label < 20 else _ends(panel.series, across, up, right, int((label - 18) / 6.02))
    return "".join(parts) + ends


def _series(one: Series, across: axes.Scale, up: axes.Scale) -> str:
    path = [(across(x), up(y)) for x, y in middles(one.points)]
    places = [(across(x), up(y)) for x, y in one.points]
    if one.index is None:
        bars = "".join(f"M{svg.number(x - 8)} {svg.number(y)}h16" for x, y in dict.fromkeys(places))
        return svg.path("bound", svg.polyline(path)) if _single(one.points) else svg.path("limit", bars)
    return (marks.line(path, one.index) if one.joined else "") + marks.dots(places, one.index)


def _ends(series: Sequence[Series], across: axes.Scale, up: axes.Scale, right: float, room: int) -> str:
    """Labels beside the last points, moved apart, each with a fine line to its series."""
    ends = [(across(x), up(y)) for one in series if one.points for x, y in middles(one.points)[-1:]]
    told = [svg.cut(one.label, room) for one in series if one.points]
    places = axes.spread([y for _, y in ends], 12, up.end, up.start)
    leaders = "".join(
        f"M{svg.number(x + 6)} {svg.number(y)}L{svg.number(right + 9)} {svg.number(place)}"
        for (x, y), place in zip(ends, places)
    )
    words = (svg.text(right + 12, place + 3.5, label) for label, place in zip(told, places))
    return svg.path("leader", leaders) + "".join(words)


def _single(points: Sequence[Point]) -> bool:
    """Whether one line can stand for the points: several x, and nearly one y at each."""
    found = defaultdict(list)
    for x, y in points:
        found[x].append(y)
    return len(found) > 1 and all(max(ys) <= 1.05 * min(ys) for ys in found.values())


def middles(points: Sequence[Point]) -> list[Point]:
    """The median y at each x, from left to right."""
    found = defaultdict(list)
    for x, y in points:
        found[x].append(y)
    return [(x, median(found[x])) for x in sorted(found)]
