"""Strips of raw samples: every timed iteration as a dot over its median, so that noise is seen and not averaged."""

from collections.abc import Sequence
from statistics import median

from reports import metrics, view
from reports.figure import Figure
from reports.figures import axes, marks, svg, values
from reports.metrics import Trial
from reports.record import Results

STRIPS, DOTS, LABEL, MADE, GAP, LINE = 32, 200, 236, 130, 18, 16
TIMES = (("forward_s", "forward"), ("backward_s", "backward"), ("step_s", "forward + backward"))
Row = tuple[Trial, dict[str, list[float]]]


def samples(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """A row a trial, a column forward, backward and both; the trials with the widest spread where there are many."""
    rows = [(trial, times) for trial, times in ((trial, _times(trial)) for trial in trials) if times]
    if not rows:
        return None
    label = view.labels(trials)
    order = sorted(rows, key=lambda row: (-_spread(row[0]), row[0]["case"]["id"], label(row[0])))[:STRIPS]
    kept = {id(trial) for trial, _ in order}
    shown = [row for row in rows if id(row[0]) in kept]
    caption = (
        "Every timed iteration over the median of its trial, which stands beside it in milliseconds; slowest rank of "
        "each iteration, a narrow strip is a steady time."
    )
    if len(shown) < len(rows):
        caption += f" The {len(shown)} trials of the widest spread; {len(rows) - len(shown)} more are steadier."
    table = tuple(
        (
            trial["case"]["id"],
            label(trial),
            words,
            str(len(times[name])),
            *(values.short(1e3 * number) for number in (min(times[name]), median(times[name]), max(times[name]))),
        )
        for trial, times in shown
        for name, words in TIMES
        if name in times
    )
    several = len({label(trial) for trial, _ in shown}) > 1
    made = [label(trial) if several else "" for trial, _ in shown]
    return Figure(
        "samples",
        "Raw samples",
        _drawn(shown, made),
        caption,
        ("case", "implementation", "what", "iterations", "least ms", "median ms", "most ms"),
        table,
        "Step time",
    )


def _times(trial: Trial) -> dict[str, list[float]]:
    measured = values.table(trial.get("measurement"))
    found = {name: [one for one in values.numbers(measured.get(name)) if values.positive(one)] for name, _ in TIMES}
    return {name: times for name, times in found.items() if times}


def _spread(trial: Trial) -> float:
    return values.of(metrics.relative_spread, trial) or 0.0


def _drawn(rows: list[Row], made: list[str]) -> str:
    """`made` is the implementation of each row, or nothing where there is only one."""
    shares = [one / median(times) for _, found in rows for times in found.values() for one in times]
    label = LABEL + (MADE if any(made) else 0)
    each = (marks.WIDTH - label - 2 * GAP) / 3
    low, high = min([*shares, 0.95]) / 1.02, max([*shares, 1.05]) * 1.02
    parts, top, floor = [], 22.0, 22.0 + LINE * len(rows)
    for place, ((trial, _), who) in enumerate(zip(rows, made)):
        parts.append(svg.text(0, top + LINE * place + 11, svg.cut(trial["case"]["id"], int((LABEL - 8) / 6.02))))
        told = svg.cut(who, int((MADE - 8) / 6.02))
        parts.append(svg.text(LABEL, top + LINE * place + 11, told, "quiet") if who else "")
    for column, (name, words) in enumerate(TIMES):
        left = label + column * (each + GAP)
        scale = axes.Scale(low, high, left + 6, left + each - 62, 10)
        times = [(place, found[name]) for place, (_, found) in enumerate(rows) if name in found]
        parts += [svg.text(left, 12, words, "head"), svg.text(left + each, 12, "median ms", "end quiet"),
                  axes.across(scale, floor, values.short, 36), _frame(scale, left, top, floor, each - 56),
                  *(_strip(found, scale, top + LINE * place, left + each) for place, found in times)]
    parts.append(svg.text(marks.WIDTH, floor + 28, "time / median of the trial", "end quiet"))
    return svg.drawing(marks.WIDTH, floor + 34, "Every timed iteration over the median of its trial", "".join(parts))


def _frame(scale: axes.Scale, left: float, top: float, floor: float, width: float) -> str:
    middle = svg.number(scale(1.0))
    line = svg.path("axis", f"M{svg.number(left)} {svg.number(floor)}h{svg.number(width)}")
    return line + svg.path("grid", f"M{middle} {svg.number(top)}V{svg.number(floor)}")


def _strip(times: list[float], scale: axes.Scale, y: float, right: float) -> str:
    middle = median(times)
    places = dict.fromkeys(svg.number(round(scale(one / middle), 1)) for one in times[:DOTS])
    dots = "".join(f"M{place} {svg.number(y + LINE / 2)}h0" for place in places)
    tick = f"M{svg.number(scale(1.0))} {svg.number(y + 2)}v{LINE - 4}"
    return (
        svg.path("dots", dots) + svg.path("middle", tick) + svg.text(right, y + 11, values.short(middle * 1e3), "end")
    )
