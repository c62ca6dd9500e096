"""Pictures of a mask and of its load: who may attend whom, tinted by owner; work by rank and by hop."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from reports.figures.marks import HUES
from reports.figures.svg import drawing, rect, text
from reports.figures.values import finite

LEVELS = (0.0, 0.34, 0.999)


def mask(picture: dict, title: str) -> str:
    """A mask, query rows downward, each cell tinted by the rank of the query; paler where only some pairs are allowed.

    `picture` is the record's: `allowed` n x n shares in 0..1, `owner` the rank of each query row. The strips on the
    left and top carry the rank of the queries and of the keys, as colour and as digit.
    """
    allowed, owner = picture["allowed"], picture["owner"]
    n = len(allowed)
    strip = n // 10 if n >= 30 else n / 10
    parts = [_path(f"o{rank % HUES} l{level}", found, strip) for (rank, level), found in boxes(allowed, owner)]
    parts += [_strip(owner, strip, n)]
    edges = (
        "".join(f"M{strip:g} {y + strip:g}h{n}" for y in range(1, n) if owner[y] != owner[y - 1])
        if _runs(owner) <= 16
        else ""
    )
    side = n + strip
    frame = f"M{strip:g} {strip:g}h{n}v{n}h-{n}z"
    return drawing(side, side, title, f'{"".join(parts)}<path class="edge" d="{edges}{frame}"/>', "mask")


def bars(values: Sequence[float], title: str) -> str:
    """One horizontal bar a rank, labelled with its rank and its share of the mean; a line marks the mean."""
    values = [max(0.0, finite(value) or 0.0) for value in values]
    mean = sum(values) / len(values) if values else 0
    top = max(values, default=0) or 1
    rows = []
    for rank, value in enumerate(values):
        y, share = 12 * rank, f"{value / mean:.2f}" if mean else "0"
        rows += [
            text(0, y + 9, rank),
            rect(f"o{rank % HUES} l2", 12, y + 1, 96 * value / top, 9),
            text(112, y + 9, share),
        ]
    line = f'<path class="edge" d="M{12 + 96 * mean / top:.1f} 0V{12 * len(values)}"/>'
    return drawing(140, 12 * len(values), title, "".join(rows) + line, "bars")


def hops(area: Sequence[Sequence[float]], title: str) -> str:
    """Who works on whose keys: a rank a row, an owner of keys a column, the darker the more, the share in per cent."""
    area = [[max(0.0, finite(value) or 0.0) for value in row] for row in area]
    total = sum(map(sum, area)) or 1
    top = max((value for row in area for value in row), default=0) or 1
    cells = []
    for y, row in enumerate(area):
        cells += [text(5, 16 * y + 25, y), text(26 * y + 23, 10, y)]
        for x, value in enumerate(row):
            left, upper = 26 * x + 11, 16 * y + 14
            cells.append(f'<rect fill-opacity="{0.75 * value / top:.2f}" x="{left}" y="{upper}"/>')
            cells.append(text(left + 12, upper + 11, f"{100 * value / total:.0f}"))
    return drawing(26 * max(map(len, area), default=1) + 12, 16 * len(area) + 14, title, "".join(cells), "hops")


def boxes(
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
            parts += [text(wide / 2, middle + wide * 0.36, rank), text(middle, wide * 0.86, rank)]
        start = end
    return f'<g font-size="{strip * 0.9:.2g}">{"".join(parts)}</g>'


def _runs(owner: list[int]) -> int:
    return 1 + sum(a != b for a, b in pairwise(owner))
