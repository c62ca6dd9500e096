"""The table of trials: its columns, a row a trial with what it shows and what it sorts by, and what filters offer."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reports import metrics, view
from reports.metrics import Trial

ABSENT = "–"
ORDER = {"ERROR": 0, "FAIL": 1, "SKIP": 2, "PASS": 3}
FACETS = ("implementation", "group", "mask", "world", "layout", "dtype", "verdict")
SIZES = ("world", "tokens", "heads", "dim")
LONGEST = 200
WIDEST = 9


@dataclass(frozen=True)
class Head:
    """A column: title, unit, its name in links to a sorted table, and whether it holds numbers or words."""

    title: str
    unit: str = ""
    number: bool = False
    text: bool = False

    @property
    def key(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.title} {self.unit}".lower()).strip("-")


@dataclass(frozen=True)
class Row:
    """A trial: `error`, `texts` and `numbers` in the order of the columns, numbers as (shown, sorted by or None)."""

    anchor: str
    why: str | None
    case: str
    group: str
    verdict: str
    strict: bool
    error: tuple[str, str | None]
    texts: tuple[str, ...]
    numbers: tuple[tuple[str, str | None], ...]

    @property
    def bad(self) -> bool:
        return self.verdict in ("FAIL", "ERROR")

    @property
    def long(self) -> bool:
        return len(self.case) > 64

    @property
    def order(self) -> int:
        return ORDER.get(self.verdict, -1)


def anchor(case: str, implementation: str, device: str | None = None) -> str:
    """The id of a trial in every page: case id, how the implementation was asked for, and a device that is no CPU.

    What HTML or an address would not take is replaced, and a hash of the whole keeps it apart from others.
    """
    raw = f"{case}@{implementation}" + (f"@{device}" if device not in (None, "", "cpu") else "")
    clean = re.sub(r"[^A-Za-z0-9._/:@+=-]", "_", raw)[:120]
    return clean if clean == raw else f"{clean}~{_hash(raw)}"


def anchors(trials: Sequence[Trial]) -> dict[int, str]:
    """Anchors by id() of the trial; of trials that share one all but the first get a hash of seed and digest."""
    found: dict[int, str] = {}
    taken: Counter[str] = Counter()
    for trial in trials:
        case, made = trial["case"], trial["implementation"]
        name = anchor(case["id"], made.get("spec") or made.get("name") or "?", made.get("device"))
        if taken[name]:
            name += f"~{_hash(repr((case.get('digest'), case.get('seed'), made.get('name'), made.get('device'))))}"
        found[id(trial)] = name if not taken[name] else f"{name}~{taken[name]}"
        taken[name] += 1
    return found


def table(trials: Sequence[Trial], label: Callable[[Trial], str], several: bool, explained: set[int]) -> dict[str, Any]:
    """Heads, rows and facets. `explained` are the id()s of trials that the page tells more about."""
    columns = [one for one in metrics.COLUMNS if one.always or any(view.value(one.of, t) is not None for t in trials)]
    error = next(one for one in columns if one.of is metrics.worst_ratio)
    columns.remove(error)
    words = ("implementation", "mask", "layout", "dtype") if several else ("mask", "layout", "dtype")
    heads = [Head("case", text=True), Head("verdict", number=True, text=True)]
    heads += [Head(error.title, error.unit, number=True), *(Head(name, text=True) for name in words)]
    heads += [Head(name, number=True) for name in SIZES]
    heads += [Head(one.title, one.unit, number=True) for one in columns]
    facts, ids = [facts_of(trial, label) for trial in trials], anchors(trials)
    rows = []
    for trial, fact in zip(trials, facts):
        name = ids[id(trial)]
        rows.append(Row(
            anchor=name,
            why=f"why~{name}" if id(trial) in explained else None,
            case=view.clip(trial["case"]["id"], LONGEST),
            group=fact["group"],
            verdict=fact["verdict"],
            strict=trial["case"].get("level") == "strict",
            error=measurement(trial, error),
            texts=tuple(fact[one] for one in words),
            numbers=(*((fact[one], None) for one in SIZES), *(measurement(trial, one) for one in columns)),
        ))
    return {"heads": heads, "rows": rows, "facets": facets(facts)}


def facts_of(trial: Trial, label: Callable[[Trial], str]) -> dict[str, str]:
    """What a row says of its trial in words, each at most LONGEST characters."""
    case = trial["case"]
    dim, v_dim = case.get("head_dim"), case.get("value_dim")
    found = {
        "implementation": label(trial), "group": case.get("group") or "other", "mask": case.get("mask"),
        "layout": view.layout(trial), "dtype": case.get("dtype"), "verdict": trial["verdict"],
        "world": case["world"], "tokens": case.get("tokens"),
        "heads": f"{case.get('heads', ABSENT)}/{case.get('kv_heads', ABSENT)}",
        "dim": f"{dim}/{v_dim}" if v_dim and v_dim != dim else dim,
    }
    return {name: ABSENT if value in (None, "") else view.clip(str(value), LONGEST) for name, value in found.items()}


def facets(facts: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """What filters offer, with the number of trials of each value; one that is the same everywhere offers nothing."""
    found = []
    for name in FACETS:
        counts = Counter(one[name] for one in facts)
        if len(counts) > 1 or name == "verdict":
            found.append({"name": name, "counts": sorted(counts.items(), key=_rising)})
    return found


def measurement(trial: Trial, column: metrics.Column) -> tuple[str, str | None]:
    """A number as it is shown, and as it sorts where rounding to the shown digits hides more than a hundredth."""
    value = view.value(column.of, trial)
    if not isinstance(value, (int, float)):
        return ABSENT, None
    shown = format(value, column.form)
    shown = shown if len(shown) <= WIDEST else format(value, ".3g")
    if not math.isfinite(value):
        return shown, "-Infinity" if value < 0 else "Infinity"
    return shown, None if abs(float(shown) - value) <= 0.01 * abs(value) else f"{value:.4g}"


def _rising(item: tuple[str, int]) -> tuple:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", item[0])], item[0]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
