"""Faults of the backward: right outputs, wrong gradients."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from harness.implementation import Group, Step
from harness.sabotage.fault import Fault, Result, RingFault, last
from harness.sabotage.gradients import scaled


class Backward(RingFault):
    """`given` changes what the ring's backward is given, `found` what it finds."""

    breaks = ("B4",)
    part = "attention.Ring.backward"

    def given(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> tuple[Tensor, ...]:
        return dout, q, k, v, out, lse

    def found(self, scale: float, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, ...]:
        return dq, dk, dv

    def instead(self, original: Callable, ring: Any, *given: Any) -> tuple[Tensor, ...]:
        *tensors, keys_need_grad = given
        return self.found(ring.scale, *original(ring, *self.given(*tensors), keys_need_grad))


class DoutIgnored(Backward):
    def given(self, dout, *others):
        return torch.ones_like(dout), *others


class DoutTakenAsExpanded(Backward):
    """The first token's dout serves all, as if it came from a sum over tokens."""

    def given(self, dout, *others):
        return dout[:, :, :1].expand_as(dout), *others


class DoutAssumedContiguous(Backward):
    """Reads dout's memory in order, whatever its strides are."""

    breaks = ("B4", "B7")

    def given(self, dout, *others):
        return in_memory_order(dout), *others


class DoutHeadsReversed(Backward):
    def given(self, dout, *others):
        return dout.flip(1), *others


class ValuesTakenForKeys(Backward):
    def given(self, dout, q, k, v, out, lse):
        return dout, q, v if v.shape == k.shape else k, v, out, lse


class KeysTakenForValues(Backward):
    def given(self, dout, q, k, v, out, lse):
        return dout, q, k, k if v.shape == k.shape else v, out, lse


class DeltaDropped(Backward):
    """dP is not reduced by the row's sum of dout * out."""

    def given(self, dout, q, k, v, out, lse):
        return dout, q, k, v, torch.zeros_like(out), lse


class DeltaTwice(Backward):
    def given(self, dout, q, k, v, out, lse):
        return dout, q, k, v, 2 * out, lse


class LseOfNeighbour(Backward):
    """The backward reads lse one token late."""

    def given(self, dout, q, k, v, out, lse):
        return dout, q, k, v, out, lse.roll(1, -1)


class ScaleMissingInQueryGradients(Backward):
    breaks = ("B4", "A9")

    def found(self, scale, dq, dk, dv):
        return dq / (scale or 1.0), dk, dv


class ScaleMissingInKeyGradients(Backward):
    breaks = ("B4", "A9")

    def found(self, scale, dq, dk, dv):
        return dq, dk / (scale or 1.0), dv


class ScaleTwiceInGradients(Backward):
    breaks = ("B4", "A9")

    def found(self, scale, dq, dk, dv):
        return dq * scale, dk * scale, dv


class KeyAndValueGradientsSwapped(Backward):
    def found(self, scale, dq, dk, dv):
        return (dq, dv, dk) if dk.shape == dv.shape else (dq, dk, dv)


class QueryGradientNegated(Backward):
    def found(self, scale, dq, dk, dv):
        return -dq, dk, dv


class OnFirstHop(RingFault):
    """Parts of the kernel's backward; `own` is what this hop's keys alone give."""

    breaks = ("B4",)
    part = "kernels.tiled.Tiled.backward"

    def own(self, kernel: Any, q: Tensor, k: Tensor, v: Tensor, work: Any, scale: float) -> tuple[Tensor, Tensor]:
        wide = [x.to(kernel.partial(x.dtype)).contiguous() for x in (q, k, v)]
        out, lse = kernel._forward(*wide, work, scale)
        return out.to(q.dtype), lse.masked_fill(lse.isneginf(), 0)


class LocalLse(OnFirstHop):
    """Every hop uses the lse of its own keys."""

    def instead(self, original, kernel, dout, q, k, v, out, lse, work, scale, *totals):
        lse = self.own(kernel, q, k, v, work, scale)[1].to(lse.dtype)
        original(kernel, dout, q, k, v, out, lse, work, scale, *totals)


class LocalOutput(OnFirstHop):
    """Every hop uses the output of its own keys for delta."""

    def instead(self, original, kernel, dout, q, k, v, out, lse, work, scale, *totals):
        out = self.own(kernel, q, k, v, work, scale)[0]
        original(kernel, dout, q, k, v, out, lse, work, scale, *totals)


class LocalSoftmaxForValues(OnFirstHop):
    """dV alone is weighted by the hop's own softmax."""

    def instead(self, original, kernel, dout, q, k, v, out, lse, work, scale, dq, dk, dv):
        own = self.own(kernel, q, k, v, work, scale)[1].to(lse.dtype)
        unused = [type(total)(total.shape, total.part, total.dtype, total.device) for total in (dq, dk, dv)]
        original(kernel, dout, q, k, v, out, lse, work, scale, dq, dk, unused[2])
        original(kernel, dout, q, k, v, out, own, work, scale, *unused[:2], dv)


class QueryGradientsOfFirstHop(OnFirstHop):
    """dQ holds what the first hop gives and nothing of the others."""

    def instead(self, original, kernel, *given):
        *others, dq, dk, dv = given
        sink = type(dq)(dq.shape, dq.part, dq.dtype, dq.device)
        original(kernel, *others, dq if dq._sum is None else sink, dk, dv)


class QueryGradientsOfLastHop(OnFirstHop):
    """dQ is copied instead of added."""

    def instead(self, original, kernel, *given):
        given[-3]._sum = None
        original(kernel, *given)


class CausalAtEveryHop(RingFault):
    """The backward of every hop is cut along its own diagonal."""

    breaks = ("B4", "A1")
    part = "kernels.tiled.Tiled._backward"

    def instead(self, original, kernel, dout, q, k, v, out, lse, work, scale):
        diagonal = torch.arange(1, work.queries + 1)[:, None].expand(work.spans.shape[:-1])
        spans = torch.stack([work.spans[..., 0], torch.minimum(work.spans[..., 1], diagonal)], -1)
        return original(kernel, dout, q, k, v, out, lse, replace(work, spans=spans), scale)


class QueryGradientOff(Fault):
    """dq of the last rank is 27 % too small, which no loss shows."""

    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(scaled(q, 0.73 if last(group) else 1.0), k, v)


class ValueGradientOff(Fault):
    """dv of the first rank is 1 % too large."""

    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k, scaled(v, 1.01 if group.rank == 0 else 1.0))


def in_memory_order(x: Tensor) -> Tensor:
    """The elements as they lie in memory from x's first on, in x's shape; repeated where memory ends."""
    memory = x.new_empty(0).set_(x.untyped_storage())[x.storage_offset():]
    times = -(-x.numel() // max(1, memory.numel()))
    return memory.repeat(times)[:x.numel()].view(x.shape).clone()
