"""The twin: an independent dense computation in a low precision, whose error says what it costs (SPEC C).

Every product is accumulated in fp32 and rounded to the dtype, as plain attention would; softmax and lse are fp32, and
gradients of keys are rounded once, after the sum over all queries and query heads.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows
from reference.pairs import Pairs, rows_at_once


@dataclass(frozen=True)
class Twin:
    """out, dq, dk, dv in the inputs' dtype and lse in fp32 (fp64 for fp64), shaped as in `reference.dense.Truth`."""

    out: Tensor
    lse: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


@torch.no_grad()
def twin(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: Mask, rows: Rows, scale: float | None = None) -> Twin:
    """Attention and its gradients in the dtype of q; arguments as for `reference.dense.truth`."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
    pairs = Pairs(mask, rows, rows_at_once(q))
    ratio = q.shape[1] // k.shape[1]
    live = pairs.live.repeat_interleave(ratio, 1)[..., None].to(q.device)
    seen = pairs.seen[..., None].to(q.device)
    q, dout = torch.where(live, q, 0).to(wide), torch.where(live, dout, 0).to(wide)
    k, v = torch.where(seen, k, 0).to(wide), torch.where(seen, v, 0).to(wide)
    out, lse = torch.zeros_like(dout), torch.full_like(dout[..., 0], -torch.inf)
    dq, dk, dv = map(torch.zeros_like, (q, k, v))
    for i, j, allowed in pairs:
        bias = torch.zeros(allowed.shape, dtype=wide).masked_fill(~allowed, -torch.inf).to(q.device)
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                g = h // ratio
                block = _Block(q[b, h, i], k[b, g, j], v[b, g, j], bias[b, g if bias.shape[1] > 1 else 0], scale, dtype)
                out[b, h, i], lse[b, h, i] = block.forward()
                dq[b, h, i], dk_block, dv_block = block.backward(dout[b, h, i])
                dk[b, g, j] += dk_block
                dv[b, g, j] += dv_block
    return Twin(out.to(dtype), lse, dq.to(dtype), dk.to(dtype), dv.to(dtype))


class _Block:
    """Query rows of one head against keys, all 2-d; holds in `wide` numbers what `dtype` can hold."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, dtype: torch.dtype):
        self.q, self.k, self.v, self.scale, self.dtype = q, k, v, scale, dtype
        self.scores = self.rounded(q @ k.T * scale) + bias

    def rounded(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).to(x.dtype)

    def forward(self) -> tuple[Tensor, Tensor]:
        """out `[I, Dv]` and lse `[I]`; torch.softmax makes NaN of a dead row, which becomes 0."""
        self.lse = torch.logsumexp(self.scores, -1)
        weights = torch.softmax(self.scores, -1).masked_fill(self.lse[:, None] == -torch.inf, 0)
        self.out = self.rounded(self.rounded(weights) @ self.v)
        return self.out, self.lse

    def backward(self, dout: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """dq `[I, D]`, dk `[J, D]` and dv `[J, Dv]`, not yet rounded; the weights come back from the stored lse."""
        weights = (self.scores - self.lse[:, None]).exp().masked_fill(self.lse[:, None] == -torch.inf, 0)
        delta = (dout * self.out).sum(-1, keepdim=True)
        dscores = self.rounded(weights * (self.rounded(dout @ self.v.T) - delta) * self.scale)
        return dscores @ self.k, dscores.T @ self.q, self.rounded(weights).T @ dout
