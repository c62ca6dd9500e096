"""The smallest adapter: all-gathers q, k, v to every rank and attends densely. An example, and the tests' honest ring."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_gather

from harness.implementation import Implementation


class Dense(Implementation):
    """Contiguous shards, padded with filler slots to one length."""

    def layout(self, case, world):
        length = -(-case.shape.tokens // world)
        slots = torch.arange(world * length)
        return list(slots.where(slots < case.shape.tokens, -1).view(world, length))

    def load(self, case, group, batch):
        mask = case.mask.under(self.variants)
        everywhere = torch.arange(batch.tokens)
        allowed = mask.allowed(batch, everywhere, everywhere)
        own = self.layout(case, group.size)[group.rank].clamp(min=0)
        allowed = allowed.repeat_interleave(case.shape.heads // allowed.shape[1], 1)[:, :, own]

        def step(q, k, v):
            k, v = (whole(x, group, batch.tokens) for x in (k, v))
            return attend(q, k, v, allowed, case.scale)

        return step


def whole(x: Tensor, group, tokens: int) -> Tensor:
    if group.size == 1:
        return x[:, :, :tokens]
    return torch.cat(all_gather(x.contiguous(), group=group.process_group), 2)[:, :, :tokens]


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    """Dense attention in fp64, zero in dead rows."""
    heads = q.shape[1] // k.shape[1]
    wide = [x.double() for x in (q, k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1))]
    scores = wide[0] @ wide[1].mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    dead = ~allowed.any(-1, keepdim=True)
    scores = scores.masked_fill(~allowed, -torch.inf).masked_fill(dead, 0)
    out = (scores.softmax(-1) @ wide[2]).masked_fill(dead, 0)
    lse = scores.logsumexp(-1).masked_fill(dead[..., 0], -torch.inf)
    return out.to(q.dtype), lse.detach().to(torch.float64 if q.dtype == torch.float64 else torch.float32)
