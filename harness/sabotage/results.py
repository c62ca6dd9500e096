"""Faults of a ring whose results are wrong: output, lse, gradients, shapes, dtypes, memory of others."""

import math

import torch
from torch import Tensor

from harness.implementation import Group, Step
from harness.sabotage.fault import Fault

Result = tuple[Tensor, Tensor | None]


def last(group: Group) -> bool:
    """The one rank on which a fault of one rank shows."""
    return group.rank == group.size - 1


class Scaled(torch.autograd.Function):
    """The same numbers forward; the gradient times a factor."""

    @staticmethod
    def forward(context, x: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(context, grad: Tensor) -> tuple[Tensor, None]:
        return grad * context.factor, None


class KeyGradientsLost(Fault):
    """dk and dv of the last rank never arrive."""

    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        factor = 0.0 if last(group) else 1.0
        return step(q, Scaled.apply(k, factor), Scaled.apply(v, factor))


class KeyGradientsTimesWorld(Fault):
    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, Scaled.apply(k, float(group.size)), Scaled.apply(v, float(group.size)))


class QueryGradientOff(Fault):
    """dq of the last rank is 27 % too small, which no loss shows."""

    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(Scaled.apply(q, 0.73 if last(group) else 1.0), k, v)


class LseInBaseTwo(Fault):
    breaks = ("B2",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out, lse / math.log(2)


class DeadLseZero(Fault):
    """torch's CPU kernel gives lse 0 for a row that sees nothing."""

    breaks = ("B2", "B3")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out, lse.masked_fill(lse == -torch.inf, 0)


class NotANumber(Fault):
    """The last token of the last rank is NaN, as from a buffer that nobody wrote."""

    breaks = ("B1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        broken = torch.zeros_like(out)
        broken[:, :, -1] = torch.nan if last(group) else 0.0
        return out + broken, lse


class WrongDtype(Fault):
    breaks = ("B6",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out.to(torch.float32 if out.dtype == torch.float64 else torch.float64), lse


class WrongShape(Fault):
    """The last rank forgets its last token."""

    breaks = ("B1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return (out[:, :, :-1] if last(group) else out), lse


class InputsModified(Fault):
    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        result = step(q, k, v)
        q.data.mul_(2.0)
        return result


class GraphKept(Fault):
    breaks = ("B8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        with torch.enable_grad():
            return step(q, k, v)


FAULTS = (KeyGradientsLost, KeyGradientsTimesWorld, QueryGradientOff, LseInBaseTwo, DeadLseZero, NotANumber, WrongDtype,
          WrongShape, InputsModified, GraphKept)
