"""Merge: partial results of hops into whole ones; online softmax for outputs, sums for gradients.

T local tokens of all batch rows, H heads. Everything here stands tokens first, as kernels and messages do.
"""

import torch
from torch import Tensor

from ringcp.calls import Place
from ringcp.optional import missing


class Merged:
    """out `[T, H, Dv]` and lse `[H, T]` of all partial results so far.

    dtype holds the running output. A narrow one is as exact as a wide one while no row has more than two parts, since
    each sum is computed wide and rounded once.
    """

    def __init__(self, tokens: int, heads: int, value_dim: int, dtype: torch.dtype, wide: torch.dtype,
                 device: torch.device):
        self._shape, self._dtype, self._wide, self._device = (tokens, heads, value_dim), dtype, wide, device
        self._parts: tuple[Tensor, Tensor] | None = None

    def add(self, place: Place, out: Tensor, lse: Tensor) -> None:
        """A partial result of the tokens at `place`: out `[N, H, Dv]`, lse `[H, N]`, minus infinity without keys."""
        if self._parts is None and covers(place, self._shape[0]):
            self._parts = out.to(self._dtype), lse
            return
        merge_(*self.result(), place, out, lse)

    def result(self) -> tuple[Tensor, Tensor]:
        """out and lse; 0 and minus infinity where nothing was added."""
        if self._parts is None:
            tokens, heads, _ = self._shape
            lse = torch.full((heads, tokens), -torch.inf, dtype=self._wide, device=self._device)
            self._parts = torch.zeros(self._shape, dtype=self._dtype, device=self._device), lse
        return self._parts


class Total:
    """Sum of contributions `[T, H, D]` whose own dtype is `part`, held in `dtype`."""

    def __init__(self, shape: tuple[int, int, int], part: torch.dtype, dtype: torch.dtype, device: torch.device):
        self.shape, self.part, self.dtype, self.device = shape, part, dtype, device
        self._sum: Tensor | None = None

    def add(self, place: Place, part: Tensor, rounds: tuple[tuple[Tensor, Tensor], ...] = ()) -> None:
        """Adds `[N, H, D]` at the tokens of `place`. Where that names a token more than once, `rounds` says in which
        turns (`calls.Call`): no two additions meet, so that sums need no atomics and are the same every time."""
        if self._sum is None and covers(place, self.shape[0]):
            self._sum = part.to(self.dtype)
        elif isinstance(place, slice):
            self.result()[place].add_(part)
        elif rounds:
            for slots, tokens in rounds:
                self.add(tokens, part.index_select(0, slots))
        else:
            total = self.result()
            total.index_copy_(0, place, total.index_select(0, place).add_(part))

    def result(self) -> Tensor:
        """The sum; 0 where nothing was added."""
        if self._sum is None:
            self._sum = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        return self._sum


def covers(place: Place, tokens: int) -> bool:
    """Whether a place is all tokens in order."""
    return isinstance(place, slice) and place.indices(tokens) == (0, tokens, 1)


def merge_(out: Tensor, lse: Tensor, place: Place, part: Tensor, part_lse: Tensor) -> None:
    """Folds a partial result into out `[T, H, Dv]` and lse `[H, T]` in place; rows without keys stay 0."""
    if out.is_cuda and missing("triton") is None:
        from ringcp.kernels.merge_triton import fused_merge_

        fused_merge_(out, lse, place, part, part_lse)
        return
    old, old_lse = out[place], lse[:, place]
    total = torch.logaddexp(old_lse, part_lse)
    anchor = torch.where(total.isneginf(), 0.0, total)
    weights = ((x - anchor).exp().T[..., None] for x in (old_lse, part_lse))
    out[place] = (old * next(weights) + part * next(weights)).to(out.dtype)
    lse[:, place] = total
