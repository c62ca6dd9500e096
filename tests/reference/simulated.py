"""A correct ring in a low precision, simulated in one process: what the budgets must accept."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows

LOG2E = 1.4426950408889634


@dataclass(frozen=True)
class Ring:
    """How it computes, within what real kernels do.

    chunks   ranks, each with an equal share of the keys
    scores   "fp32", "dtype" (rounded, as eager attention has them), "prescaled" (q * scale rounded) or "exp2"
    partial  "fp32" or "dtype": what a hop's out and gradients are rounded to before they are merged in fp32
    """

    chunks: int
    scores: str = "fp32"
    partial: str = "fp32"

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: Mask, rows: Rows,
                 scale: float | None = None) -> dict[str, Tensor]:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        problem = _Problem(self, q, k, v, dout, mask, rows, scale)
        hops = [j for j in torch.arange(q.shape[2]).tensor_split(self.chunks) if len(j)]
        out, lse = problem.forward(hops)
        return problem.backward(hops, out, lse)


class _Problem:
    """Everything in fp32 that holds what `dtype` can hold; heads grouped as [B, G, R, S, D]."""

    def __init__(self, ring: Ring, q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: Mask, rows: Rows, scale: float):
        self.ring, self.dtype, self.scale = ring, q.dtype, scale
        self.q, self.dout = (x.float().unflatten(1, (k.shape[1], -1)) for x in (q, dout))
        self.k, self.v = (x.float()[:, :, None] for x in (k, v))
        everything = torch.arange(q.shape[2])
        self.allowed = mask.allowed(rows, everything, everything)[:, :, None]

    def forward(self, hops: list[Tensor]) -> tuple[Tensor, Tensor]:
        out, lse = torch.zeros_like(self.dout), torch.full_like(self.dout[..., :1], -torch.inf)
        for j in hops:
            scores = self.scores(j)
            peak = scores.amax(-1, keepdim=True).nan_to_num(neginf=0)
            weights = (scores - peak).exp()
            total = weights.sum(-1, keepdim=True)
            hop_out = self.hop(self.rounded(weights) @ self.v[..., j, :] / total.clamp(min=1e-30))
            hop_lse = total.log() + peak
            both = torch.logaddexp(lse, hop_lse)
            safe = both.nan_to_num(neginf=0)
            out, lse = out * (lse - safe).exp() + hop_out * (hop_lse - safe).exp(), both
        return self.rounded(out), lse

    def backward(self, hops: list[Tensor], out: Tensor, lse: Tensor) -> dict[str, Tensor]:
        delta = (out * self.dout).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(self.q), torch.zeros_like(self.k), torch.zeros_like(self.v)
        for j in hops:
            weights = (self.scores(j) - lse.nan_to_num(neginf=0)).exp()
            dscores = self.rounded(weights * (self.dout @ self.v[..., j, :].mT - delta))
            dq += self.hop(dscores @ self.k[..., j, :] * self.scale)
            dk[..., j, :] = self.hop((dscores.mT @ self.q).sum(2, keepdim=True) * self.scale)
            dv[..., j, :] = self.hop((self.rounded(weights).mT @ self.dout).sum(2, keepdim=True))
        found = {"out": out, "dq": dq, "dk": dk, "dv": dv}
        return {name: x.flatten(1, 2).to(self.dtype) for name, x in found.items()} | {"lse": lse.flatten(1, 2)[..., 0]}

    def scores(self, j: Tensor) -> Tensor:
        k, kind = self.k[..., j, :], self.ring.scores
        if kind == "prescaled":
            scores = self.rounded(self.q * self.scale) @ k.mT
        elif kind == "exp2":
            scores = self.q @ k.mT * (self.scale * LOG2E) / LOG2E
        else:
            scores = self.q @ k.mT * self.scale
        if kind == "dtype":
            scores = self.rounded(scores)
        return scores.masked_fill(~self.allowed[..., j], -torch.inf)

    def hop(self, x: Tensor) -> Tensor:
        return self.rounded(x) if self.ring.partial == "dtype" else x

    def rounded(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).float()
