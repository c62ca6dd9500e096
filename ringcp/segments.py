"""Segments: a hop's work as few dense bands, which is what flash-attention kernels can run.

In a band n consecutive queries face m consecutive keys, aligned at the bottom right: query t sees key j when
t + (m - n) - left <= j <= t + (m - n) + right. Full, causal and window blocks and a document's share of them are bands.
Queries and keys are counted over the flattened batch: row * L + i and row * K + j.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

UNBOUNDED = -1


@dataclass(frozen=True, eq=False)
class Bands:
    """Segments that share one pair of bounds, so that one variable-length call runs them all.

    left, right    how far a query sees past the diagonal on each side, UNBOUNDED for no limit
    query, key     [M] first query and first key of each segment
    queries, keys  [M] how many of each
    """

    left: int
    right: int
    query: Tensor
    key: Tensor
    queries: Tensor
    keys: Tensor


def layers(spans: Tensor, keys: int) -> list[list[Bands]]:
    """Bands of key spans `[B, G = 1, L, N, 2]` over K keys a row: one list for each span that a query has.

    Queries of one layer see each key at most once, and layers share no pair, so partial results of layers merge.
    """
    rows, _, queries, count, _ = spans.shape
    start, end = (spans[:, 0, ..., side] + torch.arange(rows)[:, None, None] * keys for side in (0, 1))
    empty = spans[:, 0, ..., 1] <= spans[:, 0, ..., 0]
    order = empty.to(torch.int8).argsort(dim=-1, stable=True)
    start, end, empty = (x.gather(-1, order).flatten(0, 1) for x in (start, end, empty))
    found = []
    for layer in range(count):
        live = (~empty[:, layer]).nonzero()[:, 0]
        if len(live):
            found.append(_bands(live, start[live, layer], end[live, layer], queries))
    return found


def _bands(query: Tensor, start: Tensor, end: Tensor, row: int) -> list[Bands]:
    """Bands of queries at flat positions `query` `[T]` that see keys start..end; `row` queries are a batch row."""
    first = _breaks(query, start, end, row).nonzero()[:, 0]
    last = torch.cat([first[1:], torch.tensor([len(query)])]) - 1
    queries, keys = last - first + 1, end[last] - start[first]
    shift = keys - queries
    moves_left, moves_right = start[last] > start[first], end[last] > end[first]
    left = torch.where(moves_left, shift + (query[last] - query[first]) - (start[last] - start[first]), UNBOUNDED)
    right = torch.where(moves_right, end[first] - start[first] - 1 - shift, UNBOUNDED)
    return _grouped(query[first], start[first], queries, keys, left, right)


def _breaks(query: Tensor, start: Tensor, end: Tensor, row: int) -> Tensor:
    """[T] whether a new segment begins: in a segment the start stands and then moves, the end moves or stands, and
    neighbours share keys (a document's last query and the next one's first do not)."""
    step_query, step_start, step_end = (torch.diff(x, prepend=x[:1] - 2) for x in (query, start, end))
    row_edge = query % row == 0
    apart = torch.zeros_like(row_edge)
    apart[1:] = start[1:] >= end[:-1]
    jump = (step_query != 1) | row_edge | apart | ~_unit(step_start) | ~_unit(step_end)
    turned = torch.zeros_like(jump)
    turned[1:] = ((step_start[:-1] == 1) & (step_start[1:] == 0)) | (step_end[:-1] != step_end[1:])
    turned[1:] &= ~jump[:-1]
    return jump | turned


def _unit(step: Tensor) -> Tensor:
    return (step == 0) | (step == 1)


def _grouped(query: Tensor, key: Tensor, queries: Tensor, keys: Tensor, left: Tensor, right: Tensor) -> list[Bands]:
    """Segments by bounds. One that a bound does not reach joins the segments that have this bound."""
    shift, groups = keys - queries, []
    waiting = torch.ones(len(query), dtype=torch.bool)
    kinds = torch.stack([left, right], -1).unique(dim=0).tolist()
    for bounds in sorted(kinds, key=lambda pair: pair.count(UNBOUNDED)):
        wide_left = left == UNBOUNDED if bounds[0] != UNBOUNDED else torch.zeros_like(waiting)
        wide_right = right == UNBOUNDED if bounds[1] != UNBOUNDED else torch.zeros_like(waiting)
        fits_left = (left == bounds[0]) | (wide_left & (keys - 1 <= bounds[0]))
        fits_right = (right == bounds[1]) | (wide_right & (keys - 1 <= shift + bounds[1]))
        chosen = waiting & fits_left & fits_right
        waiting &= ~chosen
        if chosen.any():
            groups.append(Bands(*bounds, *(x[chosen] for x in (query, key, queries, keys))))
    assert not waiting.any()
    return groups
