"""Error maps: where in tokens and heads, and between which ranks and owners, an answer is how far off."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reports import metrics, view
from reports.figure import Figure
from reports.figures import marks, naming, svg, values
from reports.metrics import Trial
from reports.record import Results

FAILURES, TENSORS, BINS, HEADS, RANKS = 4, 5, 128, 32, 16
STEPS = (0.1, 0.5, 1.0, 3.0, 10.0, math.inf)
TINTS = ("e0", "e1", "e2", "e3", "e4", "e5")
LEFT, WIDE, SIDE = 56, 700, 834


@dataclass(frozen=True)
class Map:
    """Ratios of one tensor, `cells` by row and column; None was not compared. `edges` are token starts and the end."""

    tensor: str
    by: tuple[str, str]
    cells: tuple[tuple[float | None, ...], ...]
    edges: tuple[float, ...]

    @property
    def worst(self) -> tuple[float, int, int] | None:
        """The largest ratio, its row and its column."""
        found = [
            (value, row, column)
            for row, line in enumerate(self.cells)
            for column, value in enumerate(line)
            if value is not None
        ]
        return max(found, key=lambda one: (values.beyond(one[0]), -one[1], -one[2]), default=None)


def errors(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """Maps of the worst failures, one a case name, then of the worst pass."""
    label = view.labels(trials)
    mapped = [(trial, maps, _worst(maps)) for trial in trials if (maps := _maps(trial.get("error_maps")))]
    mapped.sort(key=lambda row: (-values.beyond(row[2]), row[0]["case"]["id"], label(row[0])))
    failed = [row for row in mapped if row[0]["verdict"] in ("FAIL", "ERROR")]
    passed = [row for row in mapped if row[0]["verdict"] == "PASS"][:1]
    unlike: dict[tuple[str, str], tuple] = {}
    for row in failed:
        unlike.setdefault((naming.case(row[0], "name"), label(row[0])), row)
    shown = list(unlike.values())[:FAILURES]
    chosen = shown + passed
    if not chosen:
        return None
    parts, y = [_legend()], 26.0
    for trial, maps, worst in chosen:
        told = f"{'✓' if trial['verdict'] == 'PASS' else '✗'} {trial['case']['id']}  {label(trial)}"
        parts.append(svg.text(0, y + 14, f"{svg.cut(told, 110)}  worst {values.short(worst)}", "head"))
        part, height = _trial(maps, y + 24)
        parts.append(part)
        y += 24 + height
    caption = (
        "Largest error over budget by tokens (rightward) and heads (downward), and by rank of the row and owner "
        "of the keys or values; 1 is the line, lower is better. The outlined cell is the worst."
        + (f" Not shown: {len(failed) - len(shown)} more failures with maps." if len(failed) > len(shown) else "")
    )
    rows = tuple(row for trial, maps, _ in chosen for row in _rows(trial, label, maps))
    drawing = svg.drawing(marks.WIDTH, y, "Error over budget by tokens, heads, ranks and owners", "".join(parts))
    return Figure(
        "error-maps",
        "Where the errors are",
        drawing,
        caption,
        ("case", "implementation", "tensor", "map", "cells", "beyond 1", "worst", "worst at"),
        rows,
        "Error over budget",
    )


def _maps(told: Any) -> list[Map]:
    return [made for one in values.items(told) if (made := _map(values.table(one)))]


def _map(told: dict[str, Any]) -> Map | None:
    """A map with as many columns in each row, rows shared out where they are too many to draw."""
    by = tuple(str(one) for one in values.items(told.get("by")))
    cells = [[values.ratio(one) for one in values.items(row)] for row in values.items(told.get("ratios"))]
    most = max(map(len, cells), default=0)
    if by not in (("tokens", "heads"), ("ranks", "owners")) or not most:
        return None
    cells = [row + [None] * (most - len(row)) for row in cells]
    edges = tuple(values.numbers(told.get("edges")))
    edges = edges if len(edges) == len(cells) + 1 else tuple(map(float, range(len(cells) + 1)))
    found = Map(str(told.get("tensor")), by, tuple(map(tuple, cells)), edges)
    return found if found.worst else None


def _worst(maps: Sequence[Map]) -> float:
    return max((one.worst[0] for one in maps), key=values.beyond)


def _rows(trial: Trial, label: Callable[[Trial], str], maps: Sequence[Map]) -> list[tuple[str, ...]]:
    found = []
    for one in maps:
        worst, row, column = one.worst
        told = [value for line in one.cells for value in line if value is not None]
        over = sum(values.beyond(value) > metrics.LINE for value in told)
        found.append(
            (
                trial["case"]["id"],
                label(trial),
                one.tensor,
                " x ".join(one.by),
                str(len(told)),
                str(over),
                values.short(worst),
                _place(one, row, column),
            )
        )
    return found


def _place(one: Map, row: int, column: int) -> str:
    if one.by[0] == "tokens":
        return f"tokens {one.edges[row]:.0f} to {one.edges[row + 1] - 1:.0f}, head {column}"
    return f"rank {row}, owner {column}"


def _trial(maps: Sequence[Map], y: float) -> tuple[str, float]:
    """Tokens and heads on the left, ranks and owners on the right, tensors downward in both."""
    parts, ends = [], [y]
    for by, draw, left in (("tokens", _tokens, 0), ("ranks", _ranks, SIDE)):
        top, mine = y, {one.tensor: one for one in reversed(maps) if one.by[0] == by}
        for tensor, one in list(reversed(mine.items()))[:TENSORS]:
            part, height = draw(one, left + LEFT, top)
            parts += [svg.text(left, top + 10, svg.cut(tensor, 8), "head"), part]
            top += height + 8
        ends.append(top)
    return "".join(parts), max(ends) - y + 8


def _tokens(told: Map, left: float, y: float) -> tuple[str, float]:
    """Columns are bins of tokens, rows are heads; several share a cell where there are many, the worst counts."""
    starts = _shares(len(told.cells), BINS)
    heads = _shares(len(told.cells[0]), HEADS)
    cells = [[_most(told.cells, tokens, some) for tokens in starts] for some in heads]
    step, tall = WIDE / len(starts), min(14.0, max(5.0, 84 / len(heads)))
    marked = _cells(cells, left, y, step, tall)
    floor = y + tall * len(heads)
    edges = [told.edges[part.start] for part in starts] + [told.edges[-1]]
    every = max(1, math.ceil(len(edges) / 9))
    ticks = [
        (left + step * place, edges[place]) for place in range(0, len(edges) - (every > 1) * (every // 2 + 1), every)
    ]
    ticks += [(left + WIDE, edges[-1])] if ticks[-1][0] < left + WIDE - 1 else []
    told_heads = svg.text(left - 6, y + min(10, tall + 1), "h0", "end quiet")
    told_heads += (
        svg.text(left - 6, floor - 1, f"h{len(told.cells[0]) - 1}", "end quiet") if len(heads) * tall > 22 else ""
    )
    words = "".join(svg.text(x, floor + 12, f"{value:.0f}", "tick") for x, value in ticks)
    frame = svg.path("axis", svg.box(left, y - 0.5, WIDE, tall * len(heads)))
    unit = svg.text(left + WIDE + 26, floor + 12, "tokens", "quiet")
    return marked + frame + told_heads + words + unit, tall * len(heads) + 18


def _ranks(told: Map, left: float, y: float) -> tuple[str, float]:
    """Rows are ranks, columns are owners."""
    down, across = _shares(len(told.cells), RANKS), _shares(len(told.cells[0]), RANKS)
    cells = [[_most(told.cells, ranks, owners) for owners in across] for ranks in down]
    step, tall = min(38.0, 190 / len(across)), 15.0
    words = [svg.text(left + 36, y + 10, "owner of the keys", "quiet")]
    if step >= 20:
        words += [
            svg.text(left + 36 + step * (place + 0.5), y + 23, part.start, "tick") for place, part in enumerate(across)
        ]
    words += [
        svg.text(left + 30, y + 38 + tall * place, f"r{part.start}", "end quiet") for place, part in enumerate(down)
    ]
    if step >= 30:
        words += [
            svg.text(left + 36 + step * (x + 0.5) - 0.5, y + 38 + tall * place, values.brief(value), "mid")
            for place, row in enumerate(cells)
            for x, value in enumerate(row)
            if value is not None
        ]
    return _cells(cells, left + 36, y + 27, step, tall) + "".join(words), 27 + tall * len(down) + 4


def _shares(count: int, most: int) -> list[slice]:
    """`count` places in at most `most` shares, none of them empty."""
    made = min(count, most)
    return [slice(place * count // made, (place + 1) * count // made) for place in range(made)]


def _most(cells: Sequence[Sequence[float | None]], rows: slice, columns: slice) -> float | None:
    found = [value for row in cells[rows] for value in row[columns] if value is not None]
    return max(found, key=values.beyond, default=None)


def _cells(cells: list[list[float | None]], left: float, y: float, step: float, tall: float) -> str:
    """Tinted runs of cells, a path a tint, strokes on what is beyond 1, an outline of the worst."""
    boxes, strokes, worst = defaultdict(list), [], None
    for down, row in enumerate(cells):
        top, tints = y + tall * down, [_tint(value) for value in row]
        for across, value in enumerate(row):
            x = left + step * across
            if value is not None and (worst is None or values.beyond(value) > values.beyond(worst[0])):
                worst = value, x, top
            if tints[across] in TINTS[3:] and 5 <= step < 30:
                slant = f"l{svg.number(step - 3)} {svg.number(tall - 4)}"
                strokes.append(f"M{svg.number(x + 1.5)} {svg.number(top + 1.5)}{slant}")
        start = 0
        for end in range(1, len(row) + 1):
            if step >= 30 or end == len(row) or tints[end] != tints[start]:
                boxes[tints[start]].append(svg.box(left + step * start, top, step * (end - start) - 0.5, tall - 1))
                start = end
    tinted = "".join(svg.path(name, "".join(boxes[name])) for name in sorted(boxes))
    outline = svg.box(worst[1] - 1, worst[2] - 1, step + 1, tall + 1) if worst else ""
    return tinted + svg.path("cross", "".join(strokes)) + svg.path("ring", outline)


def _tint(value: float | None) -> str:
    return "en" if value is None else next(name for name, most in zip(TINTS, STEPS) if values.beyond(value) <= most)


def _legend() -> str:
    x, parts = 100.0, [svg.text(0, 11, "error / budget", "quiet")]
    for name, words in zip(TINTS, ("to 0.1", "to 0.5", "to 1", "✗ to 3", "✗ to 10", "✗ over 10")):
        parts += [svg.path(name, svg.box(x, 1, 22, 12)), svg.text(x + 28, 11, words)]
        x += 46 + svg.wide(words)
    return "".join([*parts, svg.path("en", svg.box(x, 1, 22, 12)), svg.text(x + 28, 11, "not compared")])
