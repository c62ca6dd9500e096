"""Mask pictures of a page: which are drawn within a budget of bytes, with the numbers of all."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from reports import figures, metrics, view
from reports.metrics import Trial

BYTES = 700_000
HEAD = ("case", "layout", "world", "tokens", "pairs", "need", "max/mean", "pairs of each rank", "share of hops %")


def masks(trials: Sequence[Trial], budget: int = BYTES) -> dict[str, Any]:
    """Cards and number rows by case group. Failed cases are drawn first, then every name once before any name twice,
    until `budget` bytes of markup are spent; `left_out` counts what was not drawn."""
    pictured = view.pictured(trials)
    drawn, spent = {}, 0
    for trial in _by_weight(pictured):
        card = _card(trial)
        spent += sum(len(card[name]) for name in ("drawing", "bars", "hops"))
        if spent > budget:
            break
        drawn[id(trial)] = card
    groups = {
        name: {"cards": [drawn[id(one)] for one in members if id(one) in drawn], "rows": [_row(t) for t in members]}
        for name, members in view.grouped(pictured).items()
    }
    return {"groups": groups, "head": HEAD, "drawn": len(drawn), "left_out": len(pictured) - len(drawn)}


def _by_weight(trials: Sequence[Trial]) -> list[Trial]:
    seen: Counter[str] = Counter()
    weighed = []
    for trial in trials:
        name = trial["case"]["name"]
        weighed.append((trial["verdict"] not in ("FAIL", "ERROR"), seen[name]))
        seen[name] += 1
    return [trial for _, trial in sorted(zip(weighed, trials), key=lambda pair: pair[0])]


def _card(trial: Trial) -> dict[str, str]:
    case, work = trial["case"], trial.get("work") or {}
    name, area, between = case["name"], work.get("area_by_rank"), work.get("area_by_hop")
    told = [f"load max/mean {_told(view.value(metrics.load_imbalance, trial))}"]
    told += [f"{work['area']:,} pairs"] if work.get("area") else []
    told += [f"need {size(sum(work['need_bytes']))}"] if work.get("need_bytes") else []
    return {
        "name": name,
        "setting": f"{view.layout(trial)} · world {case['world']} · {case.get('tokens')} tokens",
        "mask": str(case.get("mask") or ""),
        "told": " · ".join(told),
        "drawing": figures.mask(trial["picture"], f"Mask of {name}: who may attend whom, by owner of the query"),
        "bars": figures.bars(area, f"Allowed pairs of each rank over the mean, {name}") if area else "",
        "hops": figures.hops(between, f"Share of pairs by rank and owner of the key, {name}")
        if between and len(between) > 1
        else "",
    }


def _row(trial: Trial) -> tuple[str, ...]:
    case, work = trial["case"], trial.get("work") or {}
    area, need, between = (work.get(name) or [] for name in ("area_by_rank", "need_bytes", "area_by_hop"))
    total = sum(map(sum, between))
    hops = " | ".join(" ".join(f"{100 * value / total:.0f}" for value in row) for row in between) if total else "–"
    cells = (case["name"], view.layout(trial), case["world"], case.get("tokens"), work.get("area"),
             size(sum(need)) if need else None, _told(view.value(metrics.load_imbalance, trial)),
             " ".join(map(str, area)), hops)
    return tuple("–" if cell in (None, "") else view.clip(str(cell), 200) for cell in cells)


def size(count: float) -> str:
    """Bytes in words: KiB below one MiB."""
    return f"{count / 1024:.3g} KiB" if count < 1000 * 1024 else f"{count / 2**20:.3g} MiB"


def _told(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
