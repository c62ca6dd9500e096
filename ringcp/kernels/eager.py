"""Eager: attention in plain tensor operations, on any device; every other kernel can be compared with it."""

import torch
from torch import Tensor

from ringcp.kernels.demand import Demand, floating
from ringcp.kernels.tiled import Tiled


class Eager(Tiled):
    """Two matrix products and a softmax, heads grouped by their key/value head."""

    name = "eager"

    def refuses(self, demand: Demand) -> str | None:
        return floating(demand)

    def dense(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool,
              scale: float) -> tuple[Tensor, Tensor]:
        scores = self._scores(q, k, allowed, causal, scale)
        lse = scores.logsumexp(-1)
        weights = (scores - torch.where(lse.isneginf(), 0.0, lse)[..., None]).exp()
        return _by_head(weights @ v[:, :, None]), _by_head(lse)

    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                       allowed: Tensor | None, causal: bool, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        groups = k.shape[1]
        weights = (self._scores(q, k, allowed, causal, scale) - _grouped(lse, groups)[..., None]).exp()
        dout_g, q_g = _grouped(dout, groups), _grouped(q, groups)
        delta = (dout_g * _grouped(out, groups)).sum(-1, keepdim=True)
        dscores = weights * (dout_g @ v[:, :, None].mT - delta) * scale
        dk = (dscores.mT @ q_g).sum(2)
        dv = (weights.mT @ dout_g).sum(2)
        return _by_head(dscores @ k[:, :, None]), dk, dv

    def _scores(self, q: Tensor, k: Tensor, allowed: Tensor | None, causal: bool, scale: float) -> Tensor:
        """[B, Hkv, Hq / Hkv, L, K], minus infinity where not allowed."""
        scores = _grouped(q, k.shape[1]) @ k[:, :, None].mT * scale
        if causal:
            allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()[None, None]
        if allowed is None:
            return scores
        groups = k.shape[1] if allowed.shape[1] > 1 else 1
        return scores.masked_fill(~_grouped(allowed, groups), -torch.inf)


def _grouped(tensor: Tensor, groups: int) -> Tensor:
    return tensor.unflatten(1, (groups, -1))


def _by_head(tensor: Tensor) -> Tensor:
    return tensor.flatten(1, 2)
