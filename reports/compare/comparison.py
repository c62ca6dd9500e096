"""OLD against NEW: every row, worst first, and what the times are worth."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports import view
from reports.compare import changes, counts, environment, sides, states, times
from reports.compare.noise import Noise
from reports.compare.sides import Pair
from reports.compare.states import Row
from reports.record import Results


@dataclass(frozen=True)
class Rule:
    """When a change counts.

    threshold   least distance of a ratio of times from 1, as a share
    confidence  1 less the share of the times told slower or faster that are expected to be false
    memory      by how much memory may grow, as a share
    allowed     states that are told and regress nothing; "incomparable" is then no doubt either
    """

    threshold: float = 0.05
    confidence: float = 0.95
    memory: float = 0.0
    allowed: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Comparison:
    """All that there is to tell of two sides.

    compared    trials on both sides
    asked       those of them that a side did not skip
    comparable  those of these that both sides answered, of one case in one environment
    """

    old: list[Results]
    new: list[Results]
    rule: Rule
    rows: list[Row]
    compared: int
    asked: int
    comparable: int
    changed: list[tuple[str, str, str]]
    noise: list[Noise]
    level: float
    tested: int

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
    def doubt(self) -> str:
        """Why a comparison that found nothing says nothing: no pair, or less than half, could be compared."""
        if self.comparable and 2 * self.comparable >= self.asked:
            return ""
        if not self.asked:
            return "nothing compared: both sides skipped all that both have"
        reasons = dict.fromkeys(row.metric for row in self.rows if row.state == "incomparable")
        other = " and ".join("case" if metric == "digest" else metric for metric in reasons)
        much = f"{self.comparable or 'none'} of {view.some(self.asked, 'trial')} comparable"
        return f"{much} (another {other})" if other else f"{much} (skipped on one side)"

    @property
    def code(self) -> int:
        """2 where something could not be read, 1 where something regressed, 2 where too little was compared and that
        is not allowed, else 0."""
        if self.damaged:
            return 2
        doubt = self.doubt and "incomparable" not in self.rule.allowed
        return 1 if self.regressed else 2 if doubt else 0

    @property
    def total(self) -> str:
        """All of it in one line, what it is not to be relied on for first."""
        rows = Counter(row.state for row in self.rows)
        total = states.total(self.counts, self.rule.allowed, rows)
        moved = [f"{row.metric} {row.ratio:.3g}" for row in self.rows if row.together > 1 and row.ratio]
        shift = f"all trials together: {', '.join(moved)} times as long" if moved else ""
        return "; ".join(filter(None, [self.damaged, self.doubt, total, shift]))


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
    asked = [pair for pair in both if any(one.trial["verdict"] != "SKIP" for one in pair)]
    return Comparison(list(old), list(new), rule, states.ordered(told), len(both), len(asked),
                      sum(map(_comparable, asked)), _changed(both), measured.noise, measured.level, measured.tested)


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
        found += counts.counts(*pair, rule.memory)
    if not obstacles and all(one.trial["verdict"] == "PASS" for one in pair):
        timed.append(pair)
    return found + obstacles


def _comparable(pair: Pair) -> bool:
    return all(one.trial["verdict"] != "SKIP" for one in pair) and not any(changes.obstacles(*pair))


def _changed(pairs: Sequence[Pair]) -> list[tuple[str, str, str]]:
    """Parts of the environment that differ in any pair, once."""
    found = [part for old, new in pairs for part in environment.changed(old.key, new.key)]
    return list(dict.fromkeys(found))
