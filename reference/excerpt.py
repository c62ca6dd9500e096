"""Exact rows and keys of sequences too long for the whole truth: what a few queries give and a few keys get."""

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows
from reference.dense import attend, exactly
from reference.pairs import rows_at_once


@torch.no_grad()
def of_queries(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: Mask, rows: Rows, i: Tensor,
               scale: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """out `[B, Hq, I, Dv]`, lse `[B, Hq, I]` and dq `[B, Hq, I, D]` of the queries at positions i `[I]`, in fp64.

    The other arguments are those of `reference.dense.truth`. Memory is O(I * S); at most a few hundred queries at once.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    work = _Rows(q, k, v, dout, mask, rows, i, scale)
    dq = (work.dscores @ work.k.mT).mul_(scale)
    heads = [x.unflatten(2, (-1, len(i))).flatten(1, 2) for x in (work.out, work.lse, dq)]
    return heads[0], heads[1][..., 0], heads[2]


@torch.no_grad()
def of_keys(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: Mask, rows: Rows, j: Tensor,
            scale: float | None = None) -> tuple[Tensor, Tensor]:
    """dk `[B, Hkv, J, D]` and dv `[B, Hkv, J, Dv]` of the keys at positions j `[J]`, in fp64.

    Costs a forward of every query that sees one of these keys, in blocks of O(block * S) memory.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    dk, dv = (x.new_zeros(*x.shape[:2], len(j), x.shape[-1], dtype=torch.float64) for x in (k, v))
    for i in torch.arange(rows.tokens).split(rows_at_once(q)):
        i = i[mask.allowed(rows, i, j).any(-1).flatten(0, 1).any(0)]
        if len(i):
            work = _Rows(q, k, v, dout, mask, rows, i, scale)
            dk += (work.dscores[..., j].mT @ work.q).mul_(scale)
            dv += work.weights[..., j].mT @ work.dout
    return dk, dv


class _Rows:
    """Queries at positions i, all keys: q, dout, out `[B, G, R * I, ...]`, weights and dscores `[B, G, R * I, S]`."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: Mask, rows: Rows, i: Tensor, scale: float):
        allowed = mask.allowed(rows, i, torch.arange(rows.tokens)).to(q.device)
        allowed = allowed.expand(-1, k.shape[1], -1, -1)
        seen, live = allowed.any(2), allowed.any(3)[:, :, None]
        grouped = [x.unflatten(1, (k.shape[1], -1))[:, :, :, i] for x in (q, dout)]
        self.q, self.dout = (exactly(x, live).flatten(2, 3) for x in grouped)
        self.k, values = (exactly(x, seen).mT for x in (k, v))
        self.weights, self.lse = attend(self.q, self.k, allowed, scale)
        self.out = self.weights @ values.mT
        delta = (self.out * self.dout).sum(-1, keepdim=True)
        self.dscores = (self.dout @ values).sub_(delta).mul_(self.weights)
