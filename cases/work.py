"""How much a mask asks for: area, area per rank and owner, need, dead rows and dead keys, all from key intervals."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cases import intervals
from cases.case import Shape
from cases.mask import Mask
from cases.rows import Rows

BLOCK = 4096


@dataclass(frozen=True)
class Work:
    """What a case costs on one layout, W ranks. Areas count allowed (b, query head, i, j).

    area       of the whole problem
    by_rank    [W] of the queries of each rank
    by_owner   [W][W] of the queries of a rank, by the rank that owns the keys
    needs      [W][W] distinct (b, j) that a rank's queries attend, any group, by the other rank that owns them
    """

    area: int
    by_rank: tuple[int, ...]
    by_owner: tuple[tuple[int, ...], ...]
    needs: tuple[tuple[int, ...], ...]

    @property
    def need(self) -> tuple[int, ...]:
        """[W] distinct remote (b, j) that a rank's queries attend (SPEC D9)."""
        return tuple(map(sum, self.needs))

    def need_bytes(self, shape: Shape, itemsize: int) -> list[int]:
        """Bytes of keys and values that each rank has to receive in a forward (SPEC D9)."""
        return [keys * (shape.head_dim + shape.v_dim) * shape.kv_heads * itemsize for keys in self.need]

    def send_bytes(self, shape: Shape, itemsize: int, accumulated: int) -> list[int]:
        """Bytes that each rank has to send in a step: keys and values that others need, forward and backward, and
        dK and dV of the keys that it needs itself (SPEC D9)."""
        width = (shape.head_dim + shape.v_dim) * shape.kv_heads
        given = [sum(others) for others in zip(*self.needs, strict=True)]
        return [width * (2 * give * itemsize + take * accumulated) for give, take in zip(given, self.need, strict=True)]

    def flops(self, shape: Shape) -> tuple[int, int]:
        """Arithmetic of the forward and of the backward (SPEC D)."""
        key, value = shape.head_dim, shape.v_dim
        return 2 * self.area * (key + value), 2 * self.area * (3 * key + 2 * value)


def work(mask: Mask, rows: Rows, shape: Shape, layout: list[Tensor]) -> Work:
    """Work of a mask whose tokens are held as `layout` says: one tensor of positions a rank, `[L]` or `[B, L]`."""
    owner, world = owners(layout, rows), len(layout)
    held = torch.nn.functional.one_hot(owner, world).transpose(1, 2)
    before = torch.nn.functional.pad(held.cumsum(-1), (1, 0))
    area = torch.zeros(world, world, dtype=torch.int64)
    reach = torch.zeros(rows.batch, world, rows.tokens + 1, dtype=torch.int64)
    for i, keys in blocks(mask, rows):
        heads = shape.heads // keys.shape[1]
        for b in range(rows.batch):
            start, end = keys[b].unbind(-1)
            counts = (before[b][:, end] - before[b][:, start]).sum((1, 3))
            area.index_add_(0, owner[b, i], counts.T * heads)
            line = owner[b, i][None, :, None].expand_as(start).reshape(-1) * (rows.tokens + 1)
            reach[b].view(-1).index_add_(0, line + start.reshape(-1), (end > start).reshape(-1).long())
            reach[b].view(-1).index_add_(0, line + end.reshape(-1), -(end > start).reshape(-1).long())
    remote = (reach.cumsum(-1)[..., :-1] > 0) & (held == 0)
    needs = torch.stack([(remote & (owner == other)[:, None]).sum((0, 2)) for other in range(world)], 1)
    return Work(int(area.sum()), tuple(area.sum(1).tolist()), tuple(map(tuple, area.tolist())),
                tuple(map(tuple, needs.tolist())))


def standard(tokens: int, world: int) -> dict[str, list[Tensor]]:
    """The layouts that everybody knows, by name: positions `[L]` a rank. One that leaves a rank without a token is not
    among them.

    contiguous  rank r holds the r-th of `world` stretches
    zigzag      stretches r and 2 * world - 1 - r of 2 * world, so that causal work is even
    striped     every world-th token from r on
    """
    row = torch.arange(tokens)
    whole, half = _stretches(row, world), _stretches(row, 2 * world)
    made = {"contiguous": whole, "zigzag": [torch.cat([half[rank], half[-1 - rank]]) for rank in range(world)],
            "striped": [row[rank::world] for rank in range(world)]}
    return {name: parts for name, parts in made.items() if all(map(len, parts))}


def _stretches(row: Tensor, count: int) -> list[Tensor]:
    size = -(-len(row) // count)
    return [row[size * number:size * (number + 1)] for number in range(count)]


def area(mask: Mask, rows: Rows, heads: int) -> int:
    """Number of allowed (b, query head, i, j)."""
    return sum(int(intervals.count(keys).sum()) * (heads // keys.shape[1]) for _, keys in blocks(mask, rows))


def owners(layout: list[Tensor], rows: Rows) -> Tensor:
    """`[B, S]`: the rank that holds each position; fillers (-1) belong to nobody."""
    owner = torch.full((rows.batch, rows.tokens), -1)
    for rank, positions in enumerate(layout):
        for b, held in enumerate(positions.expand(rows.batch, positions.shape[-1])):
            owner[b, held[held >= 0]] = rank
    assert (owner >= 0).all(), "a layout leaves positions out"
    return owner


def dead_rows(mask: Mask, rows: Rows) -> Tensor:
    """`[B, G, S]` bool: queries that no key is allowed to (SPEC B3)."""
    found = [intervals.count(keys) == 0 for _, keys in blocks(mask, rows)]
    return torch.cat(found, -1).expand(rows.batch, rows.groups, rows.tokens)


def dead_keys(mask: Mask, rows: Rows) -> Tensor:
    """`[B, G, S]` bool: keys that no query of the group attends; `.all(1)` are those that nobody attends (SPEC B4)."""
    reach = torch.zeros(rows.batch, rows.groups, rows.tokens + 1, dtype=torch.int64)
    for _, keys in blocks(mask, rows):
        start, end = keys.flatten(2, 3).expand(-1, rows.groups, -1, -1).unbind(-1)
        filled = (end > start).long()
        reach.scatter_add_(-1, start, filled).scatter_add_(-1, end, -filled)
    return reach.cumsum(-1)[..., :-1] == 0


def blocks(mask: Mask, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
    """Query positions `[I]` and their key intervals `[B, G or 1, I, K, 2]`, so that memory stays O(BLOCK * K)."""
    for first in range(0, rows.tokens, BLOCK):
        i = torch.arange(first, min(first + BLOCK, rows.tokens))
        yield i, mask.keys(rows, i)
