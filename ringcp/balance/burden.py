"""Burden: what a layout asks of each rank for one mask, and the one cost by which layouts are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ringcp.mask import Mask
from ringcp.spans import spans

EVEN = 1.05
TILE = 128


@dataclass(frozen=True)
class Burden:
    """What each of W ranks has to do; pairs are counted once for each key/value head that the mask tells apart.

    area    [W] allowed (query, key) pairs of the rank's queries
    tokens  [W] slots that it holds of a row
    keys    [W] distinct keys of other ranks that its queries attend, over all rows
    peers   [W] ranks that hold those keys
    cuts    places where two neighbouring tokens stand on different ranks although a pair crosses there
    """

    area: tuple[int, ...]
    tokens: tuple[int, ...]
    keys: tuple[int, ...]
    peers: tuple[int, ...]
    cuts: int

    @property
    def imbalance(self) -> float:
        """Most area of a rank over the mean; 1 where there is none."""
        return max(self.area) * len(self.area) / sum(self.area) if any(self.area) else 1.0

    @property
    def cost(self) -> tuple[int, float, float]:
        """Smaller is better, the first difference decides: the longest rank's tokens; imbalance, which is all the same
        up to EVEN; keys moved. Of these the mean of the total and of W times the busiest rank's counts, and each cut
        and each rank that has to be asked for keys counts as a TILE of them."""
        moved = (sum(self.keys) + len(self.keys) * max(self.keys)) / 2
        return max(self.tokens), max(self.imbalance, EVEN), moved + TILE * (self.cuts + sum(self.peers))


@dataclass(frozen=True, eq=False)
class Geometry:
    """What a mask asks, whoever holds it.

    keys  [B, S, K, 2] key spans of each query, over all heads
    area  [B, S] pairs of each query
    low   [B, S] first of its keys and itself
    high  [B, S] one past the last of them
    edge  [B, S] bool: no pair joins this token or a later one with an earlier one
    """

    keys: Tensor
    area: Tensor
    low: Tensor
    high: Tensor
    edge: Tensor


@lru_cache(maxsize=4)
def geometry(mask: Mask) -> Geometry:
    keys = spans(mask).transpose(1, 2).flatten(2, 3)
    start, end = keys.unbind(-1)
    own = torch.arange(mask.tokens).expand(mask.batch, -1)
    low = torch.minimum(torch.where(end > start, start, mask.tokens).amin(-1), own)
    high = torch.maximum(torch.where(end > start, end, 0).amax(-1), own + 1)
    edge = low.flip(-1).cummin(-1).values.flip(-1) >= own
    edge[:, 1:] &= high.cummax(-1).values[:, :-1] <= own[:, 1:]
    return Geometry(keys, (end - start).clamp(min=0).sum(-1), low, high, edge)


def burden(mask: Mask, positions: Sequence[Tensor]) -> Burden:
    """The burden of a layout's positions, `[L]` or `[B, L]` a rank. Memory is a few times that of the key spans."""
    found, held = geometry(mask), [part.expand(mask.batch, -1) for part in positions]
    owner = _owner(held, mask.tokens)
    load = torch.zeros(len(held), dtype=torch.int64).index_add_(0, owner.flatten(), found.area.flatten())
    sources = [_sources(found.keys, part, owner, rank, len(held)) for rank, part in enumerate(held)]
    cuts = int(((owner.diff(dim=-1) != 0) & ~found.edge[:, 1:]).sum())
    return Burden(tuple(load.tolist()), tuple(part.shape[1] for part in held), tuple(map(sum, sources)),
                  tuple(sum(keys > 0 for keys in source) for source in sources), cuts)


def _owner(held: list[Tensor], tokens: int) -> Tensor:
    """[B, S] the rank of each position; filler slots write behind the row."""
    owner = torch.zeros(len(held[0]), tokens + 1, dtype=torch.int64)
    for rank, part in enumerate(held):
        owner.scatter_(1, torch.where(part < 0, tokens, part), rank)
    return owner[:, :-1]


def _sources(keys: Tensor, held: Tensor, owner: Tensor, rank: int, world: int) -> list[int]:
    """How many keys of each other rank the queries at `held` `[B, L]` attend."""
    batch, tokens = owner.shape
    index = held.clamp(min=0)[..., None, None].expand(-1, -1, *keys.shape[2:])
    start, end = keys.gather(1, index).unbind(-1)
    filled = ((end > start) & (held >= 0)[..., None]).to(torch.int32).flatten(1)
    opened = torch.zeros(batch, tokens + 1, dtype=torch.int32)
    opened.scatter_add_(1, start.clamp(0, tokens).flatten(1), filled)
    opened.scatter_add_(1, end.clamp(0, tokens).flatten(1), -filled)
    counts = torch.bincount(owner[opened.cumsum(1)[:, :-1] > 0], minlength=world)
    counts[rank] = 0
    return counts.tolist()
