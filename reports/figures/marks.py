"""The look of a series: one of eight colours, with a dash pattern and a shape of marker as the second cue; its key."""

from collections.abc import Iterable, Sequence

from reports.figures import svg
from reports.figures.svg import number

HUES = 8
DASHES = ("", "7 3", "2 3", "10 3 2 3", "5 2 1 2 1 2", "1 2", "12 4", "4 4")
WIDTH = 1120


def look(index: int) -> tuple[str, str, int]:
    """Colour class number, dashes and shape of series `index`; they repeat only after sixty-four."""
    return str(index % HUES), DASHES[(index + index // HUES) % HUES], (index + index // HUES) % HUES


def line(points: Sequence[tuple[float, float]], index: int) -> str:
    """Points joined in the look of series `index`."""
    hue, dash, _ = look(index)
    return svg.path(f"s{hue}", svg.polyline(list(points)), dash)


def dots(points: Iterable[tuple[float, float]], index: int, size: float = 3.2) -> str:
    """A marker at each place, once a place."""
    hue, _, shape = look(index)
    places = dict.fromkeys((round(x, 1), round(y, 1)) for x, y in points)
    name = f"s{hue}" if shape >= 5 else f"o{hue}"
    return svg.path(name, "".join(_marker(x, y, shape, size) for x, y in places))


def key(labels: Sequence[tuple[str, int | None]], width: float, top: float = 12) -> tuple[str, float]:
    """Samples with their labels, in lines of at most `width`; and the height they take. None is the bound's look."""
    x, y, parts = 0.0, top, []
    for label, index in labels:
        told = svg.cut(label, 60)
        taken = 44 + svg.wide(told)
        if x and x + taken > width:
            x, y = 0.0, y + 16
        parts.append(sample(x, y - 3.5, index) + svg.text(x + 32, y, told))
        x += taken
    return "".join(parts), y + 8


def sample(x: float, y: float, index: int | None) -> str:
    """A short piece of the series' line with its marker."""
    if index is None:
        return svg.path("bound", f"M{number(x)} {number(y)}h26")
    return line([(x, y), (x + 26, y)], index) + dots([(x + 13, y)], index)


def _marker(x: float, y: float, shape: int, size: float) -> str:
    at, r = f"M{number(x)} {number(y)}", number(size)
    d, half = number(2 * size), number(size * 1.2)
    if shape in (0, 7):
        return f"M{number(x - size)} {number(y)}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0-{d} 0z"
    if shape == 1:
        return svg.box(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8)
    if shape in (2, 4):
        up = 1 if shape == 2 else -1
        return f"M{number(x)} {number(y - up * size * 1.2)}l{half} {number(up * size * 2)}h-{number(size * 2.4)}z"
    if shape == 3:
        return (
            f"M{number(x)} {number(y - size * 1.3)}l{r} {number(size * 1.3)}l-{r} {number(size * 1.3)}"
            f"l-{r}-{number(size * 1.3)}z"
        )
    if shape == 5:
        return f"{at}m-{r}-{r}l{d} {d}m0-{d}l-{d} {d}"
    return f"{at}m-{r} 0h{d}m-{r}-{r}v{d}"
