"""A comparison in words: a text table, Markdown, JSON. Text of records is shown as text, whatever it holds."""

import json
import re
from collections.abc import Iterable, Sequence

from reports import non_finite, view, visible
from reports.compare.comparison import Comparison
from reports.compare.noise import Noise
from reports.compare.states import QUIET, REGRESSIONS, Row
from reports.record import Results

HEAD = ("state", "metric", "case", "implementation", "old", "new", "ratio", "interval", "note")
LONG = 1000
CELL = 160
UPRIGHT = (4, 5, 6)
"""Columns of numbers, aligned at their right end."""
MARK = "<!-- ringcheck compare -->"
UNSTEADY = 0.1
WARNED = 20
"""Lines of what could not be read; the rest is counted."""
LINES = 500
"""Rows of a Markdown table; the rest is counted."""


def text(comparison: Comparison, every: bool = False) -> str:
    """Lines about what was compared, the table worst first, and the sum. `every`: also what is insignificant or the
    same."""
    table = [HEAD, *(cells(row, shown) for row, shown in folded(comparison.rows, every))]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEAD))]

    def line(parts: Sequence[str]) -> str:
        put = [f"{part:>{width}}" if column in UPRIGHT else f"{part:<{width}}"
               for column, (part, width) in enumerate(zip(parts, widths))]
        return "  ".join(put).rstrip()

    lines = [f"# {one}" for one in [*preface(comparison), *view.few_lines(warnings(comparison), WARNED)]]
    lines += [f"# {line(HEAD)}", *(f"  {line(one)}" for one in table[1:])] if table[1:] else []
    return "\n".join([*lines, f"# {visible.line(comparison.total, LONG)}"])


def markdown(comparison: Comparison) -> str:
    """The same for a job summary: at most LINES rows, the sum first."""
    found = folded(comparison.rows)
    lines = [MARK, f"**{_escaped(comparison.total)}**", ""]
    if found:
        lines += [f"| {' | '.join(HEAD)} |", "|" + "---|" * 4 + "---:|" * 3 + "---|" * 2]
        lines += [f"| {' | '.join(map(_escaped, cells(*one)))} |" for one in found[:LINES]]
    if len(found) > LINES:
        lines += ["", f"and {len(found) - LINES} more rows"]
    lines += ["", *(f"- {_escaped(one)}" for one in
                    [*preface(comparison), *view.few_lines(warnings(comparison), WARNED)])]
    return "\n".join(lines) + "\n"


def as_json(comparison: Comparison) -> str:
    """All rows, every one, with their notes; one object of kind "comparison", no NaN."""
    rule = comparison.rule
    told = {
        "kind": "comparison", "schema": 1,
        "old": [one.path for one in comparison.old], "new": [one.path for one in comparison.new],
        "total": comparison.total, "regressed": comparison.regressed, "code": comparison.code,
        "doubt": comparison.doubt, "compared": comparison.compared, "asked": comparison.asked,
        "comparable": comparison.comparable,
        "left_out": [words for one in (*comparison.old, *comparison.new) for words in one.left_out],
        "counts": comparison.counts,
        "rule": {"threshold": rule.threshold, "confidence": rule.confidence, "memory": rule.memory,
                 "allowed": sorted(rule.allowed)},
        "environment": [dict(zip(("part", "old", "new"), part)) for part in comparison.changed],
        "times": {"tested": comparison.tested, "level": comparison.level,
                  "noise": [dict(vars(one)) for one in comparison.noise]},
        "rows": [row.plain | {"note": row.note, "together": row.together} for row in comparison.rows],
    }
    return json.dumps(non_finite.plain(told), allow_nan=False, indent=1) + "\n"


def preface(comparison: Comparison) -> list[str]:
    """What was compared, under which rule, and how noisy it was."""
    rule = comparison.rule
    lines = [f"{name}: {_side(files)}" for name, files in (("OLD", comparison.old), ("NEW", comparison.new))]
    lines.append(f"{view.some(comparison.compared, 'trial')} on both sides; slower means a ratio of "
                 f"{1 + rule.threshold:.4g} or more whose interval lies above 1")
    lines += [f"environment {name}: {old} -> {new}" for name, old, new in comparison.changed]
    if comparison.tested:
        lines.append(f"{view.some(comparison.tested, 'time')} tested, each with an interval of "
                     f"{1 - comparison.level:.4%}, so that at most {1 - rule.confidence:.3g} of those told "
                     f"slower or faster are expected to be false")
    lines += [_noisy(one) for one in comparison.noise]
    return [visible.line(line, LONG) for line in lines]


def warnings(comparison: Comparison) -> list[str]:
    """What is missing of either side."""
    found = []
    for name, files in (("OLD", comparison.old), ("NEW", comparison.new)):
        found += [f"{name} {one.path} is not whole: {one}" for one in view.cuts(files)]
        found += [f"{name} left out: {words}" for words in view.left_out(files)]
    return [visible.line(line, LONG) for line in found]


def folded(rows: Iterable[Row], every: bool = False) -> list[tuple[Row, int]]:
    """Rows with the number of trials that each stands for: another environment is told once."""
    found: dict[tuple, list] = {}
    for number, row in enumerate(rows):
        if every or row.state not in QUIET:
            same = row.metric == "environment" and not every
            found.setdefault((row.old, row.new) if same else (number,), [row, 0])[1] += 1
    return [(row, count) for row, count in found.values()]


def cells(row: Row, stands_for: int = 1) -> list[str]:
    """A row as text."""
    interval = "" if row.low is None or row.high is None else f"{_ratio(row.low)} to {_ratio(row.high)}"
    where = [row.case, row.implementation] if stands_for == 1 else [view.some(stands_for, "trial"), ""]
    state = row.state.upper() if row.state in REGRESSIONS else row.state
    parts = [state, row.metric, *where, *_apart(row.old, row.new), _ratio(row.ratio), interval, row.note]
    return [visible.line(part, CELL) for part in parts]


def _apart(old: object, new: object) -> tuple[str, str]:
    """Both numbers, with as many digits as it takes to tell them apart."""
    told = number(old), number(new)
    if old == new or told[0] != told[1] or not all(isinstance(one, (int, float)) for one in (old, new)):
        return told
    shown = ((f"{old:.{digits}g}", f"{new:.{digits}g}") for digits in range(5, 18))
    return next((pair for pair in shown if pair[0] != pair[1]), told)


def _ratio(value: float | None) -> str:
    """Three digits behind the point, and more where 1 would be shown for what is not 1."""
    if value is None:
        return ""
    if not 1e-3 <= value < 1e6:
        return f"{value:.3g}"
    shown = (f"{value:.{digits}f}" for digits in range(3, 17))
    return next((text for text in shown if value == 1 or float(text) != 1), f"{value:.3f}")


def number(value: object) -> str:
    """A number of a row: whole ones with their thousands apart."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if abs(value) >= 1e18:
        return f"{value:.4g}"
    if isinstance(value, int) or value.is_integer() and value >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def _side(files: Sequence[Results]) -> str:
    named = view.few([one.path for one in files])
    runs = [run.header for one in files for run in one.runs]
    last = max(runs, key=lambda header: header.get("time") or "", default={})
    commit = (last.get("environment") or {}).get("commit")
    return ", ".join(filter(None, [named, last.get("time"), f"commit {commit}" if commit else ""]))


def _noisy(noise: Noise) -> str:
    """How noisy one metric was, what all trials say together, and what one of them can say."""
    told = (f"{noise.metric}: all {view.some(noise.trials, 'trial')} together {_ratio(noise.shift)} "
            f"({_ratio(noise.low)} to {_ratio(noise.high)})")
    if noise.judged < noise.trials:
        told += f"; {_few(noise)}"
    if not noise.known:
        return f"{told}; too few trials to tell how far runs scatter, taken as {noise.scatter:.1%}"
    alike = " and ".join(f"{one:.2f}" for one in noise.correlation)
    steady = "" if noise.scatter <= UNSTEADY else "; not steady: an idle machine and more iterations tell more"
    shows = "" if noise.shows is None else f": one trial is told from a ratio of about {noise.shows:.2f} on"
    return (f"{told}; runs scatter by {noise.scatter:.1%}, neighbouring iterations correlate by {alike}"
            f"{shows}{steady}")


def _few(noise: Noise) -> str:
    which = "no trial" if not noise.judged else f"{noise.trials - noise.judged} of {noise.trials} trials not"
    old, new = noise.samples
    return f"{which} could be judged alone: {old} and {new} samples are too few, use more --iters"


def _escaped(text: str) -> str:
    """Text that Markdown leaves as it is."""
    plain = visible.line(text, LONG).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", plain)
