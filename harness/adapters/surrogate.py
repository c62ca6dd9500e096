"""Surrogate: what a FlashAttention-2 kernel computes, densely in fp32, so that rings around it run on CPU.

Tokens before heads: q `[B, n, Hq, D]`, k and v `[B, m, Hkv, D]`, lse `[B, Hq, n]`. Causal is aligned at the bottom
right; a row without keys gives 0 and lse plus infinity.
"""

import torch
from torch import Tensor


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """out in q's dtype, lse in fp32."""
    scores = _scores(q, k, scale, causal)
    lse = scores.logsumexp(-1)
    weights = scores.softmax(-1).masked_fill((lse == -torch.inf)[..., None], 0)
    out = (weights @ _heads(v, q.shape[2])).transpose(1, 2)
    return out.to(q.dtype), lse.masked_fill(lse == -torch.inf, torch.inf)


def backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float,
             causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv of these keys alone, from the out and lse of all keys."""
    weights = (_scores(q, k, scale, causal) - _as_laid_out(lse)[..., None]).exp()
    dout_h, out_h, q_h = (x.float().transpose(1, 2) for x in (dout, out, q))
    delta = (dout_h * out_h).sum(-1, keepdim=True)
    rates = weights * (dout_h @ _heads(v, q.shape[2]).mT - delta) * scale
    dq = rates @ _heads(k, q.shape[2])
    dk, dv = (_summed(x, k.shape[2]) for x in (rates.mT @ q_h, weights.mT @ dout_h))
    return tuple(grad.transpose(1, 2).to(q.dtype) for grad in (dq, dk, dv))


def forward_varlen(q: Tensor, k: Tensor, v: Tensor, starts: tuple[Tensor, Tensor], scale: float,
                   causal: bool) -> tuple[Tensor, Tensor]:
    """q `[T, Hq, D]`, k and v `[U, Hkv, D]`, starts of the segments in both -> out `[T, Hq, D]`, lse `[Hq, T]`."""
    out, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), torch.inf, dtype=torch.float32)
    for rows, keys in _segments(starts):
        part, part_lse = forward(q[None, rows], k[None, keys], v[None, keys], scale, causal)
        out[rows], lse[:, rows] = part[0], part_lse[0]
    return out, lse


def backward_varlen(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                    starts: tuple[Tensor, Tensor], scale: float, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    lse = _as_laid_out(lse)
    for rows, keys in _segments(starts):
        given = (dout[rows], q[rows], k[keys], v[keys], out[rows], lse[:, rows].contiguous())
        parts = backward(*(x[None] for x in given), scale, causal)
        dq[rows], dk[keys], dv[keys] = (part[0] for part in parts)
    return dq, dk, dv


def _scores(q: Tensor, k: Tensor, scale: float, causal: bool) -> Tensor:
    scores = q.float().transpose(1, 2) @ _heads(k, q.shape[2]).mT * scale
    rows, keys = scores.shape[-2:]
    unseen = torch.ones(rows, keys, dtype=torch.bool, device=q.device).triu(1 + keys - rows)
    return scores.masked_fill(unseen, -torch.inf) if causal else scores


def _heads(x: Tensor, heads: int) -> Tensor:
    """`[B, m, Hkv, D]` -> fp32 `[B, Hq, m, D]`."""
    return x.float().transpose(1, 2).repeat_interleave(heads // x.shape[2], 1)


def _summed(x: Tensor, kv_heads: int) -> Tensor:
    return x.unflatten(1, (kv_heads, -1)).sum(2)


def _as_laid_out(lse: Tensor) -> Tensor:
    """The kernel takes lse by its address and never asks for its strides."""
    return lse if lse.is_contiguous() else lse.as_strided(lse.shape, torch.empty(lse.shape, device="meta").stride())


def _segments(starts: tuple[Tensor, Tensor]) -> list[tuple[slice, slice]]:
    ends = [[slice(*pair) for pair in zip(part, part[1:])] for part in (one.tolist() for one in starts)]
    return list(zip(*ends, strict=True))
