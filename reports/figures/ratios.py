"""Verdicts as one bar, and errors over budgets as histograms."""

import math

from reports.figures.svg import columns, cut, drawing, rect, text
from reports.figures.values import beyond, ratio, short

LABEL = 48


def verdicts(counts: dict[str, int], title: str) -> str:
    """Counts as one stacked bar, a pattern of its own for everything that is not PASS."""
    total = sum(counts.values()) or 1
    x, parts = 0.0, []
    for verdict in ("PASS", "SKIP", "FAIL", "ERROR"):
        share = counts.get(verdict, 0) / total
        width = max(800 * share, 6) if share else 0
        if share:
            told = f"<title>{counts[verdict]} {verdict}</title>"
            parts.append(rect(f"v-{verdict}", x, 0, width, 14, told))
            x += width
    return drawing(round(x) or 800, 14, title, "".join(parts), "verdicts", stretch=True)


def budgets(ratios: dict[str, list[float]], title: str, bins: int = 48) -> str:
    """Error/budget of every comparison, one histogram a row over a logarithmic axis, 1e-6 to 1e2; the line stands at 1.

    `ratios` maps a row label (tensor and dtype) to its ratios; zeros land left, infinities and NaN right. The
    bar's height is the square root of the count, so that one outlier is seen beside a thousand neighbours.
    """
    left, width, height = max(92, 6.1 * max(columns(cut(label, LABEL)) for label in ratios) + 10), 860, 24
    right, floor, line = left + width + 66, len(ratios) * height, left + width * _place(1.0)
    parts = []
    for row, (label, values) in enumerate(ratios.items()):
        base, values = (row + 1) * height, [told for value in values if (told := ratio(value)) is not None]
        parts += [text(0, base - 5, cut(label, LABEL)), f'<path class="base" d="M{left:g} {base}h{width}"/>']
        parts += [_histogram(values, bins, left, width, base, height - 5)]
        parts += [text(right, base - 5, short(max(values, key=beyond, default=0.0)), "end")]
    for power in range(-6, 3, 2):
        beyond_it = {-6: "≤ ", 2: "≥ "}.get(power, "")
        parts.append(text(left + width * _place(10.0**power), floor + 13, f"{beyond_it}{short(10.0**power)}", "tick"))
    parts += [f'<path class="line" d="M{line:.1f} 0V{floor + 3}"/>', text(right, floor + 13, "worst", "end")]
    return drawing(left + width + 70, floor + 18, title, "".join(parts), "budgets")


def _histogram(values: list[float], bins: int, left: float, width: int, base: int, height: int) -> str:
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
            bars.append(rect(f"bin{beyond}", left + index * step, base - tall, step - 1, tall))
    return "".join(bars)


def _place(ratio: float) -> float:
    """Where a ratio stands on the axis of `budgets`, 0..1."""
    if math.isnan(ratio) or ratio >= 1e2:
        return 1.0
    return 0.0 if ratio <= 1e-6 else (math.log10(ratio) + 6) / 8
