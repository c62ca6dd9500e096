"""The conformance matrix: cases downward, implementation, world and dtype to the right, worst error over budget."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports import metrics, rows, view
from reports.figure import Figure
from reports.figures import marks, naming, svg, values
from reports.metrics import Trial
from reports.record import Results

ORDER = ("SKIP", "PASS", "?", "FAIL", "ERROR")
GLYPHS = {"SKIP": "–", "PASS": "✓", "FAIL": "✗", "ERROR": "!"}
TINTS = ((0.01, "p0"), (0.1, "p1"), (0.5, "p2"), (0.8, "p3"), (1.0, "p4"), (10.0, "f0"), (math.inf, "f1"))
MEANING = (
    ("p0", "below 0.01"),
    ("p1", "to 0.1"),
    ("p2", "to 0.5"),
    ("p3", "to 0.8"),
    ("p4", "to 1"),
    ("f0", "✗ beyond 1"),
    ("f1", "✗ over 10"),
    ("er", "! error"),
    ("sk", "– skipped"),
)
NAMES, FOLDED_FROM, HEADS, LINKS = 150, 48, 60, 800
LABEL, TITLE, CELL, NARROW, LINE = 212, 126, 42, 13, 15
Column = tuple[int, str]


@dataclass(frozen=True)
class Cell:
    """Trials of one place: the worst verdict, the worst ratio, how many they are, and the anchor of the worst."""

    verdict: str
    ratio: float | None
    trials: int
    anchor: str

    @property
    def order(self) -> tuple[int, float]:
        """The worse, the more."""
        known = self.verdict if self.verdict in ORDER else "?"
        return ORDER.index(known), -1.0 if self.ratio is None else values.beyond(self.ratio)

    @property
    def bad(self) -> bool:
        return self.verdict not in ("PASS", "SKIP")

    @property
    def tint(self) -> str:
        if self.verdict in ("SKIP", "ERROR") or self.verdict not in GLYPHS:
            return "sk" if self.verdict == "SKIP" else "er"
        if self.verdict == "FAIL":
            return "f0" if self.ratio is not None and self.ratio <= 10 else "f1"
        return next((name for most, name in TINTS if self.ratio is not None and self.ratio <= most), "p0")

    @property
    def words(self) -> str:
        number = "" if self.ratio is None or self.verdict in ("SKIP", "ERROR") else values.brief(self.ratio)
        return GLYPHS.get(self.verdict, "?") + number


def merged(cells: Iterable[Cell]) -> Cell:
    """One cell for several: worst verdict, worst ratio."""
    cells = list(cells)
    worst = max(cells, key=lambda one: one.order)
    ratios = [one.ratio for one in cells if one.ratio is not None]
    ratio = max(ratios, key=values.beyond, default=None)
    return Cell(worst.verdict, ratio, sum(one.trials for one in cells), worst.anchor)


def conformance(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """Every case name against every implementation, world and dtype that asked for it."""
    if not trials:
        return None
    label, anchors = view.labels(trials), rows.anchors(trials)
    found: dict[tuple[str, str, Column], list[Cell]] = defaultdict(list)
    for trial in trials:
        key = label(trial), naming.case(trial, "name"), (naming.world(trial), naming.case(trial, "dtype"))
        found[key].append(Cell(trial["verdict"], _ratio(trial), 1, anchors[id(trial)]))
    cells = {key: merged(ones) for key, ones in found.items()}
    groups = {naming.case(trial, "name"): str(trial["case"].get("group") or "other") for trial in trials}
    drawing, folded = _drawn(cells, groups)
    caption = (
        "A case a row, numbers of ranks (w) and dtypes to the right; a cell is the worst error over budget of its "
        "layouts and tensors, 1 is the line, lower is better. A cell leads to its worst trial." + folded
    )
    table = tuple(
        (name, who, str(world), dtype, str(cell.trials), cell.verdict, values.short(cell.ratio))
        for (who, name, (world, dtype)), cell in cells.items()
    )
    return Figure(
        "conformance",
        "Conformance",
        drawing,
        caption,
        ("case", "implementation", "world", "dtype", "trials", "worst verdict", "error/budget"),
        table,
        "Error over budget",
    )


def _ratio(trial: Trial) -> float | None:
    deviation = metrics.worst(trial)
    return values.ratio(deviation["ratio"]) if deviation else None


def _drawn(cells: dict, groups: dict[str, str]) -> tuple[str, str]:
    """The drawing of all implementations, side by side where they have room, and a sentence on what is folded."""
    heads = {who: _heads(cells, who) for who in dict.fromkeys(who for who, _, _ in cells)}
    parts, y, folded, linked = [_legend()], 34.0, set(), len(cells) <= LINKS
    for together in _bands(heads):
        lines, names = _rows({key: cell for key, cell in cells.items() if key[0] in together}, groups)
        folded |= names
        parts.append(_labels(lines, y))
        left = float(LABEL)
        for who in together:
            cell = _cell(heads[who])
            parts.append(_matrix(who, cells, lines, heads[who], left, y, cell, linked))
            left += max(len(heads[who]) * cell, TITLE) + 16
        y += 44 + len(lines) * LINE + 16
    told = f" {len(folded)} names that pass everywhere are one row a group." if folded else ""
    lost = len({(who, column) for who, _, column in cells}) - sum(map(len, heads.values()))
    told += naming.left_out(lost, "columns")
    return svg.drawing(
        marks.WIDTH, y, "Worst error over budget by case, implementation, world and dtype", "".join(parts)
    ), told


def _cell(heads: list[Column]) -> int:
    return CELL if len(heads) * CELL + LABEL <= marks.WIDTH else NARROW


def _bands(heads: dict[str, list[Column]]) -> list[list[str]]:
    """Implementations that stand side by side."""
    bands, taken = [], math.inf
    for who, columns in heads.items():
        wide = max(len(columns) * _cell(columns), TITLE) + 16
        if taken + wide > marks.WIDTH - LABEL + 16:
            bands.append([])
            taken = 0
        bands[-1].append(who)
        taken += wide
    return bands


def _heads(cells: dict, who: str) -> list[Column]:
    """The columns of an implementation, by world and dtype; where there are too many, those with failures stay."""
    found: Counter[Column] = Counter()
    for (name, _, column), cell in cells.items():
        if name == who:
            found[column] += 1 + len(cells) * cell.bad
    return sorted(sorted(found, key=lambda column: (-found[column], column))[:HEADS])


def _rows(cells: dict, groups: dict[str, str]) -> tuple[list[tuple[str, list[str]]], set[str]]:
    """Rows of these cells as a label and its names, and the names that were folded."""
    asked = dict.fromkeys(name for _, name, _ in cells)
    if len(asked) <= FOLDED_FROM:
        return [(name, [name]) for name in asked], set()
    bad = list(dict.fromkeys(name for (_, name, _), cell in cells.items() if cell.bad))
    shown, rows, folded = set(bad[:NAMES]), [], set()
    for group in dict.fromkeys(groups[name] for name in asked):
        names = [name for name in asked if groups[name] == group]
        good = [name for name in names if name not in bad]
        more = [name for name in names if name in bad and name not in shown]
        folded |= set(good) if len(good) > 1 else set()
        rows += [(good[0] if len(good) == 1 else f"{group}: {len(good)} names", good)] if good else []
        rows += [(name, [name]) for name in names if name in shown]
        rows += [(f"{group}: {len(more)} more that fail", more)] if more else []
    return rows, folded


def _labels(lines: list[tuple[str, list[str]]], y: float) -> str:
    words = "".join(
        svg.text(0, y + 54 + LINE * place, svg.cut(label, int((LABEL - 10) / 6.02)))
        for place, (label, _) in enumerate(lines)
    )
    return words


def _matrix(
    who: str, cells: dict, lines: list[tuple[str, list[str]]], heads: list[Column], left: float, y: float, cell: int,
    linked: bool
) -> str:
    """One implementation. Every cell leads to a trial while `linked`, else those that are bad alone; Tab stops at the
    bad ones."""
    boxes, words, links = defaultdict(list), [], []
    title = svg.cut(who, int(max(len(heads) * cell, TITLE) / 6.7))
    parts = [svg.text(left, y + 10, title, "head"), _top(heads, left, y, cell)]
    for down, (_, names) in enumerate(lines):
        for across, column in enumerate(heads):
            inside = [cells[who, name, column] for name in names if (who, name, column) in cells]
            if inside:
                one, x, top = merged(inside), left + across * cell, y + 44 + down * LINE
                box, told = svg.box(x, top, cell - 1, LINE - 1), one.words if cell == CELL else one.words[:1]
                word = svg.text(x + (cell - 1) / 2, top + 10.5, told)
                if one.bad or linked:
                    links.append(svg.link(one.anchor, svg.path(one.tint, box) + word, skipped=not one.bad))
                else:
                    boxes[one.tint].append(box)
                    words.append(word)
    tinted = "".join(svg.path(name, "".join(boxes[name])) for name in sorted(boxes))
    return "".join(parts) + tinted + svg.group("mid", "".join(words + links))


def _top(heads: list[Column], left: float, y: float, cell: int) -> str:
    """Worlds over dtypes; without room for words worlds alone."""
    parts, worlds = [], [world for world, _ in heads]
    for world in dict.fromkeys(worlds):
        first, count = worlds.index(world), worlds.count(world)
        x = left + first * cell
        told = svg.cut(f"w{world}", max(1, int(count * cell / 6.02)))
        line = f"M{svg.number(x)} {svg.number(y + 29)}h{count * cell - 3}"
        parts += [svg.text(x, y + 25, told), svg.path("axis", line)]
    if cell == CELL:
        parts += [
            svg.text(left + place * cell + (cell - 1) / 2, y + 40, svg.cut(dtype, 6), "tick")
            for place, (_, dtype) in enumerate(heads)
        ]
    return "".join(parts)


def _legend() -> str:
    x, parts = 0.0, [svg.text(0, 11, "error / budget", "quiet")]
    x = 100.0
    for name, words in MEANING:
        parts += [svg.path(name, svg.box(x, 1, 14, 13)), svg.text(x + 19, 11, words)]
        x += 36 + svg.wide(words)
    return "".join(parts)
