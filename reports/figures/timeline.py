"""One step of every rank over time: what it computes, what it sends and receives in which hop, when it waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports import metrics, view
from reports.figure import Figure
from reports.figures import axes, marks, naming, svg, values
from reports.metrics import Trial
from reports.record import Results

DRAWN, RANKS, LANES, EVENTS = 3, 8, 2, 400
LEFT, RIGHT, LANE = 96, 132, 13
Span = tuple[float, float]


@dataclass(frozen=True)
class Transfer:
    """One call that moves bytes: seconds from the start of the step, what it is, of which hop."""

    span: Span
    kind: str
    peer: int | None
    bytes: float | None
    hop: int | None
    phase: str

    @property
    def way(self) -> str:
        """The lane it is drawn in: sent, got or all."""
        return "sent" if self.kind == "send" else "got" if self.kind in ("receive", "recv") else "all"


@dataclass(frozen=True)
class Lane:
    """What one rank did: phases by name, transfers, waits with their hops."""

    phases: tuple[tuple[str, Span], ...]
    transfers: tuple[Transfer, ...]
    waits: tuple[tuple[Span, int | None], ...]

    @property
    def exposed(self) -> float:
        return metrics.exposed_s({"waits": [span for span, _ in self.waits]})

    @property
    def compute(self) -> float:
        phases = [(name, *span) for name, span in self.phases]
        return metrics.compute_s({"phases": phases, "waits": [span for span, _ in self.waits]})


def timeline(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """The longest recorded step of each implementation, most ranks first: a compute lane a rank over its transfers."""
    read = [(trial, _lanes(trial)) for trial in trials]
    told = [(trial, lanes, _length(trial, lanes)) for trial, lanes in read if any(lane.phases for lane in lanes)]
    label = view.labels(trials)
    chosen: dict[str, tuple] = {}
    for row in sorted(told, key=lambda row: (-len(row[1]), -row[2], row[0]["case"]["id"])):
        chosen.setdefault(label(row[0]), row)
    if not chosen:
        return None
    drawn = sorted(chosen.items())[:DRAWN]
    parts, y = [_legend()], 24.0
    rows = [_row(trial, name, rank, lane, length) for name, (trial, lanes, length) in sorted(chosen.items())
            for rank, lane in enumerate(lanes)]
    for name, (trial, lanes, length) in drawn:
        title = f"{trial['case']['id']}  {name}"
        part, height = _step(title, lanes[:RANKS], length, y)
        parts.append(part)
        y += height
    caption = (
        "One step of every rank: computing above, transfers below with the number of their hop; hatched waits are "
        "exposed communication, whose sum stands on the right, lower is better. Milliseconds from the start."
    )
    hidden = max(0, *(len(lanes) - RANKS for _, (_, lanes, _) in drawn))
    caption += naming.left_out(hidden, "ranks")
    caption += naming.left_out(len(chosen) - len(drawn), "implementations")
    head = (
        "case",
        "implementation",
        "rank",
        "step ms",
        "compute ms",
        "exposed ms",
        "exposed share",
        "transfers",
        "bytes",
    )
    return Figure(
        "timeline",
        "One step over time",
        svg.drawing(marks.WIDTH, y, "One step of every rank over time", "".join(parts)),
        caption,
        head,
        tuple(rows),
        "Exposed communication",
    )


def _row(trial: Trial, name: str, rank: int, lane: Lane, length: float) -> tuple[str, ...]:
    moved = sum(one.bytes or 0 for one in lane.transfers)
    return (
        trial["case"]["id"],
        name,
        str(rank),
        values.short(length * 1e3),
        values.short(lane.compute * 1e3),
        values.short(lane.exposed * 1e3),
        values.short(lane.exposed / length),
        str(len(lane.transfers)),
        f"{moved:.0f}",
    )


def _lanes(trial: Trial) -> list[Lane]:
    return [_lane(values.table(one)) for one in values.items(values.table(trial.get("timeline")).get("ranks"))]


def _lane(told: dict[str, Any]) -> Lane:
    phases = [(str(one[0]), span) for one in values.items(told.get("phases")) if (span := _span(one, 1))]
    waits = [(span, _whole(one[2:3])) for one in values.items(told.get("waits")) if (span := _span(one, 0))]
    moved = [_transfer(values.table(one)) for one in values.items(told.get("transfers"))]
    return Lane(tuple(phases), tuple(one for one in moved if one), tuple(waits))


def _transfer(told: dict[str, Any]) -> Transfer | None:
    span = _span([told.get("start"), told.get("end")], 0)
    return span and Transfer(
        span,
        str(told.get("kind")),
        _whole([told.get("peer")]),
        values.positive(told.get("bytes")),
        _whole([told.get("hop")]),
        str(told.get("phase")),
    )


def _span(told: Any, first: int) -> Span | None:
    pair = [values.finite(one) for one in values.items(told)[first : first + 2]]
    return (pair[0], pair[1]) if len(pair) == 2 and None not in pair and 0 <= pair[0] <= pair[1] else None


def _whole(told: list[Any]) -> int | None:
    number = values.finite(told[0]) if told else None
    return None if number is None else int(number)


def _length(trial: Trial, lanes: list[Lane]) -> float:
    ends = [span[1] for lane in lanes for _, span in lane.phases] + [
        one.span[1] for lane in lanes for one in lane.transfers
    ]
    return max(values.positive(values.table(trial.get("timeline")).get("step_s")) or 0, *ends, 1e-9)


def _step(title: str, lanes: Sequence[Lane], length: float, y: float) -> tuple[str, float]:
    """One step with its axis, and the height it takes."""
    scale = axes.Scale(0, length * 1e3, LEFT, marks.WIDTH - RIGHT)
    parts, top = [svg.text(0, y + 14, svg.cut(title, 120), "head")], y + 26
    for rank, lane in enumerate(lanes):
        part, height = _rank(rank, lane, scale, length, top)
        parts.append(part)
        top += height
    parts += [
        axes.across(scale, top, values.short, 70),
        svg.text(marks.WIDTH - RIGHT + 10, top + 14, "ms", "quiet"),
        svg.path("axis", f"M{LEFT} {svg.number(top)}H{marks.WIDTH - RIGHT}"),
    ]
    return "".join(parts), top + 34 - y


def _rank(rank: int, lane: Lane, scale: axes.Scale, length: float, y: float) -> tuple[str, float]:
    """A lane of computing over a lane of sends, of receives and of collectives, each where there are some."""
    right = marks.WIDTH - RIGHT + 10
    parts = [svg.text(0, y + 10, f"rank {rank}", "head"), _computing(lane, scale, length, y),
             svg.text(right, y + 10, f"{values.short(lane.exposed * 1e3)} ms exposed"),
             svg.text(right, y + 23, f"{100 * lane.exposed / length:.0f} % of the step", "quiet")]
    top = y + LANE + 3
    for name, words in (("sent", "sends"), ("got", "receives"), ("all", "collectives")):
        mine = [one for one in lane.transfers if one.way == name][:EVENTS]
        if mine:
            rows = _stacked(mine)
            parts.append(svg.text(LEFT - 6, top + 10, words, "end quiet"))
            parts += [_moved(one, scale, top + row * (LANE + 1)) for one, row in zip(mine, rows)]
            top += (max(rows) + 1) * (LANE + 1)
    return "".join(parts), max(top - y, 2 * LANE) + 10


def _computing(lane: Lane, scale: axes.Scale, length: float, y: float) -> str:
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
        if room > svg.wide(told) + 8 and not _covered((start, end), lane, length):
            parts.append(svg.text(scale(start * 1e3) + 4, y + 10, told))
    return "".join(parts)


def _covered(span: Span, lane: Lane, length: float) -> bool:
    """Whether a wait stands where a phase's name would."""
    room = span[0] + length * 0.06
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
            row = len(free) if len(free) < LANES else LANES - 1
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
