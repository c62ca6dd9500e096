"""gather_mask: a Mask of whole rows from the metadata shards that each rank holds, once per batch."""

from typing import Any

from torch import Tensor

from ringcp.exchange import Receive, Send, exchange_for
from ringcp.layout import Layout
from ringcp.mask import Mask

SHARDED = {"documents": 1, "padding": 1, "token_types": 1, "token_regions": 1, "selected": 2}


def gather_mask(layout: Layout, *, group: Any = None, **fields: Any) -> Mask:
    """A Mask whose per-token fields (documents, padding, token_types, token_regions `[B, L]`, selected `[B, G, L, N]`)
    are given as this rank's shard under `layout`; every other field is passed on. All ranks call it with the same
    fields. Raises ValueError when a shard does not have the layout's length."""
    exchange = exchange_for(group)
    batch = fields.pop("batch", 1)
    for name in fields:
        if name in SHARDED and fields[name] is not None:
            fields[name] = _gathered(name, fields[name], layout, exchange)
            batch = fields[name].shape[0]
    return Mask(tokens=layout.tokens, batch=batch, **fields)


def _gathered(name: str, shard: Tensor, layout: Layout, exchange) -> Tensor:
    dim, lengths = SHARDED[name], [part.shape[-1] for part in layout.positions]
    if shard.shape[dim] != lengths[exchange.rank]:
        want = lengths[exchange.rank]
        raise ValueError(f"{name} holds {shard.shape[dim]} tokens, the layout gives rank {exchange.rank} {want}")
    peers = [peer for peer in range(exchange.size) if peer != exchange.rank]
    shapes = {peer: (*shard.shape[:dim], lengths[peer], *shard.shape[dim + 1:]) for peer in peers}
    sends = [Send(peer, shard.contiguous()) for peer in peers if shard.numel()]
    wanted = [peer for peer in peers if lengths[peer]]
    arrived = exchange.start(sends, [Receive(peer, shapes[peer], shard.dtype, shard.device) for peer in wanted])()
    parts = {exchange.rank: shard, **dict(zip(wanted, arrived))}
    empty = {peer: shard.new_empty(shapes[peer]) for peer in peers if peer not in parts}
    return layout.unshard([{**parts, **empty}[rank] for rank in range(exchange.size)], dim)
