"""Kills: faults and mutants tried case by case until one fails where the ring passes."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cases.case import Case, Inputs
from cases.course import Course
from cases.topology import Topology
from harness import runners, worker
from harness.clock import Timing
from harness.trial import UNTIMED

HOST = "ring"
NUMBERS = re.compile(r"-?\b(\d+(\.\d+)?(e[-+]?\d+)?|inf|nan)\b")
TIMED = Timing(warmup=1, iters=2)
CLEAR = 30
EVERYWHERE = {"B1", "B2", "B4", "B6", "D1"}


@dataclass(frozen=True)
class Ask:
    """One trial: a case, verified once or verified before and after it was timed."""

    case: Case
    timed: bool = False

    @property
    def name(self) -> str:
        return f"{self.case.id} timed" if self.timed else self.case.id

    @property
    def cost(self) -> float:
        """Grows with the time that a trial takes; groups inside a larger world need processes."""
        case, shape = self.case, self.case.shape
        work = shape.batch * shape.heads * shape.tokens ** 2 * (shape.head_dim + shape.v_dim)
        steps = case.course.repeats * len(case.course.actions) / 3 * (4 if self.timed else 1)
        return (work + 4e6 * case.ranks) * steps + (1e9 if case.topology.groups else 0)


def asks(cases: Iterable[Case]) -> list[Ask]:
    """Every case once, and the cheapest plain one of each group timed."""
    found = [Ask(case) for case in cases]
    cheapest: dict[str, Ask] = {}
    for ask in sorted(found, key=lambda ask: ask.cost):
        if plain(ask.case) and ask.case.shape.tokens > 8 and ask.case.world > 1:
            cheapest.setdefault(ask.case.group, Ask(ask.case, timed=True))
    return found + list(cheapest.values())


def plain(case: Case) -> bool:
    """One load, forward and backward on one group of all ranks, and a true answer."""
    return (case.course, case.topology) == (Course(), Topology()) and not case.refused


@dataclass(frozen=True)
class Subject:
    """What is to be killed: a fault of a class, or a mutant of a module.

    first    the ask that is known to kill it, by name
    crashes  whether an ERROR kills as well: a mutant that raises is found, a fault has to give a wrong answer
    detail   what a mutant changes
    """

    name: str
    group: str
    spec: str
    breaks: tuple[str, ...] = ()
    first: str | None = None
    crashes: bool = False
    detail: str = ""


@dataclass
class Found:
    """What became of one subject.

    verdicts  of the trials that were made, in their order, by name
    killer    the ask that killed it, None when it survives
    said      the first line of its failure, in words
    crashed   it took its process down
    """

    subject: Subject
    verdicts: dict[str, str] = field(default_factory=dict)
    killer: Ask | None = None
    said: str = ""
    seconds: float = 0.0
    crashed: bool = False

    @property
    def killed(self) -> bool:
        return self.killer is not None or self.crashed and self.subject.crashes

    @property
    def broken(self) -> bool:
        """Whether it never came to a wrong answer, but raised or hung."""
        return not self.killed and (self.crashed or "ERROR" in self.verdicts.values())


class Bench:
    """Runs trials as threads of this process, and those of groups in a larger world on living ranks.

    limit   seconds that a trial may take
    kills   by ask, how many subjects it has killed
    parted  by ask, how many groups of subjects it has told apart
    """

    def __init__(self, limit: float = 20.0):
        self.limit = limit
        self.kills: Counter[str] = Counter()
        self.parted: Counter[str] = Counter()
        self._threads, self._pools = runners.Threads(), runners.Pools()
        self._held: dict[str, bool] = {}

    def trial(self, ask: Ask, spec: str, kind: str = "verdict", limit: float | None = None) -> dict[str, Any]:
        """The record of a trial; of kind "dense" with its diagnosis."""
        runner = self._pools if ask.case.topology.groups else self._threads
        return runner.run(ask.case, spec, TIMED if ask.timed else UNTIMED, limit or self.limit, kind)

    def passes(self, ask: Ask) -> bool:
        """Whether the ring passes."""
        if ask.name not in self._held:
            self._held[ask.name] = self.trial(ask, HOST)["verdict"] == "PASS"
        return self._held[ask.name]

    def verdict(self, ask: Ask, spec: str, patience: int = 1) -> str:
        """PASS, FAIL, SKIP or ERROR; BOTH where the ring fails as well, which says nothing about a fault."""
        verdict = self.trial(ask, spec, limit=self.limit * patience)["verdict"]
        return "BOTH" if verdict == "FAIL" and not self.passes(ask) else verdict

    def said(self, ask: Ask, spec: str) -> str:
        """The verdict with what it says of a failure, but for numbers; of an ERROR, which may come otherwise the next
        time, nothing."""
        record = self.trial(ask, spec)
        if record["verdict"] != "FAIL":
            return record["verdict"]
        return "BOTH" if not self.passes(ask) else f"FAIL {NUMBERS.sub('#', record['reason'])}"

    def hunt(self, subject: Subject, ordered: Iterable[Ask]) -> Found:
        """Tries asks in their order until one kills. An ERROR must come again with more patience: on a busy machine
        ranks may only have been slow."""
        found = Found(subject)
        for ask in ordered:
            verdict = self.verdict(ask, subject.spec)
            if verdict == "ERROR" and subject.crashes:
                verdict = self.verdict(ask, subject.spec, patience=3)
            found.verdicts[ask.name] = verdict
            if verdict in deadly(subject):
                found.killer = ask
                self.kills[ask.name] += 1
                break
        return found

    def shrink(self, found: Found, asked: Iterable[Ask], most: int = 40) -> None:
        """Looks for a cheaper killer among so many that test what is broken, cheapest first."""
        special = set(found.subject.breaks) - EVERYWHERE
        cheaper = sorted((ask for ask in asked if ask.cost < found.killer.cost), key=lambda ask: ask.cost)
        fit = sorted(cheaper, key=lambda ask: -len(special & set(ask.case.requirements)))[:most]
        again = self.hunt(found.subject, sorted(fit, key=lambda ask: ask.cost))
        found.verdicts |= again.verdicts
        found.killer = again.killer or found.killer

    def ordered(self, asked: Iterable[Ask], subject: Subject) -> list[Ask]:
        """Those that test what is broken and little else come first, killers before others, cheap ones first. Odd ones
        (low precision, odd inputs, few tokens) come late: their failures say little. The one that is known to kill
        waits for CLEAR others.
        """
        special = set(subject.breaks) - EVERYWHERE

        def key(ask: Ask) -> tuple:
            tested = {*ask.case.requirements, *(("D5",) if ask.timed else ())}
            beside = len(tested - special - EVERYWHERE) if special else 0
            odd = (ask.case.dtype != "fp64") + (ask.case.inputs != Inputs()) + (ask.case.shape.tokens < 64)
            return -len(special & tested), beside, odd, -self.kills[ask.name], ask.cost

        order = sorted(asked, key=key)
        known = [ask for ask in order[CLEAR:] if ask.name == subject.first]
        return order[:CLEAR] + known + [ask for ask in order[CLEAR:] if ask.name != subject.first]

    def forget(self) -> None:
        """Lets go of implementations that will not be asked again."""
        worker.implementation.cache_clear()

    def close(self) -> None:
        self._pools.close()


def deadly(subject: Subject) -> tuple[str, ...]:
    """Verdicts that kill it."""
    return ("FAIL", "ERROR") if subject.crashes else ("FAIL",)


def cover(found: Iterable[Found]) -> list[str]:
    """Few asks that kill all that were killed, chosen greedily by how many of the rest each kills."""
    killers = {one.subject: {name for name, verdict in one.verdicts.items() if verdict in deadly(one.subject)}
               for one in found if one.killer}
    chosen = []
    while killers:
        counts = Counter(name for names in killers.values() for name in names)
        best = max(sorted(counts), key=lambda name: counts[name])
        chosen.append(best)
        killers = {one: names for one, names in killers.items() if best not in names}
    return chosen
