"""OLD against NEW: every row, worst first, and what the times are worth."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports import view
from reports.compare import changes, environment, sides, states, times
from reports.compare.sides import Pair
from reports.compare.states import Row
from reports.compare.times import Noise
from reports.record import Results


@dataclass(frozen=True)
class Rule:
    """When a change counts.

    threshold   least distance of a ratio of times from 1, as a share
    confidence  1 less the share of the times told slower or faster that are expected to be false
    memory      by how much memory may grow, as a share
    allowed     states that are told and regress nothing; "incomparable" and "unjudged" are then no doubt either
    """

    threshold: float = 0.05
    confidence: float = 0.95
    memory: float = 0.0
    allowed: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Comparison:
    """All that there is to tell of two sides."""

    old: list[Results]
    new: list[Results]
    rule: Rule
    rows: list[Row]
    compared: int
    changed: list[tuple[str, str, str]]
    noise: list[Noise]
    level: float
    tested: int
    ran: int = 0

    @property
    def counts(self) -> dict[str, int]:
        return states.counted(self.rows)

    @property
    def regressed(self) -> bool:
        return bool(states.regressions(self.counts, self.rule.allowed))

    @property
    def damaged(self) -> str:
        """How much of either side could not be read, in words."""
        told = ((name, view.unread(files)) for name, files in (("OLD", self.old), ("NEW", self.new)))
        return ", ".join(f"{words} of {name}" for name, words in told if words)

    @property
    def doubts(self) -> list[str]:
        """Why nothing, or less than half of what both sides have, was compared; what is allowed is no doubt."""
        found, unlike = [], sum(row.state == "incomparable" for row in self.rows)
        if "incomparable" not in self.rule.allowed and not self.ran:
            found.append("nothing compared: no trial ran on both sides")
        elif "incomparable" not in self.rule.allowed and 2 * unlike > self.compared:
            reasons = dict.fromkeys(row.metric for row in self.rows if row.state == "incomparable")
            other = " and ".join("case" if metric == "digest" else metric for metric in reasons)
            nothing = "nothing compared: " if unlike == self.compared and list(reasons) == ["digest"] else ""
            found.append(f"{nothing}{unlike} of {view.some(self.compared, 'trial')} incomparable (another {other})")
        if "unjudged" not in self.rule.allowed:
            found += [f"{one.metric} not judged, too few samples, yet all {one.trials} trials together {one.shift:.3g} "
                      "times as long" for one in self.noise if 2 * one.unjudged > one.trials >= times.ENOUGH
                      and abs(math.log(one.shift)) > math.log1p(self.rule.threshold)]
        return found

    @property
    def code(self) -> int:
        """2 where the comparison is not to be relied on, 1 where something regressed, else 0."""
        return 2 if self.damaged or self.doubts else int(self.regressed)

    @property
    def total(self) -> str:
        """All of it in one line, what it is not to be relied on for first."""
        rows = Counter(row.state for row in self.rows)
        return "; ".join(filter(None, [self.damaged, *self.doubts, states.total(self.counts, self.rule.allowed, rows)]))


def compare(old: Sequence[Results], new: Sequence[Results], rule: Rule | None = None) -> Comparison:
    """Raises ValueError where no trial of one side is a trial of the other."""
    rule = rule or Rule()
    pairs = sides.pairs(sides.taken(old), sides.taken(new))
    both = [pair for pair in pairs if None not in pair]
    if not both:
        lost = "; ".join(filter(None, map(view.unread, (old, new))))
        why = f" ({lost})" if lost else ""
        raise ValueError(f"nothing to compare: no case and implementation of NEW is in OLD{why}")
    told, timed = [changes.alone(*pair) for pair in pairs if None in pair], []
    for pair in both:
        told += _told(pair, rule, timed)
    measured = times.compare(timed, rule.threshold, rule.confidence)
    told += measured.rows
    known = {(row.case, row.implementation) for row in told}
    told += [Row("same", *pair[1].name, "verdict", pair[0].trial["verdict"], pair[1].trial["verdict"])
             for pair in both if pair[1].name not in known]
    ran = sum(all(one.trial["verdict"] != "SKIP" for one in pair) for pair in both)
    return Comparison(list(old), list(new), rule, states.ordered(told), len(both), _changed(both), measured.noise,
                      measured.level, measured.tested, ran)


def rows(old: Sequence[Results], new: Sequence[Results], rule: Rule | None = None) -> list[dict[str, Any]]:
    """As a page takes them: dicts of states.FIELDS, worst first, without what is insignificant or the same."""
    return shown(compare(old, new, rule))


def shown(found: Comparison) -> list[dict[str, Any]]:
    """The rows of a comparison as `rows` gives them."""
    return [row.plain for row in found.rows if row.state not in states.QUIET]


def read(paths: Sequence[str | Path]) -> list[Results]:
    """The results of one side: files, and folders of files. Raises ValueError."""
    return sides.files(paths)


def _told(pair: Pair, rule: Rule, timed: list[Pair]) -> list[Row]:
    """Rows of a pair but for its times; it joins `timed` where these may be compared."""
    found = list(changes.verdicts(*pair))
    obstacles = list(changes.obstacles(*pair))
    if all(row.metric != "digest" for row in obstacles):
        found += changes.counts(*pair, rule.memory)
    if not obstacles and all(one.trial["verdict"] == "PASS" for one in pair):
        timed.append(pair)
    return found + obstacles


def _changed(pairs: Sequence[Pair]) -> list[tuple[str, str, str]]:
    """Parts of the environment that differ in any pair, once."""
    found = [part for old, new in pairs for part in environment.changed(old.key, new.key)]
    return list(dict.fromkeys(found))
