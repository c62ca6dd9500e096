"""One timed forward and backward of one rank."""

import time
from dataclasses import dataclass

import torch

from harness.attempt import gradients
from harness.implementation import Session, Step
from harness.inputs import Numbers
from harness.ranks import Ranks
from harness.trace import sent
from harness.usage import Usage


@dataclass(frozen=True)
class Lap:
    """Seconds of one iteration on one rank, and the bytes that it sent by its calls; None where nothing is traced."""

    forward: float
    backward: float
    sent: int | None = None

    @property
    def step(self) -> float:
        return self.forward + self.backward


def lap(session: Session, step: Step, numbers: Numbers, grads: str, ranks: Ranks, usage: Usage) -> Lap:
    """Times a step that all ranks begin together."""
    wanted = [x.requires_grad_() for name, x in zip("qkv", numbers.tensors(), strict=False) if name in grads]
    synchronize(ranks.device)
    with usage.lap() as results, ranks.during("timed") as heard:
        ranks.barrier()
        with session.scope():
            start = time.perf_counter()
            out, lse = step(numbers.q, numbers.k, numbers.v)
            synchronize(ranks.device)
            middle = time.perf_counter()
            found = gradients(out, wanted, numbers.dout)
            synchronize(ranks.device)
            end = time.perf_counter()
        results += [x for x in (out, lse, *found) if x is not None]
    return Lap(middle - start, end - middle, sent(heard(), ranks.group))


def slowest(by_lap: list[tuple[Lap, ...]]) -> tuple[list[float], list[float], list[float]]:
    """Forward, backward and step seconds of every iteration, each of the rank that took longest."""
    parts = "forward", "backward", "step"
    return tuple([max(getattr(one, part) for one in laps) for laps in by_lap] for part in parts)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
