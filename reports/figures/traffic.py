"""Bytes that a step sent against the least that its mask allows."""

import math
from collections import defaultdict
from collections.abc import Sequence

from reports import metrics
from reports.figure import Figure
from reports.figures import naming, panels, values
from reports.figures.panels import Axis, Panel, Series
from reports.metrics import Trial
from reports.record import Results

SERIES = 8


def traffic(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """Sent over least against the least, a point a trial; without need a ratio cannot be drawn, only told."""
    found = [
        (trial, least, sent)
        for trial in trials
        if (least := values.of(metrics.least_bytes, trial)) is not None
        and (sent := values.of(metrics.sent_bytes, trial)) is not None
    ]
    rows = sorted(
        ((trial, least, sent) for trial, least, sent in found if least >= 0 and sent >= 0),
        key=lambda row: (row[0]["case"]["id"], row[1]),
    )
    drawable = [row for row in rows if row[1] > 0 and row[2] > 0]
    if not drawable:
        return None
    idle = sum(least == 0 and sent > 0 for _, least, sent in rows)
    silent = sum(least > 0 and sent == 0 for _, least, sent in rows)
    caption = (
        "Bytes that all ranks sent in a forward and backward, over the least that the mask allows with every remote "
        "key kept for the backward; 1 is the least, lower is better. Sending the keys a second time makes it 1.33 "
        "in 16 bits and 1.5 in wider dtypes."
    )
    caption += f" {idle} trials sent bytes where none were needed." if idle else ""
    caption += f" {silent} trials needed bytes and counted none." if silent else ""
    svg, note = _drawn(drawable)
    called = naming.series([trial for trial, *_ in rows])
    table = tuple(
        (
            trial["case"]["id"],
            called(trial),
            f"{sent:.0f}",
            f"{least:.0f}",
            values.short(sent / least if least else math.inf if sent else None),
        )
        for trial, least, sent in rows
    )
    return Figure(
        "traffic",
        "Bytes sent against the least possible",
        svg,
        caption + note,
        ("case", "series", "bytes sent", "least bytes", "sent / least"),
        table,
        "Bytes sent over least",
    )


def _drawn(rows: list[tuple[Trial, float, float]]) -> tuple[str, str]:
    called, kinds, note = naming.drawable([trial for trial, *_ in rows], SERIES)
    points = defaultdict(list)
    for trial, least, sent in rows:
        points[called(trial)].append((least, sent / least))
    series = tuple(Series(kind, index, tuple(points[kind]), joined=False) for index, kind in enumerate(kinds))
    drawn = Panel("all masks", series, ((1.0, "least possible"),))
    x, y = Axis("least bytes of a step", 10, size), Axis("bytes sent / least possible", panels.AUTO)
    key = [(kind, index) for index, kind in enumerate(kinds)]
    return panels.grid([drawn], "Bytes sent over the least possible bytes", x, y, key), note


def size(count: float) -> str:
    """Bytes with a decimal prefix."""
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{values.short(count / 10**power)} {unit}"
    return f"{values.short(count)} B"
