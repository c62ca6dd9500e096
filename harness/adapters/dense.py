"""The smallest honest adapter: every rank gathers all keys and values and attends densely in fp64.

An example to copy, and a slow host for faults. It reads masks with `Mask.allowed`, so it says nothing about masks.
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Implementation, Setting, Step


class Dense(Implementation):
    """Contiguous shards of one length; the last ones end in filler slots."""

    name = "dense"
    own_layout = "contiguous"
    in_process = True

    def refuses(self, case: Case, setting: Setting) -> str | None:
        foreign = [rule.name for rule in case.mask.rules if rule.refused]
        return f"no {', '.join(foreign)}" if foreign else None

    def layout(self, case: Case, world: int) -> list[Tensor]:
        length = -(-case.shape.tokens // world)
        slots = torch.arange(world * length)
        return list(slots.where(slots < case.shape.tokens, -1).view(world, length))

    def load(self, case: Case, group: Group, batch: Rows) -> Step:
        own = self.layout(case, group.size)[group.rank]
        allowed = case.mask.allowed(batch, own.clamp(min=0), torch.arange(batch.tokens)) & (own >= 0)[:, None]
        allowed = allowed.repeat_interleave(case.shape.heads // allowed.shape[1], 1)

        def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            k, v = (Gathered.apply(x, group)[:, :, :batch.tokens] for x in (k, v))
            return attend(q, k, v, allowed, case.scale)

        return step


class Gathered(torch.autograd.Function):
    """Local `[B, H, L, D]` -> all ranks' `[B, H, world * L, D]`; the backward sums what all ranks send back."""

    @staticmethod
    def forward(context, x: Tensor, group: Group) -> Tensor:
        context.group, context.length = group, x.shape[2]
        return torch.cat(exchange(x.contiguous(), group), 2)

    @staticmethod
    def backward(context, grad: Tensor) -> tuple[Tensor, None]:
        start = context.group.rank * context.length
        every = exchange(grad.contiguous(), context.group)
        wide = sum(part[:, :, start:start + context.length].double() for part in every)
        return wide.to(grad.dtype), None


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    """Dense attention in fp64: allowed `[B, Hq, L, S]`; dead rows are 0 and -inf, what nobody sees changes nothing."""
    heads, allowed = q.shape[1] // k.shape[1], allowed.to(q.device)
    seen, live = allowed.any(-2)[..., None], allowed.any(-1, keepdim=True)
    k, v = (x.double().repeat_interleave(heads, 1).masked_fill(~seen, 0) for x in (k, v))
    scores = q.double().masked_fill(~live, 0) @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~allowed, -torch.inf).masked_fill(~live, 0)
    out = (scores.softmax(-1) @ v).masked_fill(~live, 0)
    lse = scores.detach().logsumexp(-1).masked_fill(~live[..., 0], -torch.inf)
    return out.to(q.dtype), lse.to(torch.float64 if q.dtype == torch.float64 else torch.float32)


def exchange(x: Tensor, group: Group) -> list[Tensor]:
    """Every rank's tensor on every rank."""
    if group.size == 1:
        return [x]
    if group.process_group is None:
        return _meet(x, group)
    every = [torch.empty_like(x) for _ in range(group.size)]
    dist.all_gather(every, x, group=group.process_group)
    return every


def _meet(x: Tensor, group: Group) -> list[Tensor]:
    """Ranks as threads: the n-th exchange of each rank has a slot of its own."""
    turn = group.shared.setdefault(("turn", group.rank), 0)
    group.shared["turn", group.rank] = turn + 1
    group.shared[turn, group.rank] = x
    while not all((turn, rank) in group.shared for rank in range(group.size)):
        if group.shared["stop"].is_set():
            raise RuntimeError("another rank was lost")
        time.sleep(1e-4)
    return [group.shared[turn, rank] for rank in range(group.size)]
