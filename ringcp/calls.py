"""Calls: bands as arguments of kernel calls, dense where all segments are alike and of variable length otherwise."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ringcp.segments import Bands, layers

Place = slice | Tensor


@dataclass(frozen=True, eq=False)
class Call:
    """One kernel call over flattened queries `[B * L]` and keys `[B * K]`.

    left, right   bounds of the band, -1 for none
    queries, keys where the call's tokens stand, a slice when they are neighbours in order
    segments      how many
    equal         (n, m) when every segment has n queries and m keys, else None
    starts        (queries, keys), each [segments + 1] int32: where segments begin among the call's tokens
    most          (queries, keys) of the longest segment
    repeated      whether a key serves several segments
    """

    left: int
    right: int
    queries: Place
    keys: Place
    segments: int
    equal: tuple[int, int] | None
    starts: tuple[Tensor, Tensor]
    most: tuple[int, int]
    repeated: bool


def calls(spans: Tensor, keys: int, device: torch.device | str) -> list[list[Call]]:
    """The calls of key spans `[B, 1, L, N, 2]`, by layer; results of layers merge, those of one layer only add up."""
    return [[_call(bands, device) for bands in layer] for layer in layers(spans, keys)]


def _call(bands: Bands, device: torch.device | str) -> Call:
    queries, keys = bands.queries, bands.keys
    alike = bool((queries == queries[0]).all() and (keys == keys[0]).all())
    where = _place(bands.key, keys)
    repeated = not isinstance(where, slice) and len(where.unique()) < len(where)
    return Call(
        bands.left, bands.right, _to(_place(bands.query, queries), device), _to(where, device), len(queries),
        (int(queries[0]), int(keys[0])) if alike else None,
        (_starts(queries).to(device), _starts(keys).to(device)), (int(queries.max()), int(keys.max())), repeated)


def _place(first: Tensor, length: Tensor) -> Place:
    """Positions of segments that begin at `first` `[M]`, one after the other."""
    if bool((first[1:] == (first + length)[:-1]).all()):
        return slice(int(first[0]), int(first[-1] + length[-1]))
    offset = torch.arange(int(length.sum())) - (length.cumsum(0) - length).repeat_interleave(length)
    return first.repeat_interleave(length) + offset


def _starts(length: Tensor) -> Tensor:
    return torch.nn.functional.pad(length.cumsum(0), (1, 0)).to(torch.int32)


def _to(place: Place, device: torch.device | str) -> Place:
    return place if isinstance(place, slice) else place.to(device)
