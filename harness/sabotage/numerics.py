"""Faults of precision: roundings, overflows and clippings that a loose tolerance lets pass."""

import torch
from torch import Tensor

from harness.implementation import Group, Step
from harness.sabotage.fault import Fault, Result, RingFault
from harness.sabotage.gradients import Changed


class Given(Fault):
    """Inputs are rounded by `rounded`; gradients pass."""

    breaks = ("B6",)

    def rounded(self, x: Tensor) -> Tensor:
        return x

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(*(x + (self.rounded(x.detach()) - x.detach()) for x in (q, k, v)))


class DoubleTakenForSingle(Given):
    """fp64 is computed in fp32."""

    def rounded(self, x: Tensor) -> Tensor:
        return x.float().to(x.dtype)


class TenBitProducts(Given):
    """fp32 products keep ten bits, as tensor cores do unless told otherwise."""

    def rounded(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            return x
        bits = x.contiguous().view(torch.int32)
        return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class Bfloat16Everywhere(Given):
    def rounded(self, x: Tensor) -> Tensor:
        return x.bfloat16().to(x.dtype)


class EightBitValues(Fault):
    breaks = ("B6",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k, v + (v.detach().to(torch.float8_e4m3fn).to(v.dtype) - v.detach()))


class OutputRoundedTwice(Fault):
    """Outputs of fp32 pass through fp16."""

    breaks = ("B6",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out.half().to(out.dtype) if out.dtype == torch.float32 else out, lse


class OutputTooSmall(Fault):
    """A denominator that starts at 1e-3."""

    breaks = ("B1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        weight = 1 / (1 + 1e-3 * (-lse).exp())
        return out * weight.nan_to_num()[..., None].to(out.dtype), lse


class LseRounded(Fault):
    """lse passes through bf16."""

    breaks = ("B2", "B6")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out, lse.bfloat16().to(lse.dtype)


class SoftmaxWithoutMaximum(RingFault):
    """Exponentials of scores overflow: rows whose sum exceeds the dtype are NaN."""

    breaks = ("B1", "B2")
    part = "kernels.torch_cpu.TorchCpu.dense"

    def instead(self, original, *given):
        out, lse = original(*given)
        over = lse.exp().isinf()
        return out.masked_fill(over[..., None], torch.nan), lse.masked_fill(over, torch.inf)


class Scores(RingFault):
    """Scores of a plain kernel that were changed before the softmax."""

    breaks = ("B1",)
    part = "kernels.eager.Eager._scores"

    def __init__(self):
        super().__init__()
        self.host.kernel = "eager"

    def scores(self, scores: Tensor) -> Tensor:
        return scores

    def instead(self, original, *given):
        return self.scores(original(*given))


class ScoresClipped(Scores):
    """Scores above 20 are taken for 20."""

    def scores(self, scores: Tensor) -> Tensor:
        return scores.clamp(max=20)


class ScoresInHalf(Scores):
    def scores(self, scores: Tensor) -> Tensor:
        return scores.half().to(scores.dtype)


class MaskedScoresFinite(Scores):
    """Masked scores are -30, so that a little leaks."""

    breaks = ("A7", "B1")

    def scores(self, scores: Tensor) -> Tensor:
        return scores.clamp(min=-30)


class SumsInBfloat16(RingFault):
    """dQ, dK and dV are added up in bf16."""

    breaks = ("B4", "B6")
    part = "attention.Ring.total"

    def instead(self, original, ring, like, rounded_once):
        total = original(ring, like, rounded_once)
        total.dtype = total.dtype if like.dtype == torch.float64 else torch.bfloat16
        return total


class GradientsClipped(Fault):
    """Gradients of keys above 1 in size are clipped."""

    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, Changed.apply(k, lambda grad: grad.clamp(-1, 1)), v)


class SmallGradientsFlushed(Fault):
    """Query gradients below 1e-4 in size are 0, as in a narrow format without loss scaling."""

    breaks = ("B4", "B6")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(Changed.apply(q, lambda grad: grad.masked_fill(grad.abs() < 1e-4, 0)), k, v)


class DoutInHalf(Fault):
    """dout passes through fp16."""

    breaks = ("B4", "B6")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return Changed.apply(out, lambda grad: grad.half().to(grad.dtype)), lse


class ValuesClamped(Fault):
    """v is held within 8, as a format of few bits holds it."""

    breaks = ("B1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k, v + (v.detach().clamp(-8, 8) - v.detach()))


class HalfOutputsDoubled(Fault):
    """float16 is unscaled once too often."""

    breaks = ("B1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return (out * 2, lse) if out.dtype == torch.float16 else (out, lse)
