"""Faults of the merge: partial results of hops that become a wrong whole."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from harness.implementation import Group, Step
from harness.sabotage.fault import Fault, Result, RingFault

Weights = tuple[Tensor, Tensor, Tensor]


class Merge(RingFault):
    """Subclasses say how two parts weigh and what their lse together is; H heads, T tokens."""

    part = "merge.merge_"

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        """lse `[H, T]` of both -> weights of both and lse of the whole."""
        return right(old, new)

    def parts(self, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        return old, new

    def instead(self, original: Callable, out: Tensor, lse: Tensor, place, part: Tensor, part_lse: Tensor) -> None:
        old_weight, new_weight, total = self.weights(lse[:, place], part_lse)
        old, new = self.parts(out[place], part)
        out[place] = (old * old_weight.T[..., None] + new * new_weight.T[..., None]).to(out.dtype)
        lse[:, place] = total.to(lse.dtype)


def right(old: Tensor, new: Tensor) -> Weights:
    total = torch.logaddexp(old, new)
    anchor = total.masked_fill(total.isneginf(), 0)
    return (old - anchor).exp(), (new - anchor).exp(), total


class NaiveExponentials(Merge):
    """Sums of exponentials without their maximum overflow."""

    breaks = ("B1", "B2")

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        whole = old.exp() + new.exp()
        some = whole.clamp(min=torch.finfo(whole.dtype).tiny)
        return old.exp() / some, new.exp() / some, whole.log()


class SumTermDropped(Merge):
    """The larger lse is taken for the lse of both, without log1p of the rest."""

    breaks = ("B1", "B2")

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        total = torch.maximum(old, new)
        anchor = total.masked_fill(total.isneginf(), 0)
        return (old - anchor).exp(), (new - anchor).exp(), total


class LseOfTheLarger(Merge):
    """The output is right, the lse that goes with it is that of the larger part."""

    breaks = ("B2",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        return *right(old, new)[:2], torch.maximum(old, new)


class LseOfTheFirst(Merge):
    breaks = ("B2",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        return *right(old, new)[:2], torch.where(old.isneginf(), new, old)


class WeightsInBaseTwo(Merge):
    breaks = ("B1",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        total = torch.logaddexp2(old, new)
        anchor = total.masked_fill(total.isneginf(), 0)
        return (old - anchor).exp2(), (new - anchor).exp2(), total


class NothingMinusNothing(Merge):
    """Minus infinity minus minus infinity is not guarded: rows without keys become NaN."""

    breaks = ("B3",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        total = torch.logaddexp(old, new)
        return (old - total).exp(), (new - total).exp(), total


class EmptyPartAsZero(Merge):
    """A part without keys weighs as if its lse were 0, as torch's CPU kernel reports it."""

    breaks = ("B1", "B2", "B3")

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        return right(old, new.masked_fill(new.isneginf(), 0))


class WeightsSwapped(Merge):
    breaks = ("B1",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        first, second, total = right(old, new)
        return second, first, total


class PartsAdded(Merge):
    breaks = ("B1",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        return torch.ones_like(old), torch.ones_like(new), right(old, new)[2]


class PartsAveraged(Merge):
    """Two parts with keys count the same, however many keys each has."""

    breaks = ("B1",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        first, second, total = right(old, new)
        both = old.isfinite() & new.isfinite()
        return first.masked_fill(both, 0.5), second.masked_fill(both, 0.5), total


class LastPartWins(Merge):
    breaks = ("B1",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        first, second, total = right(old, new)
        some = new.isfinite()
        return first.masked_fill(some, 0), second.masked_fill(some, 1), total


class FirstPartWins(Merge):
    breaks = ("B1",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        first, second, total = right(old, new)
        some = old.isfinite()
        return first.masked_fill(some, 1), second.masked_fill(some, 0), total


class LargerPartWins(Merge):
    breaks = ("B1",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        return (old >= new).to(old.dtype), (old < new).to(old.dtype), right(old, new)[2]


class SmallPartsSkipped(Merge):
    """A part that weighs less than e^-8 is left out to save a rescaling."""

    breaks = ("B1",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        small = new < old - 8
        first, second, total = right(old, new)
        return first.masked_fill(small, 1), second.masked_fill(small, 0), torch.where(small, old, total)


class WeightsOfFirstHead(Merge):
    breaks = ("B1", "A8")

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        first, second, total = right(old, new)
        return first[:1].expand_as(first), second[:1].expand_as(second), total


class PartsInBfloat16(Merge):
    """Partial results are rounded to bf16 every hop."""

    breaks = ("B6",)

    def parts(self, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        return old, new.bfloat16().to(new.dtype)


class RunningInBfloat16(Merge):
    """What was merged so far is rounded to bf16 every hop."""

    breaks = ("B6",)

    def parts(self, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        return old.bfloat16().to(old.dtype), new


class WeightsInHalf(Merge):
    breaks = ("B6",)

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        first, second, total = right(old, new)
        return first.half().to(old.dtype), second.half().to(old.dtype), total


class LseInBfloat16(Merge):
    breaks = ("B2", "B6")

    def weights(self, old: Tensor, new: Tensor) -> Weights:
        return right(old.bfloat16().to(old.dtype), new)


class EveryPartTwice(RingFault):
    """Each part is merged twice: the output stays, lse grows by log 2."""

    breaks = ("B2",)
    part = "merge.Merged.add"

    def instead(self, original: Callable, merged, place, out: Tensor, lse: Tensor) -> None:
        for _ in range(2):
            original(merged, place, out.clone(), lse.clone())


class LseInBaseTwo(Fault):
    breaks = ("B2",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out, lse / math.log(2)


class LseNegated(Fault):
    breaks = ("B2",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out, torch.where(lse.isinf(), lse, -lse)

