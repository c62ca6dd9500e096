"""Fa2: FlashAttention-2 as torch ships it; every band, dense and ragged."""

import torch
from torch import Tensor

from ringcp.calls import Call
from ringcp.kernels.banded import Banded
from ringcp.kernels.demand import Demand, banded, half, on_cuda

_forward = torch.ops.aten._flash_attention_forward
_backward = torch.ops.aten._flash_attention_backward


class Fa2(Banded):
    """The same kernels as the flash-attn package, which torch builds into itself."""

    name = "fa2"

    def refuses(self, demand: Demand) -> str | None:
        return on_cuda(demand, least=(8, 0)) or banded(demand) or half(demand, most=256)

    def dense(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        if not _overruns(call):
            return _run(q, k, v, (None, None), call, scale, (q.shape[1], k.shape[1]))
        out, lse = self.ragged(*(x.flatten(0, 1) for x in (q, k, v)), call, scale)
        return out.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1)

    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                       scale: float) -> tuple[Tensor, Tensor, Tensor]:
        if not _overruns(call):
            return _run_backward((dout, q, k, v, out, lse), (None, None), call, scale, (q.shape[1], k.shape[1]))
        flat, given = (x.flatten(0, 1) for x in (dout, q, k, v, out)), lse.transpose(0, 1).flatten(1).contiguous()
        grads = self.ragged_backward(*flat, given, call, scale)
        return tuple(grad.unflatten(0, x.shape[:2]) for grad, x in zip(grads, (q, k, v), strict=True))

    def ragged(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        return _run(q, k, v, call.starts, call, scale, _most(call))

    def ragged_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                        scale: float) -> tuple[Tensor, Tensor, Tensor]:
        return _run_backward((dout, q, k, v, out, lse), call.starts, call, scale, _most(call))


def _run(q: Tensor, k: Tensor, v: Tensor, starts: tuple, call: Call, scale: float, most: tuple[int, int]):
    return _forward(q, k, v, *starts, *most, 0.0, _causal(call), False, scale=scale, **_window(call))[:2]


def _run_backward(tensors: tuple[Tensor, ...], starts: tuple, call: Call, scale: float, most: tuple[int, int]):
    unused = torch.empty(2, dtype=torch.uint64, device=tensors[0].device)
    return _backward(*tensors, *starts, *most, 0.0, _causal(call), unused, unused, scale=scale, **_window(call))


def _causal(call: Call) -> bool:
    return call.right == 0 and call.left < 0


def _window(call: Call) -> dict:
    if max(call.left, call.right) < 0 or _causal(call):
        return {}
    left, right = (bound if bound >= 0 else sum(call.most) for bound in (call.left, call.right))
    return {"window_size_left": left, "window_size_right": right}


def _overruns(call: Call) -> bool:
    """An open right side beside a bounded left one, which the operator takes for a bound of as many keys as there are:
    too few for the first of many queries, whose diagonal lies before the first key."""
    return call.left >= 0 > call.right and call.most[0] > call.most[1] + 1


def _most(call: Call) -> tuple[int, int]:
    """The longest segments, but for keys more than that where a bound would otherwise count as open (`_overruns`): what
    reaches as far as the longest segment does."""
    return (call.most[0], sum(call.most) + 1) if call.left >= 0 > call.right else call.most
