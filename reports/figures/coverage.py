"""Coverage of the rules of SPEC.md: how many trials asked for each id, and passed, per implementation."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from reports import view
from reports.figure import Figure
from reports.figures import marks, naming, svg, values
from reports.metrics import Trial
from reports.record import Results

IDS = {
    "A1": "causal",
    "A2": "window",
    "A3": "documents",
    "A4": "padding",
    "A5": "vision",
    "A6": "regions",
    "A7": "composition",
    "A8": "heads",
    "A9": "scale",
    "B1": "output",
    "B2": "lse",
    "B3": "dead rows",
    "B4": "gradients",
    "B5": "poison",
    "B6": "dtype",
    "B7": "inputs",
    "B8": "subsets",
    "D1": "world",
    "D2": "topology",
    "D3": "steps",
    "D4": "recompute",
    "D5": "repeat",
    "D6": "uniform",
    "D7": "refuse",
    "D8": "no hang",
    "D9": "proof",
}
MOST, WORLDS, LABEL, LINE, WORDS, BAR = 60, 16, 108, 17, 96, 200.0


def coverage(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """A row an id, ids that nobody asked for too; a bar an implementation with passed of ran."""
    label, counts, by_world = view.labels(trials), defaultdict(Counter), defaultdict(Counter)
    for trial in trials:
        for name in dict.fromkeys(str(one) for one in values.items(trial["case"].get("requirements"))):
            counts[label(trial), name][_state(trial["verdict"])] += 1
            by_world[label(trial), name, naming.world(trial)][_state(trial["verdict"])] += 1
    if not counts:
        return None
    made = sorted({who for who, _ in counts})
    unknown = sorted({name for _, name in counts} - set(IDS), key=lambda name: (len(name), name))
    names = [*IDS, *unknown[:MOST]]
    untested = [name for name in IDS if not any(counts.get((who, name)) for who in made)]
    caption = (
        "Trials passed of those that ran, by the rule of SPEC.md that a case names; skipped ones are the pale end, the "
        "numbers tell worlds apart. "
        + (f"No trial asked for {', '.join(untested)}." if untested else "Every rule was asked for.")
    )
    worlds = sorted({world for *_, world in by_world})[:WORLDS]
    rows = tuple(
        (name, who, *(str(counts[who, name][state]) for state in ("passed", "failed", "skipped")),
         *(_told(by_world[who, name, world], "–") for world in worlds))
        for name in [*IDS, *unknown]
        for who in made
    )
    return Figure(
        "spec-coverage",
        "Coverage of SPEC rules",
        _drawn(made, names, counts),
        caption,
        ("rule", "implementation", "passed", "failed or error", "skipped", *(f"world {world}" for world in worlds)),
        rows,
        "Coverage of rules",
    )


def _state(verdict: str) -> str:
    return {"PASS": "passed", "SKIP": "skipped"}.get(verdict, "failed")


def _drawn(made: list[str], names: list[str], counts: dict) -> str:
    across = min(len(made), 5)
    each = min(BAR + WORDS + 56, (marks.WIDTH - LABEL) / across)
    parts, y = [], 0.0
    for start in range(0, len(made), across):
        parts += [svg.text(0, y + places + 12, told, "") for told, places in _places(names)]
        for place, who in enumerate(made[start : start + across]):
            left = LABEL + place * each
            parts.append(svg.text(left, y + 12, svg.cut(who, int((each - 12) / 6.7)), "head"))
            parts += [
                _bar(counts[who, name], left, y + at, min(BAR, each - WORDS - 16))
                for name, (_, at) in zip(names, _places(names))
            ]
        y += _places(names)[-1][1] + LINE + 22
    return svg.drawing(
        marks.WIDTH, y - 6, "Trials passed of those that ran, by SPEC rule and implementation", "".join(parts)
    )


def _places(names: list[str]) -> list[tuple[str, float]]:
    """What each row is called and where it stands, chapters of SPEC.md a little apart."""
    found, y = [], 20.0
    for index, name in enumerate(names):
        y += 8 if index and name[:1] != names[index - 1][:1] else 0
        found.append((svg.cut(f"{name} {IDS.get(name, '')}", 17), y))
        y += LINE
    return found


def _bar(count: Counter, left: float, y: float, width: float) -> str:
    """Passed, failed and skipped as parts of one bar, with the numbers beside it."""
    total, x, parts = sum(count.values()), left, []
    if not total:
        return svg.text(left, y + 12, _told(count), "quiet")
    for state, name in (("passed", "v-PASS"), ("failed", "v-FAIL"), ("skipped", "v-SKIP")):
        if count[state]:
            part = max(2.0, width * count[state] / total)
            parts.append(svg.rect(name, x, y + 3, part, 9))
            x += part
    return "".join(parts) + svg.text(left + width + 8, y + 12, _told(count), "bad" if count["failed"] else "")


def _told(count: Counter, none: str = "not asked") -> str:
    """Passed of ran, or what was there instead."""
    total, ran = sum(count.values()), count["passed"] + count["failed"]
    if not ran:
        return f"– {total} skipped" if total else none
    return f"{'✗ ' if count['failed'] else ''}{count['passed']}/{ran}"
