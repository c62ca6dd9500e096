"""Small multiples of points over x, one scale for all of them, each series labelled where it ends."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from reports.figures import axes, marks, svg
from reports.figures.values import short

Point = tuple[float, float]
GAP = 28
LEFT, ABOVE, BELOW, ALONE = 50, 40, 36, 640
DIRECT = 4
AUTO = -1


@dataclass(frozen=True)
class Series:
    """Points of one look, `joined` through the median at each x: all, or those of each of the `lines`, since what
    differs in more than x is no line. `index` None is a bound: dashes, no markers."""

    label: str
    index: int | None
    points: tuple[Point, ...]
    joined: bool = True
    lines: tuple[tuple[Point, ...], ...] = ()

    @property
    def paths(self) -> list[list[Point]]:
        """Each line through its medians."""
        return [middles(one) for one in self.lines or (self.points,)] if self.joined else []


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
    marked: tuple[float, ...] = ()
    """Where its ticks are; none leaves them to the scale."""

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
    width = (marks.WIDTH - GAP * (across - 1)) / across
    height = 230 if across < 3 else 200
    direct = all(len(panel.series) <= DIRECT for panel in panels)
    label = _room(panels, width, direct)
    width = min(width, ALONE + label)
    named = direct and len(panels) == 1 and _longest(panels) + 22 <= label
    told, top = marks.key(key, marks.WIDTH) if len(key) > 1 and not named else ("", 0.0)
    xs, ys = zip(*(point for panel in panels for point in panel.seen))
    parts = []
    for place, panel in enumerate(panels):
        left, upper = (place % across) * (width + GAP), top + 8 + (place // across) * (height + GAP)
        right = left + width - label
        up = y.scale(ys if shared else [value for _, value in panel.seen], upper + height - BELOW, upper + ABOVE)
        over = x.scale(xs, left + LEFT + 8, right - 8)
        parts.append(_plot(panel, over, up, left + LEFT, right, x, y, label, direct))
    rows = -(-len(panels) // across)
    return svg.drawing(marks.WIDTH, top + rows * (height + GAP), title, told + "".join(parts))


def _room(panels: Sequence[Panel], width: float, direct: bool) -> float:
    """What labels get on the right of a panel: those of levels, and of series where they are named there."""
    levels = max((svg.wide(words) for panel in panels for _, words in panel.levels), default=0)
    return max(8.0, min(_longest(panels) + 22, width * 0.36) if direct else 0.0, levels + 12 if levels else 0.0)


def _longest(panels: Sequence[Panel]) -> float:
    return max((svg.wide(one.label) for panel in panels for one in panel.series), default=0)


def _plot(
    panel: Panel, across: axes.Scale, up: axes.Scale, left: float, right: float, x: Axis, y: Axis, label: float,
    direct: bool
) -> str:
    floor, top = up.start, up.end
    parts = [
        svg.text(left - LEFT, top - 26, svg.cut(panel.title, int((right - left + LEFT + label) / 6.7)), "head"),
        svg.text(left - LEFT, top - 11, y.title, "quiet"),
        axes.upward(up, left, right - left, y.form),
        axes.across(across, floor, x.form, marked=x.marked),
        svg.path("axis", f"M{svg.number(left)} {svg.number(floor)}H{svg.number(right)}"),
        svg.text(right, floor + 28, x.title, "end quiet"),
    ]
    parts += [
        svg.path("bound", f"M{svg.number(left)} {svg.number(up(level))}H{svg.number(right)}")
        for level, _ in panel.levels
    ]
    parts.append(svg.path("pale", "".join(svg.polyline([(across(x), up(y)) for x, y in one]) for one in panel.pale)))
    for one in sorted(panel.series, key=lambda one: one.index is not None):
        parts.append(_series(one, across, up))
    named = panel.series if direct else ()
    return "".join(parts) + _ends(named, panel.levels, across, up, right, int((label - 12) / 6.02))


def _series(one: Series, across: axes.Scale, up: axes.Scale) -> str:
    paths = [[(across(x), up(y)) for x, y in path] for path in one.paths]
    if one.index is None:
        single = [point for path in paths if len(path) == 1 for point in path]
        bars = "".join(f"M{svg.number(x - 8)} {svg.number(y)}h16" for x, y in dict.fromkeys(single))
        return svg.path("bound", "".join(map(svg.polyline, paths))) + svg.path("limit", bars)
    joined = "".join(marks.line(path, one.index) for path in paths)
    return joined + marks.dots([(across(x), up(y)) for x, y in one.points], one.index)


def _ends(
    series: Sequence[Series], levels: Sequence[tuple[float, str]], across: axes.Scale, up: axes.Scale, right: float,
    room: int
) -> str:
    """Labels of levels and beside the last points, moved apart, each with a fine line to what it names."""
    ends = [(across(x), up(y)) for one in series if one.points for x, y in [_end(one.points)]]
    ends += [(right - 6, up(level)) for level, _ in levels]
    told = [svg.cut(one.label, room) for one in series if one.points] + [svg.cut(words, room) for _, words in levels]
    places = axes.spread([y for _, y in ends], 12, up.end, up.start)
    leaders = "".join(
        f"M{svg.number(x + 6)} {svg.number(y)}L{svg.number(right + 9)} {svg.number(place)}"
        for (x, y), place in zip(ends, places)
    )
    words = (svg.text(right + 12, place + 3.5, label) for label, place in zip(told, places))
    return svg.path("leader", leaders) + "".join(words)


def _end(points: Sequence[Point]) -> Point:
    """Of the points furthest right the one in the middle, so that a label leads to something that is there."""
    last = sorted(point for point in points if point[0] == max(x for x, _ in points))
    return last[(len(last) - 1) // 2]


def middles(points: Sequence[Point]) -> list[Point]:
    """The median y at each x, from left to right."""
    found = defaultdict(list)
    for x, y in points:
        found[x].append(y)
    return [(x, median(found[x])) for x in sorted(found)]
