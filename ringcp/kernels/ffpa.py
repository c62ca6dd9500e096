"""Ffpa: head_dim 512 on Hopper (package ffpa-attn); full and causal bands, dense and ragged."""

from functools import cache

import torch
from torch import Tensor

from ringcp.calls import Call
from ringcp.kernels.banded import Banded
from ringcp.kernels.demand import Demand, banded, half, on_cuda
from ringcp.optional import missing

NO_WINDOW = (-(2**31), -(2**31))


class Ffpa(Banded):
    """The kernel knows no window, so masks with one go elsewhere."""

    name = "ffpa"

    def refuses(self, demand: Demand) -> str | None:
        if "window" in demand.rules:
            return "knows no window"
        limits = on_cuda(demand, least=(9, 0)) or banded(demand) or half(demand, least=512, most=512)
        return limits or missing("ffpa_attn")

    def dense(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        return _operators()._fwd_cute(q, k, v, scale, call.right == 0, 1)

    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                       scale: float) -> tuple[Tensor, Tensor, Tensor]:
        return _operators()._bwd_cute(dout, q, k, v, out, lse, scale, call.right == 0, 0)

    def ragged(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        more = *call.starts, *call.most, scale, call.right == 0, *NO_WINDOW
        return _operators()._varlen_fwd_cute(q, k, v, *more, 0.0, False)

    def ragged_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                        scale: float) -> tuple[Tensor, Tensor, Tensor]:
        more = *call.starts, *call.most, scale, call.right == 0, *NO_WINDOW
        return _operators()._varlen_bwd_cute(q, k, v, out, dout, lse, *more, 0.0, None)


@cache
def _operators():
    import ffpa_attn.cute  # noqa: F401  registers the operators

    return torch.ops.ffpa_attn
