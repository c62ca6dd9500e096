"""Work: which local queries attend which keys of one hop, in the hop's coordinates; all a kernel knows of a mask."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ringcp.calls import Call, calls


@dataclass(frozen=True)
class Tile:
    """A stretch of queries and the stretch of keys that holds everything they attend."""

    queries: slice
    keys: slice
    full: bool


@dataclass(frozen=True, eq=False)
class Work:
    """L queries against K keys of one hop; rows of the batch B, key/value heads G that the mask tells apart.

    spans   [B, G, L, N, 2] int64 key spans of each query, sorted, disjoint; on the host
    keys    K
    device  where the tensors are that a kernel gets
    """

    spans: Tensor
    keys: int
    device: str = "cpu"

    @property
    def queries(self) -> int:
        return self.spans.shape[2]

    @cached_property
    def causal(self) -> bool:
        """Whether query i attends exactly keys 0..i, all of them square."""
        if self.queries != self.keys or self.spans.shape[3] != 1:
            return False
        end = torch.arange(1, self.queries + 1)
        return bool((self.spans[..., 0, 0] == 0).all() and (self.spans[..., 0, 1] == end).all())

    def tiles(self, block: int) -> tuple[Tile, ...]:
        """Blocks of queries with the extent of their keys; blocks without a key are left out."""
        return self.kept(f"tiles of {block}", lambda: self._cut(block))

    @cached_property
    def calls(self) -> list[list[Call]]:
        """The same as band-shaped kernel calls, by layer; for masks that do not tell key/value heads apart."""
        assert self.spans.shape[1] == 1, "bands hold for all heads"
        return calls(self.spans, self.keys, self.device)

    def spans_per_query(self) -> Tensor:
        """[B, G, L] how many spans each query has."""
        return (self.spans[..., 1] > self.spans[..., 0]).sum(-1)

    @cached_property
    def simple(self) -> bool:
        """Whether one band-shaped call runs it all, each key serving one segment; false when bands cannot."""
        if self.spans.shape[1] > 1 or self.spans.shape[3] > 1:
            return False
        every = [call for layer in self.calls for call in layer]
        return len(every) == 1 and not every[0].repeated

    @cached_property
    def _placed(self) -> Tensor:
        return self.spans.to(self.device)

    def kept(self, what: str, make: Callable[[], Any]) -> Any:
        """What a kernel makes of this work, made once."""
        if what not in self._kept:
            self._kept[what] = make()
        return self._kept[what]

    @cached_property
    def _kept(self) -> dict[str, Any]:
        return {}

    def _cut(self, block: int) -> tuple[Tile, ...]:
        length = (self.spans[..., 1] - self.spans[..., 0]).clamp(min=0)
        filled = length > 0
        start = torch.where(filled, self.spans[..., 0], self.keys).amin((0, 1, 3)).tolist()
        end = torch.where(filled, self.spans[..., 1], 0).amax((0, 1, 3)).tolist()
        least = length.sum(-1).amin((0, 1)).tolist()
        tiles = []
        for first in range(0, self.queries, block):
            rows = slice(first, min(first + block, self.queries))
            low, high = min(start[rows]), max(end[rows])
            if high > low:
                tiles.append(Tile(rows, slice(low, high), min(least[rows]) == high - low))
        return tuple(tiles)

    def allowed(self, tile: Tile) -> Tensor:
        """The tile as bool `[B, G, queries, keys]`."""
        spans = self._placed[:, :, tile.queries]
        key = torch.arange(tile.keys.start, tile.keys.stop, device=spans.device)
        inside = (key >= spans[..., 0, 0, None]) & (key < spans[..., 0, 1, None])
        for column in range(1, spans.shape[3]):
            inside |= (key >= spans[..., column, 0, None]) & (key < spans[..., column, 1, None])
        return inside
