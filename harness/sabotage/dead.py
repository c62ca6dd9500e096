"""Faults of dead rows and unseen keys: what a query without keys returns and what stays exactly zero."""

import torch
from torch import Tensor

from harness.implementation import Group, Step
from harness.sabotage.fault import Fault, Result, RingFault
from harness.sabotage.gradients import Changed


class DeadRows(RingFault):
    """`dead` is what the ring returns for queries without keys."""

    breaks = ("B3",)
    part = "attention.Ring.forward"

    def dead(self, out: Tensor, lse: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor | float, Tensor | float]:
        return 0.0, -torch.inf

    def instead(self, original, ring, q, k, v):
        out, lse = original(ring, q, k, v)
        gone = lse.isneginf()
        found = self.dead(out, lse, k, v)
        return out.where(~gone[..., None], found[0]).to(out.dtype), lse.where(~gone, found[1]).to(lse.dtype)


class DeadRowsAverage(DeadRows):
    """Masked scores are -1e9, so that a row without keys averages all values."""

    def dead(self, out, lse, k, v):
        mean = v.nan_to_num().mean(2, keepdim=True)
        return mean.repeat_interleave(out.shape[1] // mean.shape[1], 1).nan_to_num(), -1e9


class DeadRowsNotANumber(DeadRows):
    def dead(self, out, lse, k, v):
        return torch.nan, -torch.inf


class DeadRowsOfOnes(DeadRows):
    """A buffer that nobody wrote."""

    def dead(self, out, lse, k, v):
        return 1.0, -torch.inf


class DeadLseZero(Fault):
    """torch's CPU kernel gives lse 0 for a row that sees nothing."""

    breaks = ("B2", "B3")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out, lse.masked_fill(lse == -torch.inf, 0)


class DeadLseLowest(DeadRows):
    """lse of a row without keys is the lowest finite number."""

    breaks = ("B2", "B3")

    def dead(self, out, lse, k, v):
        return 0.0, torch.finfo(lse.dtype).min


class WhollyPaddedRankUnwritten(DeadRows):
    """A rank of nothing but padding returns what its memory held."""

    def instead(self, original, ring, q, k, v):
        out, lse = original(ring, q, k, v)
        empty = bool(lse.numel()) and bool(lse.isneginf().all())
        return (out + 1 if empty else out), lse


class PadGradients(Fault):
    """`left` is what the gradient of dead queries or unseen keys holds; zeros are taken for those."""

    breaks = ("B3", "B4")
    of = "q"

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        given = {"q": q, "k": k, "v": v}
        given[self.of] = Changed.apply(given[self.of], unwritten)
        return step(**given)


class DeadQueryGradientsUnwritten(PadGradients):
    pass


class UnseenKeyGradientsUnwritten(PadGradients):
    breaks = ("B4",)
    of = "k"


class UnseenValueGradientsUnwritten(PadGradients):
    breaks = ("B4",)
    of = "v"


def unwritten(grad: Tensor) -> Tensor:
    """Rows of zeros hold something else."""
    return grad.masked_fill((grad == 0).all(-1, keepdim=True), 1e-3)
