"""Faults of a model's life: many layers call one step, several sessions are open, inputs come from other layers."""

from itertools import count

import torch
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, FaultySession, Result
from harness.sabotage.gradients import Changed
from harness.sabotage.state import memory


class Later(Fault):
    """`call` answers the n-th call of a loaded step, counted from 0."""

    breaks = ("D3",)

    def call(self, n: int, kept: dict, step: Step, q: Tensor, k: Tensor, v: Tensor) -> Result:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, calls, kept = session.load(batch), count(), {}
        return lambda q, k, v: self.call(next(calls), kept, step, q, k, v)


class SixthCallWrong(Later):
    """Six layers have a place, the others share what is left."""

    def call(self, n, kept, step, q, k, v):
        out, lse = step(q, k, v)
        return (out, lse) if n < 5 else (out * 1.5, lse)


class InputsCaptured(Later):
    """From the fourth call on a recorded graph runs, whose inputs are those that it was recorded with."""

    breaks = ("D3", "D5")

    def call(self, n, kept, step, q, k, v):
        held = kept.setdefault("held", [x.detach() for x in (q, k, v)]) if n >= 3 else (q, k, v)
        return step(*(x + (y.detach() - x.detach()) for x, y in zip((q, k, v), held, strict=True)))


class SixOutputBuffers(Fault):
    """Outputs lie in six buffers of the session, one after the other."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)
        calls = kept.setdefault("calls", count())

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            place = next(calls) % 6, tuple(out.shape), out.dtype
            buffer = kept.setdefault(place, torch.empty_like(out))
            buffer.data.copy_(out.detach())
            return _Placed.apply(out, buffer), lse

        return forward


class _Placed(torch.autograd.Function):
    """The values of `buffer`, in its memory, with the gradient of x."""

    @staticmethod
    def forward(context, x: Tensor, buffer: Tensor) -> Tensor:
        return buffer.view_as(buffer)

    @staticmethod
    def backward(context, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class NewestSessionEverywhere(Fault):
    """What is set up lies in the module: steps of an earlier session run by what the newest one set up."""

    breaks = ("D3",)

    def open(self, case: Case, group: Group) -> FaultySession:
        session = super().open(case, group)
        vars(self)["newest", group.rank] = session.inner
        session.inner.own = True
        return session

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step = session.load(batch)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            return (out, lse) if vars(self)["newest", group.rank] is session else (out * 0, lse)

        return forward


class Answered(Fault):
    """Results are kept by the content of `key` and handed out again."""

    breaks = ("D3", "D5")

    def key(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), []

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            key = [x.detach().clone() for x in self.key(q, k, v)]
            for before, values in kept:
                if all(map(torch.equal, before, key)):
                    return self.again(step, values, q, k, v)
            kept.append((key, [x.detach().clone() for x in (q, k, v)]))
            return step(q, k, v)

        return forward

    def again(self, step: Step, values: list[Tensor], q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(*(x + (y - x.detach()) for x, y in zip((q, k, v), values, strict=True)))


class ValuesCachedByKeys(Answered):
    def key(self, q, k, v):
        return (k,)


class AnswersCachedByQueries(Answered):
    def key(self, q, k, v):
        return (q,)


class GradientsCachedByInputs(Fault):
    """Another gradient of the same inputs gets what the first one got."""

    breaks = ("B4", "D3")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), []

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            known = next((douts for before, douts in kept if all(map(torch.equal, before, (q, k, v)))), None)
            if known is None:
                known = []
                kept.append(([x.detach().clone() for x in (q, k, v)], known))
            out, lse = step(q, k, v)
            return Changed.apply(out, lambda grad: known.append(grad.clone()) or known[0]), lse

        return forward


class SecondBackwardDoubled(Fault):
    """What a backward leaves behind is added when the graph is gone through again."""

    breaks = ("B4", "D4")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        calls = count(1)
        return step(Changed.apply(q, lambda grad: grad * min(2, next(calls))), k, v)


class LeavesExpected(Fault):
    """Inputs that another operation made are taken for something else."""

    breaks = ("B1", "B7")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return (out, lse) if q.is_leaf else (out * 2, lse)


class FusedProjectionMisread(Fault):
    """Where q and k lie in one tensor, v is looked for in the wrong place of it."""

    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        together = q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr() and k.numel() > 0
        return step(q, k, v * (not together))


class FillerNotANumber(Fault):
    """Slots that hold no token are not written."""

    breaks = ("B3",)

    def open(self, case: Case, group: Group) -> FaultySession:
        session = super().open(case, group)
        own = self.layout(case, group.size)[group.rank]
        session.inner.filler = (own < 0).expand(case.shape.batch, -1) if own.dim() == 1 else own < 0
        return session

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, filler = session.load(batch), session.filler[:, None, :, None]

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            return out.masked_fill(filler.to(out.device), torch.nan), lse

        return forward
