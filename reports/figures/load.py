"""Load of every rank and hop under one layout after another: what a layout makes of the same mask."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from reports import metrics, view
from reports.figure import Figure
from reports.figures import marks, naming, svg, values
from reports.metrics import Trial
from reports.record import Results

CASES, LAYOUTS, RANKS = 6, 4, 8
WIDEST, EACH = 260, 236
BEFORE = "contiguous"
COLUMNS = (BEFORE, "zigzag", "striped", "balanced")
Work = dict[str, Any]


def load(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """For each mask the case with the largest imbalance before, beside what every known layout makes of it."""
    known = _known(trials)
    rows = [
        (key, name, made, area)
        for key, layouts in known.items()
        for name, (work, made) in layouts.items()
        if (area := values.numbers(work.get("area_by_rank")))
    ]
    if not rows:
        return None
    chosen = _chosen(known)
    drawing = _drawn(chosen, known)
    caption = (
        "Allowed pairs of each rank over the mean, one bar a rank, and who works on whose keys in per cent (rank "
        "downward, owner of the keys to the right) under each layout. max/mean is the load imbalance: 1 is even, lower "
        "is better. Contiguous is before; ● marks layouts that ran."
        + naming.left_out(len(known) - len(chosen), "cases")
    )
    table = tuple(
        (
            name,
            str(world),
            tokens,
            layout,
            "yes" if made else "no",
            *_told(known[name, world, tokens, *more][layout][0]),
        )
        for (name, world, tokens, *more), layout, made, _ in rows
    )
    return Figure(
        "load",
        "Load before and after the layout",
        drawing,
        caption,
        ("case", "world", "tokens", "layout", "ran", "max/mean", "pairs by rank", "remote share", "need bytes"),
        table,
        "Load imbalance",
    )


def _known(trials: Sequence[Trial]) -> dict[tuple, dict[str, tuple[Work, bool]]]:
    """Layouts of each case, from its own record and from its trials under other layouts, and whether they ran; cases of
    one rank or one layout have no before and after."""
    found: dict[tuple, dict[str, tuple[Work, bool]]] = defaultdict(dict)
    for trial in trials:
        work = values.table(trial.get("work"))
        key = (
            naming.case(trial, "name"),
            naming.world(trial),
            naming.case(trial, "tokens"),
            naming.case(trial, "batch"),
            naming.case(trial, "heads"),
            naming.rules(trial),
        )
        for name, one in values.table(work.get("layouts")).items():
            if _fits(one):
                found[key].setdefault(str(name), (one, False))
        if _fits(work):
            found[key][view.layout(trial) or "?"] = work, True
    return {key: layouts for key, layouts in found.items() if key[1] > 1 and len(layouts) > 1}


def _fits(work: Any) -> bool:
    """Whether this is a load of two ranks or more."""
    area = values.table(work).get("area_by_rank")
    return len(values.numbers(area)) == len(values.items(area)) > 1 and sum(area) > 0 and min(area) >= 0


def _chosen(known: dict) -> list[tuple]:
    """One case a mask, the least even one before, most ranks first."""
    found: dict[str, tuple] = {}
    for key in sorted(known, key=lambda key: (-min(key[1], RANKS), -_worst(known[key]), key)):
        found.setdefault(key[-1], key)
    return list(found.values())[:CASES]


def _worst(layouts: dict) -> float:
    return max(_imbalance(work) for work, _ in layouts.values())


def _imbalance(work: Work) -> float:
    return values.of(metrics.load_imbalance, {"work": work}) or 1.0


def _told(work: Work) -> tuple[str, ...]:
    area, need = values.numbers(work.get("area_by_rank")), values.numbers(work.get("need_bytes"))
    return (
        values.short(_imbalance(work)),
        " ".join(f"{one:.0f}" for one in area[:64]),
        values.short(values.of(metrics.remote_share, {"work": work})),
        f"{sum(need):.0f}" if need else "–",
    )


def _columns(chosen: list[tuple], known: dict) -> list[str]:
    """Layouts in the order of columns, the same for every case, before first; of too many those go that fewest ran."""
    ran: Counter[str] = Counter()
    for key in chosen:
        ran.update({name: 1 + made * len(chosen) for name, (_, made) in known[key].items()})
    kept = sorted(ran, key=lambda name: (name != BEFORE, -ran[name], name))[:LAYOUTS]
    return sorted(kept, key=lambda name: (COLUMNS.index(name) if name in COLUMNS else len(COLUMNS), name))


def _drawn(chosen: list[tuple], known: dict) -> str:
    parts, y = [], 0.0
    columns = _columns(chosen, known)
    label = min(WIDEST, marks.WIDTH + 8 - len(columns) * (EACH + 8))
    for key in chosen:
        name, world, tokens, *_, mask = key
        shown = min(world, RANKS)
        for line, (words, kind) in enumerate(((name, "head"), (mask, ""), (f"{tokens} tokens, w{world}", "quiet"))):
            parts.append(svg.text(0, y + 12 + 15 * line, svg.cut(words, int((label - 14) / 6.3)), kind))
        layouts = [layout for layout in columns if layout in known[key]]
        top = max(_peak(known[key][layout][0]) for layout in layouts)
        for layout in layouts:
            place = columns.index(layout)
            work, made = known[key][layout]
            parts.append(_layout(layout, work, made, label + place * (EACH + 8), y, shown, top))
        y += 26 + max(shown * 16, 36) + 16
    return svg.drawing(marks.WIDTH, y, "Load of ranks and hops by layout", "".join(parts))


def _peak(work: Work) -> float:
    area = values.numbers(work["area_by_rank"])
    return max(area) * len(area) / sum(area)


def _layout(name: str, work: Work, made: bool, left: float, y: float, shown: int, top: float) -> str:
    """Bars of ranks with the mean, and the matrix of hops beside them."""
    area = values.numbers(work["area_by_rank"])
    mean, room = sum(area) / len(area), 86
    told = f"{'● ' if made else ''}{name}"
    parts = [
        svg.text(left, y + 12, svg.cut(told, 17), "head"),
        svg.text(left + EACH - 16, y + 12, f"max/mean {_imbalance(work):.2f}", "end"),
    ]
    for rank, value in enumerate(area[:shown]):
        at = y + 22 + 16 * rank
        parts += [
            svg.text(left, at + 11, rank, "quiet"),
            svg.rect(f"o{rank % marks.HUES}", left + 14, at + 2, room * value / mean / top, 12),
            svg.text(left + 14 + room + 5, at + 11, f"{value / mean:.2f}"),
        ]
    line = svg.number(left + 14 + room / top)
    parts.append(svg.path("edge", f"M{line} {svg.number(y + 20)}v{shown * 16 + 4}"))
    return "".join(parts) + _hops(work.get("area_by_hop"), left + 140, y + 22, shown)


def _hops(told: Any, left: float, y: float, shown: int) -> str:
    """The matrix of ranks and owners, the darker the more, in per cent where there is room."""
    rows = [values.numbers(row)[:shown] for row in values.items(told)[:shown]]
    total = sum(sum(values.numbers(row)) for row in values.items(told))
    if total <= 0 or any(len(row) != len(rows) for row in rows):
        return ""
    cell = min(24.0, 84 / len(rows))
    most, parts = max(max(row) for row in rows) or 1, []
    for down, row in enumerate(rows):
        for across, value in enumerate(row):
            x, at, share = left + across * cell, y + down * 16, max(0.0, value / most)
            parts.append(svg.path(f"h{min(4, int(5 * share))}", svg.box(x, at, cell - 1, 15)))
            if cell >= 17:
                parts.append(svg.text(x + cell / 2 - 0.5, at + 11, f"{100 * value / total:.0f}", "mid small"))
    return "".join(parts)
