"""Faults of performance mode: right where one looks, fast where one does not."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.gradients import Changed
from harness.sabotage.state import memory


class Repeated(Fault):
    """From the second call of a loaded step on `again` answers."""

    breaks = ("D5",)

    def again(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, calls = session.load(batch), []

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            if torch.is_grad_enabled():
                calls.append(None)
            return self.again(step, group, q, k, v) if len(calls) > 1 else step(q, k, v)

        return forward


class HalfPrecisionWhenRepeated(Repeated):
    def again(self, step, group, q, k, v):
        return step(*((x.bfloat16() * 0.99).to(x.dtype) for x in (q, k, v)))


class ZerosWhenRepeated(Repeated):
    def again(self, step, group, q, k, v):
        out, lse = step(q, k, v)
        return out * 0, lse


class BackwardSkippedWhenRepeated(Repeated):
    breaks = ("B4", "D5")

    def again(self, step, group, q, k, v):
        out, lse = step(q, k, v)
        return Changed.apply(out, lambda grad: grad * 0), lse


class RoughWhenRepeated(Repeated):
    """The last query of every rank is left out."""

    def again(self, step, group, q, k, v):
        out, lse = step(q, k, v)
        mask = torch.arange(out.shape[2])[:, None] < out.shape[2] - 1
        return out * mask, lse


class WrongAfterCalls(Fault):
    """Calls of a session are counted, and those behind the `last` are wrong."""

    breaks = ("D5",)
    last: int

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            kept["calls"] = kept.get("calls", 0) + 1
            out, lse = step(q, k, v)
            return (out * 1.01 if kept["calls"] > self.last else out), lse

        return forward


class WrongAfterThreeCalls(WrongAfterCalls):
    last = 3


class WrongAfterThirtyTwoCalls(WrongAfterCalls):
    last = 32


class Answers(Fault):
    """Answers are kept in a session; subclasses say how they are found again."""

    breaks = ("D5",)

    def key(self, q: Tensor) -> object:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            old = kept.setdefault(self.key(q), (out.detach().clone(), lse.clone()))
            return out + (old[0] - out).detach(), old[1]

        return forward


class AnswerCachedByShape(Answers):
    def key(self, q: Tensor) -> object:
        return tuple(q.shape)


class AnswerCachedByAddress(Answers):
    def key(self, q: Tensor) -> object:
        return q.data_ptr()


class PreviousAnswer(Fault):
    """Returns what the call before found: its buffer is read before this call's kernel ends."""

    breaks = ("D5",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            old = kept.get("out", out.detach())
            kept["out"] = out.detach().clone()
            return out + (old - out).detach(), lse

        return forward


class GradientsCached(Fault):
    """The first gradient of the values is returned ever after."""

    breaks = ("B4", "D5")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def first(grad: Tensor) -> Tensor:
            return kept.setdefault("grad", grad.clone())

        return lambda q, k, v: step(q, k, Changed.apply(v, first))


class LocalWhenRepeated(Repeated):
    """Nothing is exchanged: values of other ranks count as 0."""

    breaks = ("D5", "D9")

    def again(self, step, group, q, k, v):
        return step(q, k, v * (1.0 if group.rank == 0 else 0.0))


class PlanWithoutPadding(Fault):
    """A step that is loaded again leaves padding out, to reach the faster kernel."""

    breaks = ("A4", "D5")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        kept = memory(session)
        kept["loads"] = kept.get("loads", 0) + 1
        return session.load(batch if kept["loads"] == 1 else replace(batch, padding=None))


