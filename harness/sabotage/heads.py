"""Faults of the heads: which key/value head a query head reads, and what becomes of head dimensions."""

from collections.abc import Callable

import torch
from torch import Tensor

from harness.implementation import Group, Step
from harness.sabotage.fault import Fault, Result, RingFault
from harness.sabotage.gradients import Changed


class HeadMap(Fault):
    """Query head h reads key/value head `reads(Hq, Hkv)[h]`."""

    breaks = ("A8",)

    def reads(self, heads: int, kv_heads: int) -> Tensor:
        return torch.arange(heads) // (heads // kv_heads)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        read = self.reads(q.shape[1], k.shape[1]).to(k.device)
        return step(q, k[:, read], v[:, read])


class HeadsInterleaved(HeadMap):
    def reads(self, heads: int, kv_heads: int) -> Tensor:
        return torch.arange(heads) % kv_heads


class HeadsReadTheFirst(HeadMap):
    def reads(self, heads: int, kv_heads: int) -> Tensor:
        return torch.zeros(heads, dtype=torch.int64)


class HeadRatioOfPaddedHeads(HeadMap):
    """Query heads per key/value head are counted after padding the query heads to eight."""

    def reads(self, heads: int, kv_heads: int) -> Tensor:
        return torch.arange(heads) // max(1, -(-heads // 8) * 8 // kv_heads)


class HeadsNotRepeated(HeadMap):
    """Key/value heads serve one query head each, the last one all the rest."""

    def reads(self, heads: int, kv_heads: int) -> Tensor:
        return torch.arange(heads).clamp(max=kv_heads - 1)


class HeadsBeyondFourReadTheFirst(HeadMap):
    def reads(self, heads: int, kv_heads: int) -> Tensor:
        return torch.where(torch.arange(heads) < 4, super().reads(heads, kv_heads), 0)


class KeyHeadsBeyondFourReadTheFirst(HeadMap):
    def reads(self, heads: int, kv_heads: int) -> Tensor:
        own = super().reads(heads, kv_heads)
        return own.where(own < 4, 0)


class SharedHeads(Fault):
    """Keys and values repeated to one head each query head, whose gradients `together` makes one again:
    `[B, Hkv, Hq / Hkv, L, D]` -> `[B, Hkv, L, D]`."""

    breaks = ("A8", "B4")

    def together(self, grad: Tensor) -> Tensor:
        return grad.sum(2)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        times = q.shape[1] // k.shape[1]

        def back(grad: Tensor) -> Tensor:
            whole = self.together(grad.unflatten(1, (-1, times)))
            return (whole / times).repeat_interleave(times, 1)

        return step(q, *(Changed.apply(x.repeat_interleave(times, 1), back) for x in (k, v)))


class SharedGradientsAveraged(SharedHeads):
    def together(self, grad: Tensor) -> Tensor:
        return grad.mean(2)


class SharedGradientsOfTheFirst(SharedHeads):
    def together(self, grad: Tensor) -> Tensor:
        return grad[:, :, 0]


class SharedGradientsOfTheLast(SharedHeads):
    def together(self, grad: Tensor) -> Tensor:
        return grad[:, :, -1]


class BatchAndHeadsMixed(Fault):
    """Keys cross from one batch row to the other where the all-to-all counts heads before rows."""

    breaks = ("A8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, *(x.transpose(0, 1).reshape(x.shape) for x in (k, v)))


class ValuesOfNeighbourHead(Fault):
    breaks = ("A8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k, v.roll(1, 1))


class LseHeadsAndTokensMixed(Fault):
    """lse comes as [B, L, H] and is read as [B, H, L]."""

    breaks = ("B2", "A8")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out, lse.transpose(1, 2).reshape(lse.shape)


class ArrivingHeadsReversed(RingFault):
    """Heads of keys that were sent are unpacked from the back."""

    breaks = ("A8",)
    part = "transfer.unpack"

    def instead(self, original: Callable, message: Tensor, *place) -> tuple[Tensor, Tensor]:
        return original(message.flip(1), *place)


class ArrivingHeadsAllTheFirst(RingFault):
    breaks = ("A8",)
    part = "transfer.unpack"

    def instead(self, original: Callable, message: Tensor, *place) -> tuple[Tensor, Tensor]:
        return original(message[:, :1].expand_as(message), *place)


class WideValuesCut(Fault):
    """Values wider than head_dim lose the rest."""

    breaks = ("A8", "B1")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k, v * (torch.arange(v.shape[-1], device=v.device) < q.shape[-1]))


class NarrowValuesRepeated(Fault):
    """Values narrower than head_dim are padded by reading on: their last dimension is that of the next token."""

    breaks = ("A8", "B1")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if v.shape[-1] >= q.shape[-1]:
            return step(q, k, v)
        return step(q, k, torch.cat([v[..., :-1], v.roll(-1, 2)[..., -1:]], -1))
