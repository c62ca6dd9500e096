"""Timed iterations over rotating input sets: seconds as the maximum over ranks, and medians by rank."""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness import contract, inputs
from harness.attempt import gradients
from harness.implementation import Session, Step
from harness.inputs import Numbers
from harness.problem import Problem
from harness.ranks import Ranks

SETS = 3


@dataclass(frozen=True)
class Timing:
    """How often to run the timed part; 0 iterations means that only right answers matter."""

    warmup: int = 1
    iters: int = 0


@dataclass(frozen=True)
class Lap:
    """Seconds of one iteration on one rank."""

    forward: float
    backward: float


def measure(session: Session, problem: Problem, layout: list[Tensor], ranks: Ranks,
            timing: Timing) -> tuple[dict[str, Any], Step, Numbers]:
    """Times `timing.iters` iterations, at least one; every rank takes part, all return the same measurement. The step
    that was timed, and the tensors of an iteration, come with it, so that they can be verified as they are."""
    first = inputs.shard(problem.given, layout[ranks.group.rank], problem.case, ranks.device)
    sets = [inputs.another(first, problem.case, number) for number in range(min(SETS, timing.iters))]
    started = time.perf_counter()
    step = session.load(contract.copied(problem.rows))
    synchronize(ranks.device)
    loaded = time.perf_counter() - started
    if ranks.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    laps, before = [], session.traffic()
    generator = torch.Generator(device=ranks.device).manual_seed(ranks.group.rank)
    with ranks.during("timed"):
        for number in range(timing.warmup + timing.iters):
            before = session.traffic() if number == timing.warmup else before
            inputs.renewed(sets[number % len(sets)], generator)
            laps.append(_lap(session, step, sets[number % len(sets)], problem.case.inputs.grads, ranks))
    mine = loaded, laps[timing.warmup:], _sent(before, session.traffic(), timing.iters), _peak(ranks.device)
    return _summary(ranks.all_gather(mine), timing), step, sets[0]


def _lap(session: Session, step: Step, numbers: Numbers, grads: str, ranks: Ranks) -> Lap:
    wanted = [x.requires_grad_() for name, x in zip("qkv", numbers.tensors(), strict=False) if name in grads]
    synchronize(ranks.device)
    ranks.barrier()
    with session.scope():
        start = time.perf_counter()
        out, _ = step(numbers.q, numbers.k, numbers.v)
        synchronize(ranks.device)
        middle = time.perf_counter()
        gradients(out, wanted, numbers.dout)
        synchronize(ranks.device)
    return Lap(middle - start, time.perf_counter() - middle)


def _summary(ranks: list[tuple], timing: Timing) -> dict[str, Any]:
    """`measurement` of docs/design.md; one element of `ranks` a rank: load seconds, laps, traffic, peak bytes."""
    loads, laps, sent, peaks = zip(*ranks, strict=True)
    by_iteration = list(zip(*laps, strict=True))
    return {
        "load_s": list(loads),
        "forward_s": [max(lap.forward for lap in one) for one in by_iteration],
        "backward_s": [max(lap.backward for lap in one) for one in by_iteration],
        "step_s": [max(lap.forward + lap.backward for lap in one) for one in by_iteration],
        "rank_step_s": [statistics.median(lap.forward + lap.backward for lap in one) for one in laps],
        "warmup": timing.warmup, "iters": timing.iters,
        "bytes_sent": None if None in sent else [bytes for bytes, _ in sent],
        "messages": None if None in sent else [messages for _, messages in sent],
        "peak_bytes": None if None in peaks else list(peaks),
    }


def _sent(before: tuple[int, int] | None, after: tuple[int, int] | None, iters: int) -> tuple[int, int] | None:
    """Bytes and messages of one iteration."""
    if before is None or after is None:
        return None
    return (after[0] - before[0]) // iters, (after[1] - before[1]) // iters


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak(device: torch.device) -> int | None:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
