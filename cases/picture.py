"""A mask in n x n cells, exact from key intervals: what a report draws."""

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows
from cases.work import blocks, owners


def edges(tokens: int, cells: int) -> Tensor:
    """`[n + 1]` positions at which the cells begin and end; n is `cells`, or `tokens` when that is less."""
    cells = min(cells, tokens)
    return torch.arange(cells + 1) * tokens // cells


def allowed_share(mask: Mask, rows: Rows, cells: int = 48, row: int = 0) -> Tensor:
    """`[n, n]` float64: the share of allowed pairs in each cell of batch row `row`, averaged over groups."""
    edge = edges(rows.tokens, cells)
    size = edge.diff()
    line = torch.arange(len(size)).repeat_interleave(size) * (rows.tokens + 1)
    change = torch.zeros(len(size), rows.tokens + 1, dtype=torch.int64)
    for i, keys in blocks(mask, rows):
        start, end = keys[row].unbind(-1)
        filled = (end > start).long().reshape(-1)
        change.view(-1).index_add_(0, (line[i, None] + start).reshape(-1), filled)
        change.view(-1).index_add_(0, (line[i, None] + end).reshape(-1), -filled)
        groups = keys.shape[1]
    seen = torch.nn.functional.pad(change.cumsum(-1)[:, :-1].cumsum(-1), (1, 0))
    return seen[:, edge].diff(dim=-1).double() / (groups * size[:, None] * size)


def owner(layout: list[Tensor], rows: Rows, cells: int = 48, row: int = 0) -> Tensor:
    """`[n]`: the rank that holds most of the query rows of each cell of batch row `row`; ranks that tie take turns."""
    held = torch.nn.functional.one_hot(owners(layout, rows)[row], len(layout))
    edge = edges(rows.tokens, cells)
    counts = torch.nn.functional.pad(held.cumsum(0), (0, 0, 1, 0))[edge].diff(dim=0)
    tied = (counts == counts.amax(1, keepdim=True)).long()
    turn = torch.arange(len(counts)) % tied.sum(1)
    return (tied.cumsum(1) > turn[:, None]).long().argmax(1)
