"""Blocks: which tiles of queries and keys a hop's work touches, and which of them it fills.

Counted from where the spans of queries open and close, so that nothing of size queries x keys is made.
B batch rows, G key/value heads that the mask tells apart, L queries, K keys, N spans a query.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Blocks:
    """Key tiles of each query tile, `[B, G, ceil(L / rows), ceil(K / columns)]` bool.

    partial  some pair of the tile is allowed, not all: it needs a mask
    full     every pair of the tile is allowed
    """

    partial: Tensor
    full: Tensor


def blocks(spans: Tensor, keys: int, rows: int, columns: int) -> Blocks:
    """The tiles of key spans `[B, G, L, N, 2]` within 0..K, disjoint for each query; `rows` x `columns` pairs a tile.

    A tile at the end of the queries or the keys is as large as what is left of them.
    """
    pairs = _pairs(spans, rows, columns, -(-keys // columns))
    heights, widths = (_lengths(count, size) for count, size in ((spans.shape[2], rows), (keys, columns)))
    full = pairs == heights[:, None] * widths
    return Blocks((pairs > 0) & ~full, full)


def listed(marks: Tensor) -> tuple[Tensor, Tensor]:
    """[.., K] bool as how many are set `[..]` and which, these first: `[.., K]`, both int32."""
    order = marks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return marks.sum(-1).to(torch.int32), order.to(torch.int32)


def _pairs(spans: Tensor, rows: int, columns: int, wide: int) -> Tensor:
    """[B, G, ceil(L / rows), wide]: allowed pairs of each tile, from the first, last and whole tiles of spans."""
    batch, groups, queries, _, _ = spans.shape
    start, end = spans.unbind(-1)
    filled = end > start
    first, last = start // columns, (end - 1).clamp(min=0) // columns
    line = (torch.arange(queries) // rows)[:, None] * (wide + 1)
    high = -(-queries // rows)
    edges, whole = (torch.zeros(batch, groups, high * (wide + 1), dtype=torch.int64) for _ in range(2))

    def add(sums: Tensor, tile: Tensor, count: Tensor) -> None:
        sums.scatter_add_(2, (line + tile.clamp(0, wide)).flatten(2), torch.where(filled, count, 0).flatten(2))

    add(edges, first, torch.minimum(end, (first + 1) * columns) - start)
    add(edges, last, torch.where(last > first, end - last * columns, 0))
    between = torch.where(last > first, columns, 0)
    add(whole, first + 1, between)
    add(whole, last, -between)
    shape = (batch, groups, high, wide + 1)
    return (edges.view(shape) + whole.view(shape).cumsum(-1))[..., :wide]


def _lengths(count: int, size: int) -> Tensor:
    """Lengths of the stretches of `size` that `count` is cut into."""
    return (count - torch.arange(0, count, size)).clamp(max=size)
