"""What bounds a step, measured beside its laps: the kernels alone, and the same step with a silent exchange."""

from collections.abc import Callable
from typing import Any

import torch

from harness.contract import copied
from harness.implementation import Session, Step
from harness.inputs import Numbers
from harness.lap import Lap, Stopwatch, lap, slowest, synchronize
from harness.problem import Problem
from harness.ranks import Ranks
from harness.usage import Usage

TRIES = 2
Forward = Callable[[], Callable[[], Any]]


class Limits:
    """Laps of both kinds, as many as of the step itself; every rank takes part.

    kernel  the fastest kernel of those that the session offers, by the slowest rank; None without an offer
    """

    def __init__(self, session: Session, problem: Problem, numbers: Numbers, ranks: Ranks):
        self.session, self.problem, self.ranks = session, problem, ranks
        self.silent: Step | None = _offer(session, "silent", copied(problem.rows))
        offered = _offer(session, "kernels", copied(problem.rows), *numbers.tensors()) or {}
        self.kernel, self.run = fastest(offered, ranks)
        self.quiet: list[Lap] = []
        self.bare: list[Lap] = []

    def lap(self, numbers: Numbers) -> None:
        """One lap of each kind."""
        if self.silent:
            grads = self.problem.case.inputs.grads
            self.quiet.append(lap(self.session, self.silent, numbers, grads, self.ranks, Usage(self.ranks.device)))
        if self.run:
            self.bare.append(kernel_lap(self.run, self.ranks))

    def mine(self, warmup: int) -> tuple[list[Lap], list[Lap]]:
        """This rank's laps after those for warming up."""
        return self.quiet[warmup:], self.bare[warmup:]

    def record(self, every: list[tuple[list[Lap], list[Lap]]]) -> dict[str, Any]:
        """`measurement` of the record, from what `mine` says on every rank."""
        quiet, bare = zip(*every, strict=True)
        found = {"bound_kernel": self.kernel}
        for name, laps in (("silent", quiet), ("bound", bare)):
            by_lap = list(zip(*laps, strict=True))
            forward, _, step = slowest(by_lap) if by_lap else (None, None, None)
            found |= {f"{name}_forward_s": forward, f"{name}_step_s": step}
        return found


def fastest(offered: dict[str, Forward], ranks: Ranks) -> tuple[str | None, Forward | None]:
    """The kernel whose slowest rank ends first."""
    if len(offered) < 2:
        return next(iter(offered.items()), (None, None))
    seconds = {}
    for name, run in offered.items():
        tried = [kernel_lap(run, ranks).step for _ in range(1 + TRIES)]
        seconds[name] = max(ranks.all_gather(min(tried[1:])))
    best = min(seconds, key=seconds.get)
    return best, offered[best]


@torch.no_grad()
def kernel_lap(run: Forward, ranks: Ranks) -> Lap:
    synchronize(ranks.device)
    ranks.barrier()
    watch = Stopwatch(ranks.device)
    backward = run()
    watch.halve()
    backward()
    return Lap(*watch.stop())


def shared(records: list[dict[str, Any]]) -> None:
    """Gives the bound of one implementation to those asked beside it that hold the same tokens on the same ranks."""
    timed = [record for record in records if record["measurement"]]
    bound = next((record for record in timed if record["measurement"].get("bound_step_s")), None)
    for record in timed if bound else ():
        if not record["measurement"].get("bound_step_s") and _place(record) == _place(bound):
            record["measurement"] |= {name: value for name, value in bound["measurement"].items()
                                      if name.startswith("bound_")}


def _place(record: dict[str, Any]) -> tuple:
    return record["implementation"]["layout"], record["work"]["area_by_rank"], record["work"]["area_by_hop"]


def _offer(session: Session, name: str, *given: Any) -> Any:
    """What an optional method gives; sessions of other classes may lack it."""
    method = getattr(session, name, None)
    return method(*given) if method else None
