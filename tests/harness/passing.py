"""Strangers that move keys and values in ways of their own: by neighbours, by functional collectives, late."""

import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor

from harness.adapters.dense import Dense, attend

LATE = 0.2


def round_the_ring(x: Tensor, group) -> list[Tensor]:
    """Every rank's tensor on every rank, each passed on by its neighbour."""
    every, size, rank = [x] * group.size, group.size, group.rank
    after, before = group.ranks[(rank + 1) % size], group.ranks[(rank - 1) % size]
    for hop in range(1, size):
        arriving = torch.empty_like(x)
        works = [dist.isend(every[(rank - hop + 1) % size], after, group.process_group),
                 dist.irecv(arriving, before, group.process_group)]
        for work in works:
            work.wait()
        every[(rank - hop) % size] = arriving
    return every


def by_functional_collective(x: Tensor, group) -> list[Tensor]:
    gather = getattr(functional, "all_gather_single", functional.all_gather_tensor)
    whole = gather(x, 0, group.process_group)
    return list(functional.wait_tensor(whole).chunk(group.size))


def late_on_rank_1(x: Tensor, group) -> list[Tensor]:
    if group.rank == 1:
        time.sleep(LATE)
    return round_the_ring(x, group)


class Moved(torch.autograd.Function):
    """As dense.Gathered, moved by `how`."""

    @staticmethod
    def forward(context, x: Tensor, group, how) -> Tensor:
        context.given = group, how, x.shape[2]
        return torch.cat(how(x.contiguous(), group), 2)

    @staticmethod
    def backward(context, grad: Tensor):
        group, how, length = context.given
        start = group.rank * length
        every = how(grad.contiguous(), group)
        return sum(part[:, :, start:start + length].double() for part in every).to(grad.dtype), None, None


class Neighbours(Dense):
    in_process = False
    how = staticmethod(round_the_ring)

    def load(self, case, group, batch):
        own = self.layout(case, group.size)[group.rank]
        allowed = case.mask.allowed(batch, own.clamp(min=0), torch.arange(batch.tokens)) & (own >= 0)[:, None]
        allowed = allowed.repeat_interleave(case.shape.heads // allowed.shape[1], 1)

        def step(q, k, v):
            k, v = (Moved.apply(x, group, self.how)[:, :, :batch.tokens] for x in (k, v))
            return attend(q, k, v, allowed, case.scale)

        return step


class Functional(Neighbours):
    how = staticmethod(by_functional_collective)


class Late(Neighbours):
    how = staticmethod(late_on_rank_1)


class Unwaited(Neighbours):
    """Sends once more in a forward, and never waits for it."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        kept = []

        def more(q, k, v):
            x, y = torch.zeros(3), torch.zeros(3)
            other = group.ranks[1 - group.rank]
            kept[:] = [x, y, dist.isend(x, other, group.process_group, tag=9),
                       dist.irecv(y, other, group.process_group, tag=9)]
            return step(q, k, v)

        return more
