"""Rows of a comparison as the page shows them: what is worse first, everything else behind it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from reports import view
from reports.compare.states import OTHERS, REGRESSIONS
from reports.rows import ABSENT, anchor

WRONG = ("broke", "new failure", "strict lost")
GLYPHS = {**dict.fromkeys((*WRONG, "weaker"), "✗"), **dict.fromkeys(("refuses", "lone skip"), "∅"),
          **dict.fromkeys(("fixed", "strict won", "stronger", "answers"), "✓"), "missing": "−", "slower": "▾",
          "incomparable": "≠", "new": "+", "faster": "▴", "unjudged": "?", "insignificant": "≈", "same": "="}
MORE, FEWER = "▾", "▴"
WORSE = {state: GLYPHS.get(state, MORE) for state in REGRESSIONS}
CALM = {state: GLYPHS.get(state, "≈" if state == "still wrong" else FEWER) for state in OTHERS}
TONES = {**dict.fromkeys(WORSE, "ERROR"), **dict.fromkeys(WRONG, "FAIL"),
         **dict.fromkeys(("fixed", "strict won", "stronger", "answers", "faster"), "PASS")}


def changes(rows: Iterable[Mapping[str, Any]], anchors: Collection[str],
            allowed: Collection[str] = ()) -> dict[str, Any]:
    """Rows {state, case, implementation, metric, old, new, ratio, low, high} as text, `worse` apart from the `rest`.

    `anchors` are the ids of the page's trials, so that a case that it shows is linked. A state that is not known to be
    harmless, nor `allowed`, counts as worse. Rows keep their order within a state.
    """
    states = [*WORSE, *CALM]
    told = sorted((_told(row, anchors) for row in rows),
                  key=lambda row: states.index(row["state"]) if row["state"] in states else len(WORSE))
    calm = {*CALM, *allowed, *(("new failure",) if "new" in allowed else ())}
    worse, rest = ([row for row in told if (row["state"] in calm) is quiet] for quiet in (False, True))
    marks = {row["state"]: (row["glyph"], row["tone"]) for row in worse}
    headline = [(state, number, *marks[state]) for state, number in _trials(worse)]
    return {"worse": worse, "rest": rest, "counts": _trials(rest), "headline": headline,
            "trials": sum(number for _, number, *_ in headline)}


def _trials(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """States with the number of trials that are in them, however many metrics say so."""
    told = dict.fromkeys((row["state"], row["case"], row["implementation"]) for row in rows)
    return list(Counter(state for state, *_ in told).items())


def _told(row: Mapping[str, Any], anchors: Collection[str]) -> dict[str, Any]:
    state, case, made = (str(row.get(name) or "?") for name in ("state", "case", "implementation"))
    low, high = _number(row.get("low")), _number(row.get("high"))
    link = anchor(case, made)
    return {
        "state": view.clip(state, 40), "glyph": {**WORSE, **CALM}.get(state, "?"), "tone": TONES.get(state, "SKIP"),
        "case": view.clip(case, 200), "implementation": view.clip(made, 100), "metric": _number(row.get("metric")),
        "old": _number(row.get("old")), "new": _number(row.get("new")), "ratio": _number(row.get("ratio")),
        "interval": ABSENT if low == high == ABSENT else f"{low} to {high}",
        "anchor": link if link in anchors else None,
    }


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ABSENT if value is None else view.clip(str(value), 100)
