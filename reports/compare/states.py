"""What may have become of a trial, worst first, and the row that says so."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

REGRESSIONS = ("broke", "new failure", "strict lost", "weaker", "refuses", "missing", "slower", "more bytes",
               "more messages", "more imbalance", "more memory")
"""States that end a comparison with exit code 1, worst first."""
OTHERS = ("still wrong", "incomparable", "new", "lone skip", "fixed", "strict won", "stronger", "answers", "faster",
          "fewer bytes", "fewer messages", "less imbalance", "less memory", "unjudged", "insignificant", "same")
STATES = REGRESSIONS + OTHERS
ABSENT = ("missing", "refuses")
QUIET = ("unjudged", "insignificant", "same")
ALLOWED = tuple("new" if state == "new failure" else state for state in REGRESSIONS[1:]) + ("incomparable",)
"""What may be allowed: "new" is a new trial that is wrong, "incomparable" too little that could be compared."""
MEANING = {
    "broke": "passed or was refused, and is wrong now",
    "new failure": "only NEW has it, and it is wrong", "strict lost": "the strict level held and no longer does",
    "weaker": "passes, held to less than before", "refuses": "passed or was wrong, and is refused now",
    "missing": "only OLD has it, or has this number of it",
    "slower": "a time is longer beyond the threshold and noise",
    "more bytes": "sends more", "more messages": "sends more often", "more imbalance": "divides work less evenly",
    "more memory": "holds more", "still wrong": "wrong on both sides",
    "incomparable": "the case or the environment is another one",
    "new": "only NEW has it, or has this number of it", "lone skip": "a refusal that one side has alone",
    "fixed": "was wrong and passes now", "strict won": "the strict level holds now", "stronger": "held to more",
    "answers": "was refused and passes now", "faster": "a time is shorter beyond the threshold and noise",
    "fewer bytes": "sends less", "fewer messages": "sends less often", "less imbalance": "divides work more evenly",
    "less memory": "holds less", "unjudged": "too few samples, or numbers that are none",
    "insignificant": "within noise", "same": "as before"}
"""Every state in words, in the order of STATES."""
OPPOSITE = {"broke": "fixed", "new failure": "missing", "strict lost": "strict won", "weaker": "stronger",
            "refuses": "answers", "missing": "new", "slower": "faster", "more bytes": "fewer bytes",
            "more messages": "fewer messages", "more imbalance": "less imbalance", "more memory": "less memory"}
"""What each regression is when OLD and NEW change places, but that what was refused and is wrong `broke`, and turned
round `refuses`; every other state but these is its own opposite."""
FIELDS = ("state", "case", "implementation", "metric", "old", "new", "ratio", "low", "high")


@dataclass(frozen=True)
class Row:
    """One thing told of one trial.

    metric  what is compared: verdict, strict level, digest, environment, step ms, forward ms, bytes sent, ...
    old, new  numbers in the unit of the metric, or verdicts, digests and parts of an environment as text
    ratio   new over old; low, high its interval where it was asked for
    note    why, in plain text
    together  how many trials it is told of: 1 but for a shift of all of them
    """

    state: str
    case: str
    implementation: str
    metric: str
    old: Any = None
    new: Any = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    together: int = 1

    @property
    def plain(self) -> dict[str, Any]:
        """The row as a page takes it: exactly FIELDS."""
        return {name: getattr(self, name) for name in FIELDS}


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Worst first: by state, then what is told of all trials, then by how far the ratio is from 1, then by name."""

    def rank(row: Row) -> tuple:
        far = abs(math.log(row.ratio)) if row.ratio and 0 < row.ratio < math.inf else 0.0
        return STATES.index(row.state), -row.together, -far, row.case, row.implementation, row.metric

    return sorted(rows, key=rank)


def counted(rows: Iterable[Row]) -> dict[str, int]:
    """Trials by state, worst first. A trial counts once for each state it has; as unjudged, insignificant or the same
    only where it has no other, as the first of these."""
    states: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        states[row.case, row.implementation].add(row.state)
    for found in states.values():
        quiet = [state for state in QUIET if state in found]
        found.intersection_update(found.difference(QUIET) or quiet[:1])
    return {state: n for state in STATES if (n := sum(state in found for found in states.values()))}


def regressions(counts: dict[str, int], allowed: Collection[str] = ()) -> dict[str, int]:
    """Those of the counts that are regressions and not allowed."""
    passed = {*allowed, *(("new failure",) if "new" in allowed else ())}
    return {state: n for state, n in counts.items() if state in REGRESSIONS and state not in passed}


def total(counts: dict[str, int], allowed: Collection[str] = (), rows: Mapping[str, int] | None = None) -> str:
    """All of it in one line: `3 regressions: 1 broke, 2 slower; 4 faster, 2 new`. What is counted are trials; where
    more `rows` than trials show a state, their number is told too: `2 slower in 4 rows`."""
    worse = regressions(counts, allowed)
    n = sum(worse.values())
    head = f"{n} regression{'' if n == 1 else 's'}" if n else "no regression"
    rest = {state: number for state, number in counts.items() if state not in worse}
    told = [", ".join(_counted(state, number, rows or {}) for state, number in part.items()) for part in (worse, rest)]
    head += f": {told[0]}" if told[0] else ""
    return f"{head}; {told[1]}" if told[1] else head


def _counted(state: str, number: int, rows: Mapping[str, int]) -> str:
    several = state not in QUIET and rows.get(state, 0) > number
    return f"{number} {state}" + (f" in {rows[state]} rows" if several else "")
