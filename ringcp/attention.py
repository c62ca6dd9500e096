"""ring_attention: exact attention over a sequence sharded across ranks, one hop at a time, forward and backward.

B batch rows, Hq query heads, Hkv key/value heads, L local tokens, D head_dim, Dv value head_dim.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ringcp.balance import balanced_layout
from ringcp.exchange import Exchange, exchange_for
from ringcp.kernels import Kernel, select
from ringcp.kernels.demand import Demand
from ringcp.kernels.shape import accumulation, heads_first
from ringcp.layout import Layout, make_layout
from ringcp.mask import Mask
from ringcp.merge import Merged, Total
from ringcp.plan import Hop, Plan, make_plan
from ringcp.transfer import Returns, Supply


def ring_attention(q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, layout: Layout | str, group: Any = None,
                   scale: float | None = None, kernel: str | None = None) -> tuple[Tensor, Tensor]:
    """Attention of the local queries over the keys of every rank.

    q `[B, Hq, L, D]`, k `[B, Hkv, L, D]`, v `[B, Hkv, L, Dv]`: this rank's tokens, those that `layout` (a Layout or its
    name; "balanced" is `balanced_layout` of the mask) gives it. `mask` describes the whole rows and is equal on every
    rank. `group` is a ProcessGroup, a one-dimensional DeviceMesh, an Exchange, or None for the default group. `scale`
    None means 1 / sqrt(D).

    Returns out `[B, Hq, L, Dv]` in q's dtype, and lse `[B, Hq, L]` (natural logarithm; fp64 for fp64 inputs, otherwise
    fp32) without gradient. A query without keys has out 0 and lse minus infinity. requires_grad of k and v must be the
    same on every rank, as it decides whether gradients travel. Raises ValueError before any communication.
    """
    exchange = exchange_for(group)
    if isinstance(layout, str):
        layout = _named(layout, mask, exchange.size)
    if layout.world != exchange.size:
        raise ValueError(f"layout is for {layout.world} ranks, the group has {exchange.size}")
    plan = make_plan(mask, layout, exchange.rank, str(q.device))
    _check(q, k, v, mask, plan)
    demand = Demand(q.device.type, q.dtype, q.shape[-1], v.shape[-1], mask.groups, mask.rules, mask.tokens)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if not isinstance(scale, int | float) or not math.isfinite(scale):
        raise ValueError(f"scale is a finite number or None, got {scale!r}")
    ring = Ring(plan, exchange, select(demand, kernel), representable(float(scale), q.dtype))
    return _RingAttention.apply(q, k, v, ring)


def representable(scale: float, dtype: torch.dtype) -> float:
    """0 in place of a scale that the accumulation rounds to nothing: kernels would multiply minus infinity by it."""
    return scale if abs(scale) >= torch.finfo(accumulation(dtype)).tiny else 0.0


@dataclass(frozen=True, eq=False)
class Ring:
    """Everything about one call that is not a tensor of the model."""

    plan: Plan
    exchange: Exchange
    kernel: Kernel
    scale: float

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """out `[B, Hq, L, Dv]` and lse; merges the hops while the next one's keys are on their way."""
        q, k, v = self.clean(q, k, v)
        batch, heads, tokens, _ = q.shape
        wide = accumulation(q.dtype)
        running = wide if self.kernel.partial(q.dtype) == wide or self.plan.parts > 2 else q.dtype
        merged = Merged(batch * tokens, heads, v.shape[3], running, wide, q.device)
        for hop, keys, values in Supply(self.plan, self.exchange, k, v):
            if hop.work is not None:
                self.kernel.forward(q, keys, values, hop.work, self.scale, merged)
            del keys, values
        out, lse = merged.result()
        return heads_first(out, batch).to(q.dtype), lse.unflatten(1, (batch, tokens)).transpose(0, 1).contiguous()

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                 keys_need_grad: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """dq, dk, dv; a hop's dK and dV travel home while the next hop is computed."""
        q, k, v = self.clean(q, k, v)
        if self.plan.dead_queries is not None:
            dout = _blank(dout, self.plan.dead_queries)
            lse = _blank(lse[..., None], self.plan.dead_queries)[..., 0]
        dq = self.total(q, lambda: self.plan.parts <= 2)
        own = (self.total(x, lambda: self.plan.key_parts <= 2) for x in (k, v))
        returns = Returns(self.exchange, *own)
        for hop, keys, values in Supply(self.plan, self.exchange, k, v):
            grads = None
            if hop.work is not None:
                grads = self._key_totals(hop, keys, values, returns)
                self.kernel.backward(dout, q, keys, values, out, lse, hop.work, self.scale, dq, *grads)
            if keys_need_grad:
                returns.add(hop, grads, self.plan.order)
            del keys, values, grads
        batch = q.shape[0]
        return heads_first(dq.result(), batch), *(heads_first(grad, batch) for grad in returns.finish())

    def total(self, like: Tensor, rounded_once: Callable[[], bool]) -> Total:
        """A sum in the shape of `like`, as narrow as the kernel's own results where no element is rounded twice."""
        batch, heads, tokens, width = like.shape
        part, wide = self.kernel.partial(like.dtype), accumulation(like.dtype)
        dtype = part if part == wide or rounded_once() else wide
        return Total((batch * tokens, heads, width), part, dtype, like.device)

    def _key_totals(self, hop: Hop, keys: Tensor, values: Tensor, returns: Returns) -> tuple[Total, Total]:
        """Where a hop's dK and dV go: own ones straight into what comes home, others into what is sent home."""
        if hop.distance == 0 and self.plan.order is None:
            return returns.dk, returns.dv
        return tuple(self.total(x, lambda: hop.work.simple) for x in (keys, values))

    def clean(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Zeros where nobody looks: a masked weight of 0 times a NaN or an infinity would be NaN."""
        if self.plan.dead_queries is not None:
            q = _blank(q, self.plan.dead_queries)
        if self.plan.dead_keys is not None:
            k, v = _blank(k, self.plan.dead_keys), _blank(v, self.plan.dead_keys)
        return q, k, v


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, ring: Ring) -> tuple[Tensor, Tensor]:
        with torch.autocast(q.device.type, enabled=False):
            out, lse = ring.forward(q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.ring = ring
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, dout: Tensor, _):
        q, k, v, out, lse = ctx.saved_tensors
        keys_need_grad = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
        with torch.autocast(q.device.type, enabled=False):
            grads = ctx.ring.backward(dout, q, k, v, out, lse, keys_need_grad)
        wanted = zip(grads, (q, k, v), ctx.needs_input_grad)
        return *(grad.to(like.dtype) if needed else None for grad, like, needed in wanted), None


def _named(name: str, mask: Mask, world: int) -> Layout:
    return balanced_layout(mask, world) if name == "balanced" else make_layout(name, mask.tokens, world)


def _blank(tensor: Tensor, dead: Tensor) -> Tensor:
    """Zeros at dead `[B, G, L, 1]` tokens of `[B, H, L, ...]`, heads being grouped by G."""
    return tensor.masked_fill(dead.repeat_interleave(tensor.shape[1] // dead.shape[1], 1), 0.0)


def _check(q: Tensor, k: Tensor, v: Tensor, mask: Mask, plan: Plan) -> None:
    """Raises ValueError when the local tensors do not fit each other, the mask or the layout."""
    batch, heads, kv_heads = mask.batch, q.shape[1], k.shape[1]
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads are no multiple of {kv_heads} key/value heads")
    for name, tensor, want in (("q", q, (batch, heads, plan.tokens, q.shape[-1])),
                               ("k", k, (batch, kv_heads, plan.tokens, q.shape[-1])),
                               ("v", v, (batch, kv_heads, plan.tokens, v.shape[-1]))):
        if tuple(tensor.shape) != want:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, mask and layout want {list(want)}")
        if (tensor.dtype, tensor.device) != (q.dtype, q.device):
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, q is {q.dtype} on {q.device}")
    if kv_heads % mask.groups:
        raise ValueError(f"the mask selects regions for {mask.groups} groups, k has {kv_heads} heads")
