"""Faults of time: results that are not there yet when they are returned."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, FaultySession, Result
from harness.sabotage.gradients import Changed
from harness.sabotage.state import memory


class Placed(torch.autograd.Function):
    """x, for which stands what `place` holds."""

    @staticmethod
    def forward(context, x: Tensor, place: Tensor) -> Tensor:
        return place.detach()

    @staticmethod
    def backward(context, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def filling(out: Tensor, place: Tensor, x: Tensor) -> Tensor:
    """out, whose backward copies x to `place`."""
    def fill(grad: Tensor) -> Tensor:
        place.copy_(x)
        return grad

    return Changed.apply(out, fill)


class OutputFilledInBackward(Fault):
    breaks = ("B1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        if not out.requires_grad:
            return out, lse
        place = torch.zeros_like(out, requires_grad=False)
        return Placed.apply(filling(out, place, out.detach().clone()), place), lse


class LseFilledInBackward(Fault):
    breaks = ("B2",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        if not out.requires_grad:
            return out, lse
        place = torch.zeros_like(lse)
        return filling(out, place, lse), place


class AfterScope(FaultySession):
    """Catches up with its work when its scope is left, where no clock runs."""

    @contextmanager
    def scope(self) -> Iterator[None]:
        with super().scope():
            yield
        for work in memory(self.inner).pop("work", []):
            work()


class AfterScopeFault(Fault):
    def open(self, case: Case, group: Group) -> FaultySession:
        return AfterScope(self, case, group)

    @staticmethod
    def postponed(session: Session, x: Tensor) -> Tensor:
        """Zeros that become x when the scope is left."""
        place, given = torch.zeros_like(x), x.detach().clone()
        memory(session).setdefault("work", []).append(lambda: place.copy_(given))
        return place


class OutputWhenScopeIsLeft(AfterScopeFault):
    breaks = ("B1",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step = session.load(batch)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            return Placed.apply(out, self.postponed(session, out.detach())), lse

        return forward


class GradientsWhenScopeIsLeft(AfterScopeFault):
    """dq alone."""

    breaks = ("B4",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step = session.load(batch)
        return lambda q, k, v: step(Changed.apply(q, lambda grad: self.postponed(session, grad)), k, v)
