"""Faults of a ring that does not come to an end on every rank, or holds the wrong tokens."""

import os
import signal
import time

import torch
from torch import Tensor

from cases.case import Case
from harness.implementation import Group, Step
from harness.sabotage.fault import Fault
from harness.sabotage.results import Result, last


class RaisesOnOneRank(Fault):
    breaks = ("D7", "D8")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if last(group):
            raise RuntimeError("no kernel for this shape")
        return step(q, k, v)


class HangsOnOneRank(Fault):
    breaks = ("D8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if last(group):
            time.sleep(3600)
        return step(q, k, v)


class ExitsOnOneRank(Fault):
    breaks = ("D8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if last(group):
            os._exit(17)
        return step(q, k, v)


class KilledOnOneRank(Fault):
    breaks = ("D8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if last(group):
            os.kill(os.getpid(), signal.SIGKILL)
        return step(q, k, v)


class StoppedOnOneRank(Fault):
    breaks = ("D8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if last(group):
            os.kill(os.getpid(), signal.SIGSTOP)
        return step(q, k, v)


class PositionTwice(Fault):
    """The layout holds position 0 twice and the last one not at all."""

    breaks = ("D1",)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        held = self.host.layout(case, world)
        return [torch.where(part == case.shape.tokens - 1, 0, part) for part in held]


FAULTS = (RaisesOnOneRank, HangsOnOneRank, ExitsOnOneRank, KilledOnOneRank, StoppedOnOneRank, PositionTwice)
