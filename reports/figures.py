"""Figures as inline SVG text, one function a figure: numbers in, markup out. Colours come from style.css by class."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

HUES = 8
LEVELS = (0.0, 0.34, 0.999)


def mask(picture: dict, title: str) -> str:
    """A mask, query rows downward, each cell tinted by the rank of the query; paler where only some pairs are allowed.

    `picture` is the record's: `allowed` n x n shares in 0..1, `owner` the rank of each query row. The strips on the
    left and top carry the rank of the queries and of the keys, as colour and as digit.
    """
    allowed, owner = picture["allowed"], picture["owner"]
    n = len(allowed)
    strip = n // 10 if n >= 30 else n / 10
    parts = [_path(f"o{rank % HUES} l{level}", boxes, strip) for (rank, level), boxes in _boxes(allowed, owner)]
    parts += [_strip(owner, strip, n)]
    edges = (
        "".join(f"M{strip:g} {y + strip:g}h{n}" for y in range(1, n) if owner[y] != owner[y - 1])
        if _runs(owner) <= 16
        else ""
    )
    side = n + strip
    frame = f"M{strip:g} {strip:g}h{n}v{n}h-{n}z"
    return _svg(side, side, title, f'{"".join(parts)}<path class="edge" d="{edges}{frame}"/>', "mask")


def bars(values: Sequence[float], title: str) -> str:
    """One horizontal bar a rank, labelled with its rank and its share of the mean; a line marks the mean."""
    mean = sum(values) / len(values) if values else 0
    top = max(values, default=0) or 1
    rows = []
    for rank, value in enumerate(values):
        y, share = 12 * rank, f"{value / mean:.2f}" if mean else "0"
        rows += [
            _text(0, y + 9, rank),
            _rect(f"o{rank % HUES} l2", 12, y + 1, 96 * value / top, 9),
            _text(112, y + 9, share),
        ]
    line = f'<path class="edge" d="M{12 + 96 * mean / top:.1f} 0V{12 * len(values)}"/>'
    return _svg(140, 12 * len(values), title, "".join(rows) + line, "bars")


def hops(area: Sequence[Sequence[float]], title: str) -> str:
    """Who works on whose keys: a rank a row, an owner of keys a column, the darker the more, the share in per cent."""
    total = sum(map(sum, area)) or 1
    top = max(map(max, area)) or 1
    cells = []
    for y, row in enumerate(area):
        cells += [_text(5, 16 * y + 25, y), _text(26 * y + 23, 10, y)]
        for x, value in enumerate(row):
            left, upper = 26 * x + 11, 16 * y + 14
            cells.append(f'<rect fill-opacity="{0.75 * value / top:.2f}" x="{left}" y="{upper}"/>')
            cells.append(_text(left + 12, upper + 11, f"{100 * value / total:.0f}"))
    return _svg(26 * len(area) + 12, 16 * len(area) + 14, title, "".join(cells), "hops")


def verdicts(counts: dict[str, int], title: str) -> str:
    """Counts as one stacked bar, a pattern of its own for everything that is not PASS."""
    total = sum(counts.values()) or 1
    x, parts = 0.0, []
    for verdict in ("PASS", "SKIP", "FAIL", "ERROR"):
        share = counts.get(verdict, 0) / total
        width = max(800 * share, 6) if share else 0
        if share:
            told = f"<title>{counts[verdict]} {verdict}</title>"
            parts.append(_rect(f"v-{verdict}", x, 0, width, 14, told))
            x += width
    return _svg(round(x) or 800, 14, title, "".join(parts), "verdicts", stretch=True)


def budgets(ratios: dict[str, list[float]], title: str, bins: int = 48) -> str:
    """Error/budget of every comparison, one histogram a row over a logarithmic axis, 1e-6 to 1e2; the line stands at 1.

    `ratios` maps a row label (tensor and dtype) to its ratios; zeros land left, infinities and NaN right. The
    bar's height is the square root of the count, so that one outlier is seen beside a thousand neighbours.
    """
    left, width, height = max(92, 6 * max(map(len, ratios))), 860, 24
    right, floor, line = left + width + 66, len(ratios) * height, left + width * _place(1.0)
    parts = []
    for row, (label, values) in enumerate(ratios.items()):
        base = (row + 1) * height
        parts += [_text(0, base - 5, label), f'<path class="base" d="M{left} {base}h{width}"/>']
        parts += [_histogram(values, bins, left, width, base, height - 5)]
        parts += [_text(right, base - 5, _number(max(values, key=_order)), "end")]
    for power in range(-6, 3, 2):
        parts.append(_text(left + width * _place(10.0**power), floor + 13, f"1e{power}" if power else "1", "tick"))
    parts += [f'<path class="line" d="M{line:.1f} 0V{floor + 3}"/>', _text(right, floor + 13, "worst", "end")]
    return _svg(left + width + 70, floor + 18, title, "".join(parts), "budgets")


def _histogram(values: list[float], bins: int, left: int, width: int, base: int, height: int) -> str:
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(_place(value) * bins))] += 1
    top = math.sqrt(max(counts))
    step = width / bins
    bars = []
    for index, count in enumerate(counts):
        if count:
            tall = max(2.0, height * math.sqrt(count) / top)
            beyond = " over" if index / bins >= _place(1.0) else ""
            bars.append(_rect(f"bin{beyond}", left + index * step, base - tall, step - 1, tall))
    return "".join(bars)


def _place(ratio: float) -> float:
    """Where a ratio stands on the axis of `budgets`, 0..1."""
    if math.isnan(ratio) or ratio >= 1e2:
        return 1.0
    return 0.0 if ratio <= 1e-6 else (math.log10(ratio) + 6) / 8


def _order(ratio: float) -> float:
    return math.inf if math.isnan(ratio) else ratio


def _number(value: float) -> str:
    return (
        "0"
        if value == 0
        else f"{value:.2f}"
        if 0.01 <= value < 100
        else f"{value:.0e}"
        if math.isfinite(value)
        else str(value)
    )


def _boxes(
    allowed: list[list[float]], owner: list[int]
) -> list[tuple[tuple[int, int], list[tuple[int, int, int, int]]]]:
    """Cells as few rectangles (x, y, width, height), by owner and level: equal runs of successive rows become one."""
    found: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    open_runs: dict[tuple[int, int, int, int], int] = {}
    for y, row in enumerate([*allowed, []]):
        runs = {(x, end, level, owner[y]) for x, end, level in _row_runs(row)}
        for run in sorted(set(open_runs) - runs):
            x, end, level, rank = run
            found.setdefault((rank, level), []).append((x, open_runs[run], end - x, y - open_runs[run]))
        open_runs = {run: open_runs.get(run, y) for run in runs}
    return sorted(found.items())


def _row_runs(row: list[float]) -> Iterable[tuple[int, int, int]]:
    """Runs (start, end, level) of cells of one level above nothing."""
    levels = [sum(share > level for level in LEVELS) - 1 for share in row]
    start = 0
    for x in range(1, len(levels) + 1):
        if x == len(levels) or levels[x] != levels[start]:
            if levels[start] >= 0:
                yield start, x, levels[start]
            start = x


def _path(name: str, boxes: Iterable[tuple[int, int, int, int]], offset: float) -> str:
    data = "".join(f"M{x + offset:g} {y + offset:g}h{width}v{height}h-{width}z" for x, y, width, height in boxes)
    return f'<path class="{name}" d="{data}"/>'


def _strip(owner: list[int], strip: float, n: int) -> str:
    """Ranks of the rows on the left and of the keys on top; digits where a run is long enough to hold one."""
    parts, start, wide = [], 0, 0.8 * strip
    for end in range(1, n + 1):
        if end < n and owner[end] == owner[start]:
            continue
        rank, size = owner[start], end - start
        down = f"M0 {start + strip:g}h{wide:g}v{size}h-{wide:g}z"
        across = f"M{start + strip:g} 0h{size}v{wide:g}h-{size}z"
        parts.append(f'<path class="o{rank % HUES} l2" d="{down}{across}"/>')
        if size >= strip:
            middle = start + strip + size / 2
            parts += [_text(wide / 2, middle + wide * 0.36, rank), _text(middle, wide * 0.86, rank)]
        start = end
    return f'<g font-size="{strip * 0.9:.2g}">{"".join(parts)}</g>'


def _text(x: float, y: float, text: object, name: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return f'<text{kind} x="{x:.4g}" y="{y:.4g}">{escape(str(text))}</text>'


def _rect(name: str, x: float, y: float, width: float, height: float, inside: str = "") -> str:
    return f'<rect class="{name}" x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}">{inside}</rect>'


def _runs(owner: list[int]) -> int:
    return 1 + sum(a != b for a, b in pairwise(owner))


def _svg(width: float, height: float, title: str, body: str, name: str, stretch: bool = False) -> str:
    aspect = ' preserveAspectRatio="none"' if stretch else f' width="{width}" height="{height}"'
    return (
        f'<svg class="{name}" viewBox="0 0 {width:g} {height:g}" role="img"{aspect}>'
        f"<title>{escape(title)}</title>{body}</svg>"
    )
