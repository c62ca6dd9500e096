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
    lengths       (queries, keys), each [segments] int64 of every segment; on the host, so that no step has to ask a GPU
    most          (queries, keys) of the longest segment
    rounds        for keys that serve several segments: (slots among the call's keys, tokens) pairs that name no token
                  twice; none where no key does
    """

    left: int
    right: int
    queries: Place
    keys: Place
    segments: int
    equal: tuple[int, int] | None
    starts: tuple[Tensor, Tensor]
    lengths: tuple[Tensor, Tensor]
    most: tuple[int, int]
    rounds: tuple[tuple[Tensor, Tensor], ...] = ()

    @property
    def repeated(self) -> bool:
        return bool(self.rounds)


def calls(spans: Tensor, keys: int, device: torch.device | str) -> list[list[Call]]:
    """The calls of key spans `[B, 1, L, N, 2]`, by layer; results of layers merge, those of one layer only add up."""
    return [[_call(bands, device) for bands in layer] for layer in layers(spans, keys)]


def _call(bands: Bands, device: torch.device | str) -> Call:
    queries, keys = bands.queries, bands.keys
    alike = bool((queries == queries[0]).all() and (keys == keys[0]).all())
    where = _place(bands.key, keys)
    rounds = () if isinstance(where, slice) else _rounds(where)
    return Call(
        bands.left, bands.right, _to(_place(bands.query, queries), device), _to(where, device), len(queries),
        (int(queries[0]), int(keys[0])) if alike else None,
        (_starts(queries).to(device), _starts(keys).to(device)), (queries, keys),
        (int(queries.max()), int(keys.max())),
        tuple((slots.to(device), tokens.to(device)) for slots, tokens in rounds))


def _place(first: Tensor, length: Tensor) -> Place:
    """Positions of segments that begin at `first` `[M]`, one after the other."""
    if bool((first[1:] == (first + length)[:-1]).all()):
        return slice(int(first[0]), int(first[-1] + length[-1]))
    offset = torch.arange(int(length.sum())) - (length.cumsum(0) - length).repeat_interleave(length)
    return first.repeat_interleave(length) + offset


def _rounds(tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """`Call.rounds` of tokens `[N]`: the first slot of every token, then the second of those that have one, ..."""
    order = tokens.argsort(stable=True)
    ordered, place = tokens[order], torch.arange(len(tokens))
    again = torch.cat([place.new_zeros(1, dtype=torch.bool), ordered[1:] == ordered[:-1]])
    turn = place - torch.where(again, 0, place).cummax(0).values
    rounds = [order[turn == number].sort().values for number in range(int(turn.max()) + 1)]
    return [(slots, tokens[slots]) for slots in rounds] if len(rounds) > 1 else []


def _starts(length: Tensor) -> Tensor:
    return torch.nn.functional.pad(length.cumsum(0), (1, 0)).to(torch.int32)


def _to(place: Place, device: torch.device | str) -> Place:
    return place if isinstance(place, slice) else place.to(device)
