"""Timed iterations over rotating input sets: seconds as the maximum over ranks, and medians by rank."""

import statistics
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness import contract, inputs
from harness.implementation import Session, Step
from harness.inputs import Numbers
from harness.lap import Lap, lap, slowest, synchronize
from harness.limits import Limits
from harness.problem import Problem
from harness.ranks import Ranks
from harness.timeline import timeline
from harness.turns import Turns
from harness.usage import Usage

SETS = 3
Moved = tuple[int, int]


@dataclass(frozen=True)
class Timing:
    """How often to run the timed part; 0 iterations means that only right answers matter.

    bound  also times what bounds a step (harness/limits.py), where a session can tell
    """

    warmup: int = 1
    iters: int = 0
    bound: bool = False


class Measured(NamedTuple):
    """A measurement, and what was timed, so that it can be verified as it is.

    record    `measurement` of docs/design.md
    sets      the tensors of its iterations, which took turns
    sent      bytes that left each rank in each iteration, warmup and all; None where nobody counts
    timeline  of docs/design.md, from a step that nobody timed
    """

    record: dict[str, Any]
    step: Step
    sets: list[Numbers]
    sent: list[tuple[int | None, ...]]
    timeline: dict[str, Any] | None

    def used(self, seed: int) -> Numbers:
        """One of the sets, which nobody can know before `seed` is drawn."""
        return self.sets[seed % len(self.sets)]


def measure(session: Session, problem: Problem, layout: list[Tensor], ranks: Ranks,
            timing: Timing) -> Turns[Measured]:
    """Times `timing.iters` iterations, at least one, with a pause before each and one at the end; every rank takes
    part, all return the same measurement."""
    sets = _sets(problem, layout, ranks, timing)
    usage, started = Usage(ranks.device), time.perf_counter()
    with usage.kept_by_session():
        step = session.load(contract.copied(problem.rows))
        synchronize(ranks.device)
    loaded = time.perf_counter() - started
    limits = Limits(session, problem, sets[0], ranks) if timing.bound else None
    laps, moved = [], []
    generator = torch.Generator(device=ranks.device).manual_seed(ranks.group.rank)
    for number in range(timing.warmup + timing.iters):
        yield
        numbers = sets[number % len(sets)]
        inputs.renewed(numbers, generator)
        before = session.traffic()
        laps.append(_own_lap(session, step, numbers, problem, ranks, usage))
        moved.append(_difference(before, session.traffic()))
        if limits:
            limits.lap(numbers)
    yield
    mine = loaded, laps[timing.warmup:], _mean(moved[timing.warmup:]), usage.peak, usage.extra
    measured = _summary(ranks.all_gather(mine), timing)
    sent = ranks.all_gather([counted and counted[0] if lap.sent is None else lap.sent
                             for lap, counted in zip(laps, moved, strict=True)])
    if limits:
        measured |= limits.record(ranks.all_gather(limits.mine(timing.warmup)))
    inputs.renewed(sets[0], generator)
    line = timeline(session, step, sets[0], problem.case.inputs.grads, ranks, timing.bound)
    return Measured(measured, step, sets, list(zip(*sent, strict=True)), line)


def _sets(problem: Problem, layout: list[Tensor], ranks: Ranks, timing: Timing) -> list[Numbers]:
    first = inputs.shard(problem.given, layout[ranks.group.rank], problem.case, ranks.device)
    return [inputs.another(first, problem.case, number) for number in range(min(SETS, timing.iters))]


def _own_lap(session: Session, step: Step, numbers: Numbers, problem: Problem, ranks: Ranks, usage: Usage) -> Lap:
    """A lap, with what the session keeps of it."""
    with usage.kept_by_session():
        return lap(session, step, numbers, problem.case.inputs.grads, ranks, usage)


def _summary(ranks: list[tuple], timing: Timing) -> dict[str, Any]:
    """`measurement` of docs/design.md; one element of `ranks` a rank: load seconds, laps, traffic, bytes held."""
    loads, laps, sent, peaks, extras = zip(*ranks, strict=True)
    forward, backward, step = slowest(list(zip(*laps, strict=True)))
    return {
        "load_s": list(loads), "forward_s": forward, "backward_s": backward, "step_s": step,
        "rank_step_s": [statistics.median(each.step for each in one) for one in laps],
        "warmup": timing.warmup, "iters": timing.iters,
        "bytes_sent": None if None in sent else [bytes for bytes, _ in sent],
        "messages": None if None in sent else [messages for _, messages in sent],
        "peak_bytes": None if None in peaks else list(peaks),
        "extra_bytes": None if None in extras else list(extras),
    }


def _difference(before: Moved | None, after: Moved | None) -> Moved | None:
    return None if before is None or after is None else (after[0] - before[0], after[1] - before[1])


def _mean(moved: list[Moved | None]) -> Moved | None:
    """Bytes and messages of one iteration."""
    return None if None in moved else tuple(sum(part) // len(moved) for part in zip(*moved, strict=True))
