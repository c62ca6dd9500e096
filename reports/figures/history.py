"""History over runs: the step time of every case and environment against its first run, and verdicts that changed."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from reports import metrics, view
from reports.figure import Figure
from reports.figures import axes, marks, svg, values
from reports.metrics import Trial
from reports.record import Results, Run

LABELLED, RUNS, LEFT, RIGHT = 8, 60, 56, 300
NOTABLE = 0.03
GOOD, BAD = "PASS", ("FAIL", "ERROR")


@dataclass(frozen=True)
class Line:
    """One case of one implementation in one environment: (place of the run, step in ms or None, verdict) by time."""

    case: str
    who: str
    where: str
    told: tuple[tuple[int, float | None, str], ...]

    @property
    def times(self) -> list[tuple[int, float]]:
        return [(place, step) for place, step, _ in self.told if step]

    @property
    def change(self) -> float:
        """The last time over the first, 1 where there are fewer than two."""
        return self.times[-1][1] / self.times[0][1] if len(self.times) > 1 else 1.0

    @property
    def turns(self) -> list[tuple[int, str]]:
        """Runs at which the verdict became another, and whether it broke or was fixed."""
        judged = [(place, verdict) for place, _, verdict in self.told if verdict == GOOD or verdict in BAD]
        return [
            (place, "broke" if now in BAD else "fixed")
            for (_, before), (place, now) in zip(judged, judged[1:])
            if (before in BAD) != (now in BAD)
        ]


def history(trials: Sequence[Trial], files: Sequence[Results]) -> Figure | None:
    """Cases that at least two runs have; nothing for a single run."""
    runs = _runs(files)
    found = _lines(runs, trials)
    used = sorted({place for line in found for place, *_ in line.told})[-RUNS:]
    lines = [line for line in (_within(line, used) for line in found) if len(line.told) > 1]
    if not lines:
        return None
    told = [_time(run) for run in runs]
    turned = sum(len(line.turns) for line in lines)
    caption = (
        "Median step of every case, implementation and environment over its first run, runs in order of time and "
        "evenly spaced whatever lies between them; below 1 "
        "is faster. The heavy line is the median of all; ✗ and ✓ below the axis count cases that broke or were fixed. "
        + (f"{turned} verdicts changed." if turned else "No verdict changed.")
    )
    head = ("case", "implementation", "environment", "runs", "step ms by run", "last / first", "verdict changes")
    rows = tuple((line.case, line.who, line.where, str(len(line.told)),
                  " ".join(values.short(step) for _, step, _ in line.told),
                  values.short(line.change if len(line.times) > 1 else None),
                  ", ".join(f"{turn} {told[place]}" for place, turn in line.turns)) for line in lines)
    return Figure("history", "History", _drawn(lines, used, told), caption, head, rows, "Step time")


def _runs(files: Sequence[Results]) -> list[Run]:
    """Runs with trials by their time; equal times stay in the order of files."""
    return sorted((run for results in files for run in results.runs if run.trials), key=_time)


def _time(run: Run) -> str:
    return str(run.header.get("time") or "?")


def _where(run: Run) -> str:
    """The environment as far as it decides a time: devices, torch, processor."""
    told = values.table(run.header.get("environment"))
    devices = [str(one) for one in values.items(told.get("devices"))]
    kinds = ", ".join(f"{devices.count(one)} x {one}" for one in dict.fromkeys(devices))
    return " ".join(str(part) for part in (kinds, told.get("processor"), f"torch {told.get('torch')}") if part)


def _lines(runs: Sequence[Run], trials: Sequence[Trial]) -> list[Line]:
    label = view.labels([*trials, *(trial for run in runs for trial in run.trials)])
    found: dict[tuple[str, str, str, str], dict[int, tuple]] = defaultdict(dict)
    for place, run in enumerate(runs):
        for trial in run.trials:
            key = trial["case"]["id"], str(trial["case"].get("digest")), label(trial), _where(run)
            found[key][place] = place, values.positive(values.of(metrics.step_ms, trial)), trial["verdict"]
    return [
        Line(case, who, where, tuple(told.values()))
        for (case, _, who, where), told in sorted(found.items())
        if len(told) > 1
    ]


def _within(line: Line, used: Sequence[int]) -> Line:
    return Line(line.case, line.who, line.where, tuple(one for one in line.told if one[0] in used))


def _drawn(lines: list[Line], used: list[int], told: list[str]) -> str:
    timed = [line for line in lines if len(line.times) > 1]
    shares = [step / line.times[0][1] for line in timed for _, step in line.times]
    top, floor, right = 30.0, 250.0, marks.WIDTH - RIGHT
    up = axes.logarithmic([*shares, 0.8, 1.25], floor, top)
    step = (right - LEFT - 40) / max(len(used) - 1, 1)
    x = {place: LEFT + 20 + index * step for index, place in enumerate(used)}
    parts = [
        svg.text(0, 12, "median step over the first run of the case", "quiet"),
        axes.upward(up, LEFT, right - LEFT),
        svg.path("bound", f"M{LEFT} {svg.number(up(1.0))}H{svg.number(right)}"),
        _dates(x, told, floor),
        *(svg.text(right + 22, floor + 15 + 13 * line, words, "quiet")
          for line, words in enumerate(("runs in order of time,", "evenly spaced"))),
    ]
    moved = _moved([line for line in timed if line.times[-1][0] == used[-1]] or timed)
    parts.append(svg.path("pale", "".join(svg.polyline(_points(line, x, up)) for line in timed if line not in moved)))
    for index, line in enumerate(moved):
        parts += [marks.line(_points(line, x, up), index), marks.dots(_points(line, x, up), index)]
    if len(timed) > 2:
        parts.append(svg.path("heavy", svg.polyline(_middle(timed, x, up))))
    return svg.drawing(
        marks.WIDTH,
        floor + 58,
        "Step time over runs, and verdicts that changed",
        "".join(parts) + _labels(moved, x, up, right) + _turns(lines, x, floor + 48),
    )


def _moved(timed: list[Line]) -> list[Line]:
    """The lines with a look and a label, of those that go on to the last run: all while they are few, else those that
    changed most."""
    order = sorted(timed, key=lambda line: (-abs(math.log(line.change)), line.case, line.who))
    far = [line for line in order if abs(math.log(line.change)) > NOTABLE]
    return (order if len(order) <= LABELLED else far or order[:1])[:LABELLED]


def _points(line: Line, x: dict[int, float], up: axes.Scale) -> list[tuple[float, float]]:
    return [(x[place], up(step / line.times[0][1])) for place, step in line.times]


def _middle(lines: list[Line], x: dict[int, float], up: axes.Scale) -> list[tuple[float, float]]:
    found = defaultdict(list)
    for line in lines:
        for place, step in line.times:
            found[place].append(step / line.times[0][1])
    return [(x[place], up(median(found[place]))) for place in sorted(found)]


def _labels(moved: list[Line], x: dict[int, float], up: axes.Scale, right: float) -> str:
    """Names of the cases that changed most, beside their ends."""
    ends = [_points(line, x, up)[-1] for line in moved]
    several = len({line.who for line in moved}) > 1
    words = [f"{line.change:.2f} {line.case}{f' {line.who}' if several else ''}" for line in moved]
    places = axes.spread([y for _, y in ends], 13, up.end, up.start)
    leaders = "".join(
        f"M{svg.number(at + 5)} {svg.number(y)}L{svg.number(right + 6)} {svg.number(place)}"
        for (at, y), place in zip(ends, places)
    )
    return svg.path("leader", leaders) + "".join(
        svg.text(right + 10, place + 3.5, svg.cut(one, int((RIGHT - 12) / 6.02))) for one, place in zip(words, places)
    )


def _dates(x: dict[int, float], told: list[str], floor: float) -> str:
    """Times of runs, as many as have room: date over clock."""
    places = list(x)
    step = (x[places[-1]] - x[places[0]]) / max(len(places) - 1, 1)
    every = max(1, math.ceil(76 / max(step, 1)))
    parts = [
        svg.path(
            "axis",
            f"M{LEFT} {svg.number(floor)}H{marks.WIDTH - RIGHT}"
            + "".join(f"M{svg.number(x[place])} {svg.number(floor)}v4" for place in places),
        )
    ]
    for place in places[::every]:
        date, _, clock = told[place].partition("T")
        parts += [
            svg.text(x[place], floor + 15, svg.cut(date, 12), "tick"),
            svg.text(x[place], floor + 28, svg.cut(clock[:5], 6), "tick"),
        ]
    return "".join(parts)


def _turns(lines: list[Line], x: dict[int, float], y: float) -> str:
    """Counts of cases that broke and were fixed, under their run."""
    found = defaultdict(lambda: [0, 0])
    for line in lines:
        for place, turn in line.turns:
            found[place][turn == "fixed"] += 1
    parts = [svg.text(0, y, "verdicts", "quiet")] if found else []
    for place, (broke, fixed) in sorted(found.items()):
        told = " ".join(f"{glyph}{count}" for glyph, count in (("✗", broke), ("✓", fixed)) if count)
        parts.append(svg.text(x[place], y, told, "mid bad" if broke else "mid good"))
    return "".join(parts)
