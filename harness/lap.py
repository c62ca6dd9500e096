"""One timed forward and backward of one rank."""

from dataclasses import dataclass
from time import perf_counter

import torch

from harness.implementation import Session, Step
from harness.inputs import Numbers
from harness.passes import gradients
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
            watch = Stopwatch(ranks.device)
            out, lse = step(numbers.q, numbers.k, numbers.v)
            watch.halve()
            found = gradients([(out, wanted, numbers.dout)])[0]
            halves = watch.stop()
        results += [x for x in (out, lse, *found) if x is not None]
    return Lap(*halves, sent(heard(), ranks.group))


class Stopwatch:
    """Seconds from when it is made to `halve`, and from there to `stop`.

    A GPU is not waited for at the half, as no training step waits there: it marks the time when it comes by.
    """

    def __init__(self, device: torch.device):
        self.device = device
        synchronize(device)
        self.start, self.marks = perf_counter(), [self._mark()]

    def halve(self) -> None:
        self.marks.append(self._mark())

    def stop(self) -> tuple[float, float]:
        synchronize(self.device)
        whole, (first, half) = perf_counter() - self.start, self.marks
        before = half - first if isinstance(half, float) else first.elapsed_time(half) / 1000
        return before, whole - before

    def _mark(self) -> float | torch.cuda.Event:
        if self.device.type != "cuda":
            return perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def slowest(by_lap: list[tuple[Lap, ...]]) -> tuple[list[float], list[float], list[float]]:
    """Forward, backward and step seconds of every iteration, each of the rank that took longest."""
    parts = "forward", "backward", "step"
    return tuple([max(getattr(one, part) for one in laps) for laps in by_lap] for part in parts)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
