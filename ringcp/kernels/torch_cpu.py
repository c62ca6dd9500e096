"""TorchCpu: torch's own flash attention for CPU, in fp64 and fp32; lower precisions are raised to fp32."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ringcp.kernels.demand import Demand, floating
from ringcp.kernels.tiled import Tiled

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class TorchCpu(Tiled):
    """The operator wants one head_dim for q, k and v, so the shorter is padded with zeros.

    Its own causal form scales minus infinity, which is wrong for a scale of 0 and below; those get an explicit mask.
    bf16 is raised to fp32 because the operator's own bf16 backward is about ten times slower.
    """

    name = "torch-cpu"

    def refuses(self, demand: Demand) -> str | None:
        return f"runs on cpu only, not on {demand.device}" if demand.device != "cpu" else floating(demand)

    def dense(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool,
              scale: float) -> tuple[Tensor, Tensor]:
        value_dim = v.shape[-1]
        q, k, v = _same_width(q, k, v)
        mask = _mask(allowed, causal, scale, q, k)
        out, lse = _forward(q, k, v, 0.0, causal and mask is None, attn_mask=mask, scale=scale)
        return out[..., :value_dim], lse

    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                       allowed: Tensor | None, causal: bool, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        head_dim, value_dim = q.shape[-1], v.shape[-1]
        dout, q, k, v, out = _same_width(dout, q, k, v, out)
        mask = _mask(allowed, causal, scale, q, k)
        dq, dk, dv = _backward(dout, q, k, v, out, lse, 0.0, causal and mask is None, attn_mask=mask, scale=scale)
        return dq[..., :head_dim], dk[..., :head_dim], dv[..., :value_dim]


def _same_width(*tensors: Tensor) -> list[Tensor]:
    width = max(tensor.shape[-1] for tensor in tensors)
    return [tensor if tensor.shape[-1] == width else pad(tensor, (0, width - tensor.shape[-1])) for tensor in tensors]


def _mask(allowed: Tensor | None, causal: bool, scale: float, q: Tensor, k: Tensor) -> Tensor | None:
    """An additive mask, None where the operator needs none."""
    if causal and scale <= 0:
        allowed = torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool).tril()
    if allowed is None:
        return None
    return torch.zeros(allowed.shape, dtype=q.dtype).masked_fill_(~allowed, -torch.inf)
