"""Faults of size: what is right until something is odd, long, wide or many."""

import torch
from torch import Tensor

from harness.implementation import Group, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.gradients import Changed
from harness.sabotage.views import MaskFault, View


class LastPartialBlockLost(MaskFault):
    """Keys beyond the last whole block of 64 of a row are never read."""

    breaks = ("B1",)

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.key < max(64, len(view.key) // 64 * 64))


class OddTokenLost(MaskFault):
    """The last key of a row of odd length is never read."""

    breaks = ("B1",)

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.key < max(1, len(view.key) // 2 * 2))


class KeysBeyond384Lost(MaskFault):
    """The table of key blocks has six places."""

    breaks = ("B1",)

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.key < 384)


class ShortShardsEmpty(MaskFault):
    """A rank with fewer than two tokens computes nothing."""

    breaks = ("B1", "D1")

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.query.shape[2] >= 2)


class LongShardsCut(MaskFault):
    """Keys in slots beyond 200 of their rank are never sent."""

    breaks = ("B1", "D1")

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.own | (view.slot < 200))


class Dims(Fault):
    """`kept` dimensions of each head of q and k reach the product."""

    breaks = ("B1",)

    def kept(self, head_dim: int) -> int:
        return head_dim

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        some = torch.arange(q.shape[-1], device=q.device) < self.kept(q.shape[-1])
        return step(q * some, k * some, v)


class HeadDimBeyond64Cut(Dims):
    def kept(self, head_dim: int) -> int:
        return 64


class HeadDimBeyond96Cut(Dims):
    def kept(self, head_dim: int) -> int:
        return 96


class HeadDimCutToSixteens(Dims):
    """Head dimensions beyond a multiple of 16 are not multiplied."""

    def kept(self, head_dim: int) -> int:
        return head_dim // 16 * 16


class RowsBeyondTheFirstEmpty(Fault):
    """Only the first row of a batch is computed."""

    breaks = ("B1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out * (torch.arange(out.shape[0], device=out.device) == 0)[:, None, None, None], lse


class HeadsBeyondSixEmpty(Fault):
    """The grid has six places for heads."""

    breaks = ("B1", "A8")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out * (torch.arange(out.shape[1], device=out.device) < 6)[:, None, None], lse


class OddHeadLost(Fault):
    """Heads are taken in pairs; the last of an odd number stays empty."""

    breaks = ("B1", "A8")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out * (torch.arange(out.shape[1], device=out.device) < max(1, out.shape[1] // 2 * 2))[:, None, None], lse


class SpansBeyondTwoLost(MaskFault):
    """A query has room for two stretches of keys."""

    breaks = ("A7", "B1")

    def pairs(self, view: View) -> Tensor:
        starts = view.allowed & ~torch.cat([torch.zeros_like(view.allowed[..., :1]), view.allowed[..., :-1]], -1)
        return view.allowed & (starts.cumsum(-1) <= 2)


class GradientsBeyondSlot150Lost(Fault):
    """dk of tokens whose local slot exceeds 150 stays zero."""

    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        def cut(grad: Tensor) -> Tensor:
            return grad * (torch.arange(grad.shape[2], device=grad.device) < 150)[:, None]

        return step(q, Changed.apply(k, cut), v)
