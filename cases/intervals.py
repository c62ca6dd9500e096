"""Sets of integers as sorted, disjoint, half-open intervals, many sets at once.

A set is `[..., K, 2]` int64 (start, end). Empty intervals are (0, 0) and stand last, so that K is only
an upper bound. All functions broadcast over the leading axes.
"""

import torch
from torch import Tensor


def single(start: Tensor, end: Tensor) -> Tensor:
    """One interval a set: `[...]`, `[...]` -> `[..., 1, 2]`; start >= end is the empty set."""
    start, end = torch.broadcast_tensors(start, end)
    filled = end > start
    return torch.stack([start * filled, end * filled], -1)[..., None, :]


def intersect(a: Tensor, b: Tensor) -> Tensor:
    """Members of both: `[..., Ka, 2]`, `[..., Kb, 2]` -> `[..., K, 2]`."""
    a, b = a[..., :, None, :], b[..., None, :, :]
    start, end = torch.maximum(a[..., 0], b[..., 0]), torch.minimum(a[..., 1], b[..., 1])
    return _pack(start.flatten(-2), end.flatten(-2))


def union(a: Tensor, b: Tensor) -> Tensor:
    """Members of either: `[..., Ka, 2]`, `[..., Kb, 2]` -> `[..., K, 2]`; touching intervals become one."""
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    both = torch.cat([a.expand(*lead, *a.shape[-2:]), b.expand(*lead, *b.shape[-2:])], -2)
    start, end = both.unbind(-1)
    never = torch.iinfo(torch.int64).max
    start, order = torch.where(end > start, start, never).sort(-1)
    reach = end.gather(-1, order).cummax(-1).values
    opens = torch.ones_like(start, dtype=torch.bool)
    opens[..., 1:] = start[..., 1:] > reach[..., :-1]
    closes = torch.ones_like(opens)
    closes[..., :-1] = opens[..., 1:]
    opens, closes = opens & (start < never), closes & (start < never)
    starts = torch.where(opens, start, never).sort(-1).values
    ends = torch.where(closes, reach, never).sort(-1).values
    filled = starts < never
    return _pack(torch.where(filled, starts, 0), torch.where(filled, ends, 0))


def count(sets: Tensor) -> Tensor:
    """Size of each set: `[..., K, 2]` -> `[...]` int64."""
    return (sets[..., 1] - sets[..., 0]).sum(-1)


def contains(sets: Tensor, value: Tensor) -> Tensor:
    """Whether `value` `[J]` is a member: `[..., K, 2]` -> `[..., J]` bool."""
    inside = (value >= sets[..., 0, None]) & (value < sets[..., 1, None])
    return inside.any(-2)


def from_bool(member: Tensor) -> Tensor:
    """Runs of True along the last axis: `[..., J]` bool -> `[..., K, 2]`."""
    edge = torch.diff(member.to(torch.int8), dim=-1, prepend=torch.zeros_like(member[..., :1], dtype=torch.int8))
    index = torch.arange(member.shape[-1], device=member.device).expand(member.shape)
    length = member.shape[-1]
    start = torch.where(edge == 1, index, length).sort(-1).values
    tail = member[..., -1:].to(torch.int8)
    stops = torch.cat([edge == -1, tail == 1], -1)
    index = torch.arange(length + 1, device=member.device).expand(stops.shape)
    end = torch.where(stops, index, length).sort(-1).values[..., :length]
    return _pack(start, torch.where(start < length, end, start))


def _pack(start: Tensor, end: Tensor) -> Tensor:
    """Moves empty intervals last, zeroes them and drops columns that are empty everywhere (one is kept)."""
    filled = end > start
    width = max(1, int(filled.sum(-1).max())) if filled.numel() else 1
    if filled.shape[-1] > 1:
        order = (~filled).to(torch.int8).argsort(dim=-1, stable=True)[..., :width]
        start, end, filled = (x.gather(-1, order) for x in (start, end, filled))
    return torch.stack([start * filled, end * filled], -1)
