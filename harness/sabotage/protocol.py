"""Faults of the contract: shapes, dtypes, graphs, answers that ranks disagree on, ranks that never answer."""

import itertools
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import Tensor

from cases.case import Case
from harness.implementation import Group, Implementation, Setting, Step
from harness.sabotage.fault import Fault, Result, last
from harness.sabotage.gradients import Changed


class Lost(Fault):
    """The last rank does `end`."""

    breaks = ("D8",)
    lost = True

    def end(self) -> None:
        raise NotImplementedError

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if last(group):
            self.end()
        return step(q, k, v)


class RaisesOnOneRank(Lost):
    breaks = ("D7", "D8")

    def end(self) -> None:
        raise RuntimeError("no kernel for this shape")


class HangsOnOneRank(Lost):
    def end(self) -> None:
        time.sleep(3600)


class ExitsOnOneRank(Lost):
    def end(self) -> None:
        os._exit(17)


class KilledOnOneRank(Lost):
    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class StoppedOnOneRank(Lost):
    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class RaisesInBackward(Lost):
    breaks = ("D7", "D8")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(Changed.apply(q, self._raise) if last(group) else q, k, v)

    @staticmethod
    def _raise(grad: Tensor) -> Tensor:
        raise RuntimeError("no backward for this shape")


class CollectiveSkipped(Lost):
    """The last rank does not take part."""

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if last(group) and group.size > 1:
            return q.new_zeros(*q.shape[:3], v.shape[3]), q.new_zeros(q.shape[:3])
        return step(q, k, v)


class OneRank(Fault):
    """Something that is asked of every rank and that only one of them does."""

    def __init__(self, host: Implementation):
        super().__init__(host)
        self._calls = itertools.count()

    def alone(self, world: int) -> bool:
        """Whether this call is that rank's; threads of one process have no rank yet and are counted."""
        return (dist.get_rank() if dist.is_initialized() else next(self._calls)) % world == world - 1 > 0


class RefusesOnOneRank(OneRank):
    breaks = ("D7",)

    def refuses(self, case: Case, setting: Setting) -> str | None:
        return "no kernel for this shape" if self.alone(setting.world) else super().refuses(case, setting)


class LayoutDiffersOnOneRank(OneRank):
    breaks = ("D6",)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        held = super().layout(case, world)
        return held[::-1] if self.alone(world) else held


class Returned(Fault):
    """`changed` is returned in place of the right results."""

    def changed(self, out: Tensor, lse: Tensor, group: Group) -> Result:
        return out, lse

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return self.changed(*step(q, k, v), group)


class NotANumber(Returned):
    """The last token of the last rank is NaN, as from a buffer that nobody wrote."""

    breaks = ("B1",)

    def changed(self, out, lse, group):
        broken = torch.zeros_like(out)
        broken[:, :, -1:] = torch.nan if last(group) else 0.0
        return out + broken, lse


class ZerosEverywhere(Returned):
    """All outputs are zero: two such rings agree with each other."""

    breaks = ("B1",)

    def changed(self, out, lse, group):
        return out * 0, lse


class WrongDtype(Returned):
    breaks = ("B6",)

    def changed(self, out, lse, group):
        return out.to(torch.float32 if out.dtype == torch.float64 else torch.float64), lse


class LseInInputDtype(Returned):
    """lse of low-precision inputs has their dtype."""

    breaks = ("B2", "B6")

    def changed(self, out, lse, group):
        return out, lse.to(out.dtype)


class LseInSinglePrecision(Returned):
    """lse is fp32 whatever the inputs are."""

    breaks = ("B2",)

    def changed(self, out, lse, group):
        return out, lse.float()


class WrongShape(Returned):
    """The last rank forgets its last token."""

    breaks = ("B1",)

    def changed(self, out, lse, group):
        return (out[:, :, :-1] if last(group) else out), lse


class LseTransposed(Returned):
    """lse is [batch, tokens, heads]."""

    breaks = ("B2",)

    def changed(self, out, lse, group):
        return out, lse.transpose(1, 2)


class OutputTransposed(Returned):
    """The output is [batch, tokens, heads, head_dim]."""

    breaks = ("B1",)

    def changed(self, out, lse, group):
        return out.transpose(1, 2), lse


class ResultsInOneList(Returned):
    """The output comes as a list of batch rows."""

    breaks = ("B1",)

    def changed(self, out, lse, group):
        return list(out), lse


class OutputDetached(Returned):
    breaks = ("B4",)

    def changed(self, out, lse, group):
        return out.detach(), lse


class OutputOfOneRankDetached(Returned):
    """The last rank computes under no_grad."""

    breaks = ("B4", "D6")

    def changed(self, out, lse, group):
        return Changed.apply(out, lambda grad: grad * (not last(group))), lse


class Reseeds(Fault):
    """Every step sets torch's global seed."""

    breaks = ("D3",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        torch.manual_seed(0)
        return step(q, k, v)


class KeysDetached(Fault):
    """dk and dv are never computed."""

    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, *(Changed.apply(x, torch.zeros_like) for x in (k, v)))
