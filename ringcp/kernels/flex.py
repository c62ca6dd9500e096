"""Flex: torch's compiled FlexAttention; any mask, each key/value head its own, on a GPU."""

from functools import cache

import torch
from torch import Tensor

from ringcp.blocks import Blocks, blocks, listed
from ringcp.kernels.demand import HALF, Demand, on_cuda
from ringcp.kernels.shape import tokens_first
from ringcp.merge import Merged, Total
from ringcp.optional import missing
from ringcp.work import Work

TILE = 128
VARIANTS = 256
ALWAYS = {"FORCE_USE_FLEX_ATTENTION": True}
"""Without it few queries go to a decoding kernel, which has no form for some sizes (torch 2.11)."""
Index = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


class Flex:
    """Public functions alone, so the backward cannot be told the out and lse of all hops: it computes the hop's own
    once more, and folds the others into the gradients of both.

    With w = exp(lse_hop - lse), dout_hop = w dout and dlse_hop = w (dout . out_hop - dout . out) give the hop's share
    of every gradient. Compiles for seconds, for each shape anew (numbers that vary in size do not lower in torch 2.11),
    so nothing short chooses it by itself.
    """

    name = "flex"
    pays_from = 8192

    def refuses(self, demand: Demand) -> str | None:
        if demand.dtype not in (*HALF, torch.float32):
            return f"takes bfloat16, float16 and float32, not {str(demand.dtype).removeprefix('torch.')}"
        for width in (demand.head_dim, demand.value_dim):
            if not 16 <= width <= 256:
                return f"takes head_dims from 16 to 256, not {width}"
        return on_cuda(demand, least=(8, 0)) or missing("triton")

    def partial(self, dtype: torch.dtype) -> torch.dtype:
        return dtype

    def forward(self, q: Tensor, k: Tensor, v: Tensor, work: Work, scale: float, into: Merged) -> None:
        out, lse = _attend(q, k, v, scale, *index(work))
        into.add(slice(None), *tokens_first(out), lse.transpose(0, 1).flatten(1))

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, work: Work,
                 scale: float, dq: Total, dk: Total, dv: Total) -> None:
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        with torch.enable_grad():
            hop_out, hop_lse = _attend(*inputs, scale, *index(work))
        share = (hop_lse - lse).exp()
        change = (dout.float() * (hop_out.float() - out.float())).sum(-1) * share
        given = (share[..., None] * dout).to(dout.dtype), change
        grads = torch.autograd.grad((hop_out, hop_lse), inputs, given)
        for total, grad in zip((dq, dk, dv), tokens_first(*grads), strict=True):
            total.add(slice(None), grad)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, *index: Tensor) -> tuple[Tensor, Tensor]:
    with torch._dynamo.config.patch(recompile_limit=VARIANTS):
        return _compiled()(q, k, v, scale, *index)


@cache
def _compiled():
    import torch._dynamo  # noqa: F401  its settings are not there before

    return torch.compile(attend, dynamic=False)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, start: Tensor, end: Tensor, partial: Tensor,
           which_partial: Tensor, full: Tensor, which_full: Tensor) -> tuple[Tensor, Tensor]:
    """out and lse of queries that see keys start..end `[B, G, L, N]`, by lists of tiles `[B, G, rows(, columns)]`."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    heads, tokens = q.shape[1], (q.shape[2], k.shape[2])
    each = heads // start.shape[1]

    def allowed(b, h, i, j):
        inside = (j >= start[b, h // each, i, 0]) & (j < end[b, h // each, i, 0])
        for span in range(1, start.shape[3]):
            inside = inside | ((j >= start[b, h // each, i, span]) & (j < end[b, h // each, i, span]))
        return inside

    lists = (x if x.shape[1] == 1 else x.repeat_interleave(each, 1) for x in (partial, which_partial, full, which_full))
    mask = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=TILE, mask_mod=allowed, seq_lengths=tokens)
    return flex_attention(q, k, v, block_mask=mask, scale=scale, enable_gqa=heads != k.shape[1], return_lse=True,
                          kernel_options=ALWAYS)


def index(work: Work) -> Index:
    """What `attend` has to know of a hop's work."""
    return work.kept("flex", lambda: _made(work))


def _made(work: Work) -> Index:
    tiles: Blocks = blocks(work.spans, work.keys, TILE, TILE)
    start, end = (x.to(torch.int32) for x in work.spans.unbind(-1))
    made = start, end, *listed(tiles.partial), *listed(tiles.full)
    return tuple(x.contiguous().to(work.device) for x in made)
