"""Fa4: FlashAttention-4 in the CuTe DSL (package flash-attn-4), for Hopper and later; every band, dense and ragged."""

from functools import cache

from torch import Tensor

from ringcp.calls import Call
from ringcp.kernels.banded import Banded
from ringcp.kernels.demand import Demand, banded, half, on_cuda
from ringcp.optional import missing

HEAD_DIMS = 32, 64, 128, 192, 256


class Fa4(Banded):
    """Compiles each configuration on first use, which takes a few seconds.

    Only head_dims whose gradients were seen right: 80 without causal is off by 50 times the budget.
    """

    name = "fa4"

    def refuses(self, demand: Demand) -> str | None:
        if demand.head_dim not in HEAD_DIMS:
            return f"takes head_dims {', '.join(map(str, HEAD_DIMS))}, not {demand.head_dim}"
        return on_cuda(demand, least=(9, 0)) or banded(demand) or half(demand, most=256) or missing("flash_attn.cute")

    def dense(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        found = _interface()._flash_attn_fwd(q, k, v, softmax_scale=scale, return_lse=True, **_bounds(call))
        return found[0], found[1]

    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                       scale: float) -> tuple[Tensor, Tensor, Tensor]:
        return _interface()._flash_attn_bwd(q, k, v, out, dout, lse, softmax_scale=scale, **_bounds(call))[:3]

    def ragged(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        where = _bounds(call) | _starts(call)
        found = _interface()._flash_attn_fwd(q, k, v, softmax_scale=scale, return_lse=True, **where)
        return found[0], found[1]

    def ragged_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                        scale: float) -> tuple[Tensor, Tensor, Tensor]:
        where = _bounds(call) | _starts(call)
        return _interface()._flash_attn_bwd(q, k, v, out, dout, lse, softmax_scale=scale, **where)[:3]


@cache
def _interface():
    from flash_attn.cute import interface

    return interface


def _bounds(call: Call) -> dict:
    left, right = (None if bound < 0 else bound for bound in (call.left, call.right))
    if left is None and right == 0:
        return {"causal": True}
    return {"causal": False, "window_size_left": left, "window_size_right": right}


def _starts(call: Call) -> dict:
    return {"cu_seqlens_q": call.starts[0], "cu_seqlens_k": call.starts[1],
            "max_seqlen_q": call.most[0], "max_seqlen_k": call.most[1]}
