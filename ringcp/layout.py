"""Layout: which rank holds which positions of a row, and how tensors are cut and put together again."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of every rank: one int64 `[L]` or `[B, L]` a rank; -1 is a filler slot that holds no token.

    Over all ranks every position of a row stands exactly once. Raises ValueError when it does not.
    """

    name: str
    tokens: int
    positions: tuple[Tensor, ...]

    def __post_init__(self):
        if not self.positions or any(part.dtype != torch.int64 or part.dim() not in (1, 2) for part in self.positions):
            raise ValueError(f"layout {self.name} wants an int64 tensor [L] or [B, L] for each rank")
        batch = max(part.shape[0] if part.dim() == 2 else 1 for part in self.positions)
        held = torch.cat([part.expand(batch, -1) for part in self.positions], 1)
        real = held.sort(-1).values[:, (held < 0).sum(-1).max():]
        once = real.shape[1] == self.tokens and bool((real == torch.arange(self.tokens)).all())
        if not once or bool((held < -1).any()):
            raise ValueError(f"layout {self.name} does not hold each position 0..{self.tokens - 1} exactly once")

    @property
    def world(self) -> int:
        return len(self.positions)

    @cached_property
    def digest(self) -> tuple:
        return (self.name, self.tokens, tuple(part.numpy().tobytes() for part in self.positions))

    def __eq__(self, other) -> bool:
        return isinstance(other, Layout) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def shard(self, whole: Tensor, rank: int, dim: int = 2) -> Tensor:
        """The part of `whole` (S along `dim`, batch along 0) that `rank` holds; filler slots are 0."""
        index = self._index(self.positions[rank], whole, dim)
        part = whole.gather(dim, index.clamp(min=0).expand(*_sizes(whole, dim, index.shape[dim])))
        return part.masked_fill(index < 0, 0)

    def unshard(self, parts: list[Tensor], dim: int = 2) -> Tensor:
        """The whole tensor from the parts of all ranks in rank order; filler slots are dropped."""
        whole = parts[0].new_zeros(_sizes(parts[0], dim, self.tokens + 1))
        for part, positions in zip(parts, self.positions, strict=True):
            index = self._index(positions, part, dim)
            index = torch.where(index < 0, self.tokens, index).expand(part.shape)
            whole = whole.scatter(dim, index, part)
        return whole.narrow(dim, 0, self.tokens)

    def padded(self) -> "Layout":
        """The same with filler slots at the end of short ranks, so that every rank holds equally many."""
        most = max(part.shape[-1] for part in self.positions)
        fill = [torch.nn.functional.pad(part, (0, most - part.shape[-1]), value=-1) for part in self.positions]
        return Layout(f"{self.name}-padded", self.tokens, tuple(fill))

    def _index(self, positions: Tensor, like: Tensor, dim: int) -> Tensor:
        shape = [1] * like.dim()
        shape[dim] = positions.shape[-1]
        if positions.dim() == 2:
            shape[0] = positions.shape[0]
        return positions.to(like.device).view(shape)


def make_layout(name: str, tokens: int, world: int) -> Layout:
    """A layout by name ("zigzag", "zigzag-padded", ...) for `tokens` positions on `world` ranks.

    Raises ValueError for an unknown name and for less than one token or rank.
    """
    if tokens < 1 or world < 1:
        raise ValueError(f"a layout wants at least one token and one rank, not {tokens} and {world}")
    base, padded, _ = name.partition("-padded")
    if base == "balanced":
        raise ValueError("the layout balanced is made for a mask: balanced_layout(mask, world)")
    if base not in LAYOUTS:
        raise ValueError(f"unknown layout {name!r}: known are {', '.join(LAYOUTS)}, each also with -padded")
    made = Layout(base, tokens, tuple(LAYOUTS[base](tokens, world)))
    return made.padded() if padded else made


def contiguous(tokens: int, world: int) -> list[Tensor]:
    """Rank r holds the r-th of `world` equal stretches; the last ranks get less, or nothing."""
    return _stretches(tokens, world)


def zigzag(tokens: int, world: int) -> list[Tensor]:
    """Rank r holds stretches r and 2 * world - 1 - r of 2 * world, so that causal work is even."""
    parts = _stretches(tokens, 2 * world)
    return [torch.cat([parts[rank], parts[-1 - rank]]) for rank in range(world)]


def striped(tokens: int, world: int) -> list[Tensor]:
    """Rank r holds every world-th token from r on."""
    return [torch.arange(tokens)[rank::world] for rank in range(world)]


LAYOUTS: dict[str, Callable[[int, int], list[Tensor]]] = {
    "contiguous": contiguous,
    "zigzag": zigzag,
    "striped": striped,
}


def _stretches(tokens: int, count: int) -> list[Tensor]:
    size = -(-tokens // count)
    edges = [min(index * size, tokens) for index in range(count + 1)]
    return [torch.arange(start, end) for start, end in zip(edges, edges[1:])]


def _sizes(like: Tensor, dim: int, size: int) -> list[int]:
    sizes = list(like.shape)
    sizes[dim] = size
    return sizes
