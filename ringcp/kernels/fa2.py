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
        return _run(q, k, v, (None, None), call, scale, (q.shape[1], k.shape[1]))

    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                       scale: float) -> tuple[Tensor, Tensor, Tensor]:
        return _run_backward((dout, q, k, v, out, lse), (None, None), call, scale, (q.shape[1], k.shape[1]))

    def ragged(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        return _run(q, k, v, call.starts, call, scale, call.most)

    def ragged_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                        scale: float) -> tuple[Tensor, Tensor, Tensor]:
        return _run_backward((dout, q, k, v, out, lse), call.starts, call, scale, call.most)


def _run(q: Tensor, k: Tensor, v: Tensor, starts: tuple, call: Call, scale: float, most: tuple[int, int]):
    return _forward(q, k, v, *starts, *most, 0.0, _causal(call), False, scale=scale, **_window(call))[:2]


def _run_backward(tensors: tuple[Tensor, ...], starts: tuple, call: Call, scale: float, most: tuple[int, int]):
    unused = torch.empty(2, dtype=torch.uint64, device=tensors[0].device)
    return _backward(*tensors, *starts, *most, 0.0, _causal(call), unused, unused, scale=scale, **_window(call))


def _causal(call: Call) -> bool:
    return call.right == 0 and call.left < 0


def _window(call: Call) -> dict:
    """The operator misreads an open side beside a bounded one, so that side gets a bound no key reaches."""
    if max(call.left, call.right) < 0 or _causal(call):
        return {}
    left, right = (bound if bound >= 0 else sum(call.most) for bound in (call.left, call.right))
    return {"window_size_left": left, "window_size_right": right}
