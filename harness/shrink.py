"""From a case that fails to a smallest one that still does."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from cases import showing, smaller
from cases.case import Case


@dataclass(frozen=True)
class Budget:
    """How long to look: `trials` smaller cases, `seconds` in all."""

    trials: int = 400
    seconds: float = 40.0


@dataclass(frozen=True)
class Shrunk:
    """The smallest case that was found, how many were tried, and whether nothing smaller fails."""

    case: Case
    trials: int
    complete: bool


def shrink(case: Case, fails: Callable[[Case], bool], budget: Budget = Budget(),
           keep_world: bool = False) -> Shrunk:
    """The smallest case reached from `case`, which failed, by steps of `cases.smaller` that keep it failing.

    Each reducer is used until it finds nothing, all of them in turn until none does. `keep_world` leaves the number
    of ranks as it is (torchrun). Ids of SPEC that the smallest case cannot show are no longer its own.
    """
    given, search = case, _Search(fails, budget)
    reducers = [one for one in smaller.REDUCERS if not (keep_world and one is smaller.world)]
    before = None
    while case is not before and not search.spent:
        before = case
        for reducer in reducers:
            case = search.reduce(case, reducer)
    return Shrunk(case if case is given else showing.shown(case), search.trials, not search.spent)


class _Search:
    def __init__(self, fails: Callable[[Case], bool], budget: Budget):
        self.fails, self.budget = fails, budget
        self.trials, self.spent = 0, False
        self.passed: set[str] = set()
        self.end = time.monotonic() + budget.seconds

    def reduce(self, case: Case, reducer: Callable) -> Case:
        """As far as one reducer leads."""
        found = case
        while found is not None:
            case, found = found, next((other for other in reducer(found) if self._fails(other)), None)
        return case

    def _fails(self, case: Case) -> bool:
        self.spent = self.spent or self.trials >= self.budget.trials or time.monotonic() > self.end
        if self.spent or case.digest in self.passed:
            return False
        self.trials += 1
        failed = self.fails(case)
        if not failed:
            self.passed.add(case.digest)
        return failed
