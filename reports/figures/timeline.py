"""One step of every rank over time: what it computes, what it sends and receives in which hop, when it waits."""

from collections.abc import Sequence

from reports import metrics, view
from reports.figure import Figure
from reports.figures import axes, marks, naming, svg, values
from reports.figures.lanes import Lane, Span, Transfer, length, of_trial
from reports.metrics import Trial
from reports.record import Results

DRAWN, RANKS, ROWS, EVENTS = 3, 8, 2, 400
LEFT, RIGHT, LANE = 96, 132, 13


def timeline(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """The recorded step of each implementation on most ranks with most work: a compute lane a rank over transfers."""
    read = [(trial, of_trial(trial)) for trial in trials]
    told = [(trial, lanes, length(trial, lanes)) for trial, lanes in read if any(lane.phases for lane in lanes)]
    label = view.labels(trials)
    chosen: dict[str, tuple] = {}
    for row in sorted(told, key=lambda row: (-len(row[1]), -_work(row[0]), -row[2], row[0]["case"]["id"])):
        chosen.setdefault(label(row[0]), row)
    if not chosen:
        return None
    drawn = sorted(chosen.items())[:DRAWN]
    parts, y = [_legend()], 24.0
    rows = tuple(_row(trial, name, rank, lane, whole) for name, (trial, lanes, whole) in sorted(chosen.items())
                 for rank, lane in enumerate(lanes))
    for name, (trial, lanes, whole) in drawn:
        title = f"{trial['case']['id']}  {name}"
        part, height = _step(title, lanes[:RANKS], whole, y)
        parts.append(part)
        y += height
    caption = (
        "One step of every rank: computing above, transfers below with the number of their hop; hatched waits are "
        "exposed communication, whose sum stands on the right, lower is better. Milliseconds from the start."
    )
    hidden = max(0, *(len(lanes) - RANKS for _, (_, lanes, _) in drawn))
    caption += naming.left_out(hidden, "ranks")
    caption += naming.left_out(len(chosen) - len(drawn), "implementations")
    head = ("case", "implementation", "rank", "step ms", "compute ms", "exposed ms", "exposed share", "transfers",
            "bytes")
    drawing = svg.drawing(marks.WIDTH, y, "One step of every rank over time", "".join(parts))
    return Figure("timeline", "One step over time", drawing, caption, head, rows, "Exposed communication")


def _work(trial: Trial) -> float:
    return values.of(metrics.flops_forward, trial) or 0.0


def _row(trial: Trial, name: str, rank: int, lane: Lane, whole: float) -> tuple[str, ...]:
    moved = sum(one.bytes or 0 for one in lane.transfers)
    times = (whole * 1e3, lane.compute * 1e3, lane.exposed * 1e3, lane.exposed / whole)
    return (trial["case"]["id"], name, str(rank), *map(values.short, times), str(len(lane.transfers)), f"{moved:.0f}")


def _step(title: str, lanes: Sequence[Lane], whole: float, y: float) -> tuple[str, float]:
    """One step with its axis, and the height it takes."""
    scale = axes.Scale(0, whole * 1e3, LEFT, marks.WIDTH - RIGHT)
    parts, top = [svg.text(0, y + 14, svg.cut(title, 120), "head")], y + 26
    for rank, lane in enumerate(lanes):
        part, height = _rank(rank, lane, scale, whole, top)
        parts.append(part)
        top += height
    parts += [
        axes.across(scale, top, values.short, 70),
        svg.text(marks.WIDTH - RIGHT + 10, top + 14, "ms", "quiet"),
        svg.path("axis", f"M{LEFT} {svg.number(top)}H{marks.WIDTH - RIGHT}"),
    ]
    return "".join(parts), top + 34 - y


def _rank(rank: int, lane: Lane, scale: axes.Scale, whole: float, y: float) -> tuple[str, float]:
    """A lane of computing over a lane of sends, of receives and of collectives, each where there are some."""
    right = marks.WIDTH - RIGHT + 10
    parts = [svg.text(0, y + 10, f"rank {rank}", "head"), _computing(lane, scale, whole, y),
             svg.text(right, y + 10, f"{values.short(lane.exposed * 1e3)} ms exposed"),
             svg.text(right, y + 23, f"{values.short(100 * lane.exposed / whole)} % of the step", "quiet")]
    top = y + LANE + 3
    for name, words in (("sent", "sends"), ("got", "receives"), ("all", "collectives")):
        mine = [one for one in lane.transfers if one.way == name][:EVENTS]
        if mine:
            rows = _stacked(mine)
            parts.append(svg.text(LEFT - 6, top + 10, words, "end quiet"))
            parts += [_moved(one, scale, top + row * (LANE + 1)) for one, row in zip(mine, rows)]
            top += (max(rows) + 1) * (LANE + 1)
    return "".join(parts), max(top - y, 2 * LANE) + 10


def _computing(lane: Lane, scale: axes.Scale, whole: float, y: float) -> str:
    """Phases with their names, hatched where the rank waits."""
    waits = lane.waits[:EVENTS]
    parts = [svg.text(LEFT - 6, y + 10, "compute", "end quiet")]
    for name, later in (("fwd", False), ("bwd", True)):
        spans = [span for kind, span in lane.phases if (kind == "backward") == later]
        parts.append(svg.path(name, "".join(_bar(span, scale, y, LANE) for span in spans)))
    parts += [svg.path("wait", "".join(_bar(span, scale, y, LANE) for span, _ in waits)), _hatch(waits, scale, y)]
    for name, (start, end) in lane.phases:
        told = svg.cut(name, 12)
        room = scale(end * 1e3) - scale(start * 1e3)
        if room > svg.wide(told) + 8 and not _covered((start, end), lane, whole):
            parts.append(svg.text(scale(start * 1e3) + 4, y + 10, told))
    return "".join(parts)


def _covered(span: Span, lane: Lane, whole: float) -> bool:
    """Whether a wait stands where a phase's name would."""
    room = span[0] + whole * 0.06
    return any(start < room and end > span[0] for (start, end), _ in lane.waits)


def _bar(span: Span, scale: axes.Scale, y: float, height: float) -> str:
    left = scale(span[0] * 1e3)
    return svg.box(left, y, max(scale(span[1] * 1e3) - left, 0.8), height)


def _hatch(waits: Sequence[tuple[Span, int | None]], scale: axes.Scale, y: float) -> str:
    """Slanted lines over the waits: the cue beside their colour."""
    data = []
    for (start, end), _ in waits:
        left, right = scale(start * 1e3), scale(end * 1e3)
        data += [
            f"M{svg.number(left + 5 * step)} {svg.number(y + LANE)}l4-{LANE}"
            for step in range(int(max(right - left - 4, 0) / 5) + 1)
            if right - left > 4
        ]
    return svg.path("hatch", "".join(data))


def _stacked(transfers: Sequence[Transfer]) -> list[int]:
    """Rows for transfers, so that what overlaps in time has a row of its own; the last row takes all else."""
    free: list[float] = []
    rows = []
    for one in sorted(transfers, key=lambda one: one.span):
        row = next((index for index, end in enumerate(free) if end <= one.span[0]), None)
        if row is None:
            row = len(free) if len(free) < ROWS else ROWS - 1
        free[row : row + 1] = [one.span[1]]
        rows.append((one, row))
    placed = {id(one): row for one, row in rows}
    return [placed[id(one)] for one in transfers]


def _moved(one: Transfer, scale: axes.Scale, top: float) -> str:
    """A bar with the number of its hop, where it has room."""
    left, right = scale(one.span[0] * 1e3), scale(one.span[1] * 1e3)
    told = "" if one.hop is None else str(one.hop)
    words = svg.text((left + right) / 2, top + 10, told, "hop") if told and svg.wide(told, 9) + 2 < right - left else ""
    return svg.path(one.way, _bar(one.span, scale, top, LANE)) + words


def _legend() -> str:
    x, parts = 0.0, []
    for name, words in (("fwd", "forward"), ("bwd", "backward"), ("wait", "waits: exposed communication"),
                        ("sent", "sends, by hop"), ("got", "receives, by hop"), ("all", "collectives")):
        parts += [svg.path(name, svg.box(x, 2, 22, 12)), svg.text(x + 28, 12, words)]
        if name == "wait":
            parts.append(svg.path("hatch", "".join(f"M{svg.number(x + 5 * step)} 14l4-12" for step in range(4))))
        x += 46 + svg.wide(words)
    return "".join(parts)
