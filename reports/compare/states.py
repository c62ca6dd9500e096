"""What may have become of a trial, worst first, and the row that says so."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

REGRESSIONS = ("broke", "strict lost", "refuses", "missing", "slower", "more bytes", "more messages", "more imbalance",
               "more memory")
"""States that end a comparison with exit code 1, worst first."""
OTHERS = ("still wrong", "incomparable", "new", "fixed", "strict won", "answers", "faster", "fewer bytes",
          "fewer messages", "less imbalance", "less memory", "insignificant", "same")
STATES = REGRESSIONS + OTHERS
ABSENT = ("missing", "refuses")
QUIET = ("insignificant", "same")
OPPOSITE = {"broke": "fixed", "strict lost": "strict won", "refuses": "answers", "missing": "new", "slower": "faster",
            "more bytes": "fewer bytes", "more messages": "fewer messages", "more imbalance": "less imbalance",
            "more memory": "less memory"}
"""What each regression is when OLD and NEW change places; every other state but these is its own opposite."""
FIELDS = ("state", "case", "implementation", "metric", "old", "new", "ratio", "low", "high")


@dataclass(frozen=True)
class Row:
    """One thing told of one trial.

    metric  what is compared: verdict, strict level, digest, environment, step ms, forward ms, bytes sent, ...
    old, new  numbers in the unit of the metric, or verdicts, digests and parts of an environment as text
    ratio   new over old; low, high its interval where it was asked for
    note    why, in plain text
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

    @property
    def plain(self) -> dict[str, Any]:
        """The row as a page takes it: exactly FIELDS."""
        return {name: getattr(self, name) for name in FIELDS}


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Worst first: by state, then wrong before right, then by how far the ratio is from 1, then by name."""

    def rank(row: Row) -> tuple:
        far = max(row.ratio, 1 / row.ratio) if row.ratio and row.ratio > 0 else 1.0
        wrong = row.state == "new" and row.new in ("FAIL", "ERROR")
        return STATES.index(row.state), not wrong, -far, row.case, row.implementation, row.metric

    return sorted(rows, key=rank)


def counted(rows: Iterable[Row]) -> dict[str, int]:
    """Trials by state, worst first. A trial counts once for each state it has; as insignificant or the same only where
    it has no other."""
    states: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        states[row.case, row.implementation].add(row.state)
    for found in states.values():
        loud = found.difference(QUIET)
        found.intersection_update(loud or set(QUIET[:1]) & found or found)
    return {state: n for state in STATES if (n := sum(state in found for found in states.values()))}


def regressions(counts: dict[str, int], allowed: Collection[str] = ()) -> dict[str, int]:
    """Those of the counts that are regressions and not allowed."""
    return {state: n for state, n in counts.items() if state in REGRESSIONS and state not in allowed}


def total(counts: dict[str, int], allowed: Collection[str] = ()) -> str:
    """All of it in one line: `3 regressions: 1 broke, 2 slower; 4 faster, 2 new`."""
    worse = regressions(counts, allowed)
    n = sum(worse.values())
    head = f"{n} regression{'' if n == 1 else 's'}" if n else "no regression"
    rest = {state: number for state, number in counts.items() if state not in worse}
    told = [", ".join(f"{number} {state}" for state, number in part.items()) for part in (worse, rest)]
    head += f": {told[0]}" if told[0] else ""
    return f"{head}; {told[1]}" if told[1] else head
