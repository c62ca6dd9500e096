"""Pairs: which (query, key) pairs a mask allows, in blocks of query rows, with the key columns that a block needs."""

from collections.abc import Iterator

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows

KEPT_PAIRS = 1 << 22


class Pairs:
    """Evaluates a mask from `Mask.allowed` alone; nothing of size tokens * tokens is kept for long rows.

    live   [B, G, S] bool, queries that may attend some key
    seen   [B, G, S] bool, keys that some query may attend
    """

    def __init__(self, mask: Mask, rows: Rows, block: int):
        """block: query rows evaluated at once."""
        self.mask, self.rows = mask, rows
        lead = rows.batch, rows.groups, rows.tokens
        self.live, self.seen = torch.zeros(lead, dtype=torch.bool), torch.zeros(lead, dtype=torch.bool)
        keep = lead[0] * lead[1] * lead[2] ** 2 <= KEPT_PAIRS
        self.blocks = []
        for start in range(0, rows.tokens, block):
            i = slice(start, min(start + block, rows.tokens))
            allowed = self._allowed(i, slice(0, rows.tokens))
            self.live[:, :, i] = allowed.any(-1)
            seen = allowed.any(-2)
            self.seen |= seen
            columns = seen.flatten(0, 1).any(0).nonzero()
            if len(columns):
                j = slice(int(columns[0]), int(columns[-1]) + 1)
                self.blocks.append((i, j, allowed[..., j] if keep else None))

    def __iter__(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Query slice, key slice, allowed `[B, G or 1, I, J]`, for each block that sees any key."""
        for i, j, allowed in self.blocks:
            yield i, j, self._allowed(i, j) if allowed is None else allowed

    def _allowed(self, i: slice, j: slice) -> Tensor:
        return self.mask.allowed(self.rows, torch.arange(i.start, i.stop), torch.arange(j.start, j.stop))


def rows_at_once(q: Tensor, pairs: int = 1 << 22) -> int:
    """Query rows in a block of about `pairs` scores of all heads: q `[B, Hq, S, D]`."""
    batch, heads, tokens, _ = q.shape
    return max(16, min(96, pairs // (batch * heads * max(tokens, 1))))
