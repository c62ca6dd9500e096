"""Cudnn: cuDNN's attention as torch calls it; causal and full masks."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from ringcp.calls import Call
from ringcp.kernels.banded import Banded
from ringcp.kernels.demand import Demand, banded, half, on_cuda

_forward = torch.ops.aten._scaled_dot_product_cudnn_attention
_backward = torch.ops.aten._scaled_dot_product_cudnn_attention_backward


class Cudnn(Banded):
    """Its causal form is square, and it knows neither windows nor segments, so other masks go elsewhere.

    Segments of unequal length, which a layout may still make of a causal mask, are called one by one.
    """

    name = "cudnn"

    def refuses(self, demand: Demand) -> str | None:
        more = sorted(demand.rules - {"causal"})
        if more:
            return f"takes causal and full masks, not {', '.join(more)}"
        return on_cuda(demand, least=(8, 0)) or banded(demand) or half(demand, most=256)

    def dense(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        found = _forward(q, k, v, _bias(q, k, call), True, 0.0, _square(q, k, call), False, scale=scale)
        return found[0].transpose(1, 2), found[1].reshape(q.shape[:3])

    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                       scale: float) -> tuple[Tensor, Tensor, Tensor]:
        if q.shape[1] == k.shape[1] == 1:
            return self._of_two(dout, q, k, v, out, lse, call, scale)
        # torch keeps cuDNN's graphs by the strides of q, k and v: those of dout and out have to be the same ever after
        dout, out = dout.contiguous(), out.contiguous()
        dout, q, k, v, out = (x.transpose(1, 2) for x in (dout, q, k, v, out))
        unused = torch.zeros((), dtype=torch.int64, device=q.device)
        grads = _backward(dout, q, k, v, out, lse[..., None], unused, unused, _bias(q, k, call), None, None,
                          q.shape[2], k.shape[2], 0.0, _square(q, k, call), scale=scale)
        return tuple(grad.transpose(1, 2) for grad in grads)

    def _of_two(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """For one query and one key, which cuDNN does not take: with another query and key of zeros, which add nothing
        to any gradient, as the weights follow from the lse that is given."""
        dout, q, k, v, out = (pad(x, (0, 0, 0, 0, 0, 1)) for x in (dout, q, k, v, out))
        full = replace(call, left=-1, right=-1)
        return tuple(grad[:, :1] for grad in self.dense_backward(dout, q, k, v, out, pad(lse, (0, 1)), full, scale))

    def ragged(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        parts = [self.dense(*rows, call, scale) for rows in _segments(call, (q,), (k, v))]
        return torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], 1)

    def ragged_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                        scale: float) -> tuple[Tensor, Tensor, Tensor]:
        parts = [self.dense_backward(dout, q, k, v, out, lse.transpose(1, 2).contiguous(), call, scale)
                 for dout, q, out, lse, k, v in _segments(call, (dout, q, out, lse.transpose(0, 1)), (k, v))]
        return tuple(torch.cat([grad[0] for grad in grads]) for grads in zip(*parts, strict=True))


def _segments(call: Call, by_query: tuple[Tensor, ...], by_key: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
    """Tensors `[T, ...]` and `[U, ...]` cut into segments `[1, n, ...]` and `[1, m, ...]`."""
    sizes = [lengths.tolist() for lengths in call.lengths]
    cut = [x.split(sizes[0]) for x in by_query] + [x.split(sizes[1]) for x in by_key]
    return [tuple(x[None] for x in parts) for parts in zip(*cut, strict=True)]


def _square(q: Tensor, k: Tensor, call: Call) -> bool:
    return call.right == 0 and call.left < 0 and q.shape[2] == k.shape[2]


def _bias(q: Tensor, k: Tensor, call: Call) -> Tensor | None:
    """An explicit mask for the bands that are neither full nor square."""
    n, m = q.shape[2], k.shape[2]
    if max(call.left, call.right) < 0 or _square(q, k, call):
        return None
    see, key = torch.arange(m - n, m, device=q.device)[:, None], torch.arange(m, device=q.device)
    inside = ((call.left < 0) | (key >= see - call.left)) & ((call.right < 0) | (key <= see + call.right))
    bias = torch.zeros(n, m, dtype=q.dtype, device=q.device).masked_fill_(~inside, -torch.inf)
    return bias.expand(*q.shape[:2], n, m)
