"""A mask in n x n cells, exact from key intervals: what a report draws."""

from itertools import pairwise

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows
from cases.work import owners


def edges(tokens: int, cells: int) -> Tensor:
    """`[n + 1]` positions at which the cells begin and end; n is `cells`, or `tokens` when that is less."""
    cells = min(cells, tokens)
    return torch.arange(cells + 1) * tokens // cells


def allowed_share(mask: Mask, rows: Rows, cells: int = 48, row: int = 0) -> Tensor:
    """`[n, n]` float64: the share of allowed pairs in each cell of batch row `row`, averaged over groups."""
    edge = edges(rows.tokens, cells)
    shares = []
    for first, last in pairwise(edge.tolist()):
        keys = mask.keys(rows, torch.arange(first, last))
        start, end = keys[min(row, len(keys) - 1)].unbind(-1)
        before = (edge[:, None, None, None].minimum(end) - start).clamp(min=0).sum(-1)
        shares.append(before.diff(dim=0).double().mean((1, 2)) / edge.diff())
    return torch.stack(shares)


def owner(layout: list[Tensor], rows: Rows, cells: int = 48, row: int = 0) -> Tensor:
    """`[n]`: the rank that holds most of the query rows of each cell of batch row `row`."""
    held = owners(layout, rows)[row]
    edge = edges(rows.tokens, cells).tolist()
    return torch.stack([held[first:last].mode().values for first, last in pairwise(edge)])
