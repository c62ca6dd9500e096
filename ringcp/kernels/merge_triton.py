"""The merge of a partial result as one Triton kernel: reads both sides once, writes the running one in place.

Computes in the dtype of lse, so that fp64 stays fp64.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ringcp.calls import Place


def fused_merge_(out: Tensor, lse: Tensor, place: Place, part: Tensor, part_lse: Tensor) -> None:
    """out `[T, H, Dv]`, lse `[H, T]`, part `[N, H, Dv]`, part_lse `[H, N]`; place says which N of the T tokens."""
    count, heads, width = part.shape
    if not count:
        return
    first = place.indices(len(out))[0] if isinstance(place, slice) else 0
    index = out.new_empty(0, dtype=torch.int64) if isinstance(place, slice) else place
    block = 16
    _merge[(triton.cdiv(count, block), heads)](
        out, lse, part, part_lse, index, first, count, width,
        out.stride(0), out.stride(1), lse.stride(0), lse.stride(1), part.stride(0), part.stride(1),
        part_lse.stride(0), part_lse.stride(1),
        INDEXED=not isinstance(place, slice), TOKENS=block, WIDTH=triton.next_power_of_2(width))


# Sizes that change with the documents compile nothing anew; those left to specialize are strides of whole rows.
@triton.jit(do_not_specialize=["first", "count", "lse_head", "part_lse_head"])
def _merge(out, lse, part, part_lse, index, first, count, width, out_token, out_head, lse_head, lse_token,
           part_token, part_head, part_lse_head, part_lse_token,
           INDEXED: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr):
    n = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1).to(tl.int64)
    live = n < count
    n = n.to(tl.int64)
    row = tl.load(index + n, mask=live, other=0) if INDEXED else first + n
    old = tl.load(lse + head * lse_head + row * lse_token, mask=live, other=-float("inf"))
    new = tl.load(part_lse + head * part_lse_head + n * part_lse_token, mask=live, other=-float("inf"))
    most = tl.maximum(old, new)
    anchor = tl.where(most == -float("inf"), 0.0, most)
    old_weight, new_weight = tl.exp(old - anchor), tl.exp(new - anchor)
    both = old_weight + new_weight
    share = tl.where(both > 0, 1.0 / both, 0.0)
    d = tl.arange(0, WIDTH)
    inside = live[:, None] & (d < width)[None, :]
    target = out + row[:, None] * out_token + head * out_head + d[None, :]
    before = tl.load(target, mask=inside, other=0.0).to(old.dtype)
    source = part + n[:, None] * part_token + head * part_head + d[None, :]
    added = tl.load(source, mask=inside, other=0.0).to(old.dtype)
    mixed = before * (old_weight * share)[:, None] + added * (new_weight * share)[:, None]
    tl.store(target, mixed.to(out.dtype.element_ty), mask=inside)
    # Several warps hold the same rows of lse, and each reads them for itself: none may find what another wrote.
    tl.debug_barrier()
    tl.store(lse + head * lse_head + row * lse_token, tl.where(both > 0, anchor + tl.log(both), most), mask=live)
