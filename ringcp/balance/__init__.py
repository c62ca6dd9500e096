"""Balanced layouts: who holds which tokens so that the area of one mask is even and few keys move."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ringcp.balance.bins import Bin, Row
from ringcp.balance.burden import EVEN, TILE, Burden, burden, geometry
from ringcp.balance.fill import fill
from ringcp.balance.reunite import reunite, traffic
from ringcp.balance.trade import even_out
from ringcp.layout import Layout, contiguous, zigzag
from ringcp.mask import Mask

__all__ = ["Burden", "balanced_layout", "burden"]

RESERVES = [number / 20 for number in range(11)]
SLACK = EVEN - 1 - 0.002
LEAST_PIECES, MOST_PIECES, OFF = 16, 256, 2
LEAST_FINISHED, FINISHED_RANKS = 4, 24
Bins = list[list[Bin]]


@lru_cache(maxsize=64)
def balanced_layout(mask: Mask, world: int) -> Layout:
    """A layout for one mask: the imbalance of area (most over mean) is at most 1.05 where cutting can reach that, and
    few keys move. No rank holds more than ceil(S / world) tokens of a row; positions rise, and are `[B, L]` where rows
    have their own. Of all candidates, contiguous and zigzag among them, it has the least `burden(..).cost`.

    The same on every rank that has the same mask; cached by content. Raises ValueError for less than one rank.
    """
    if world < 1:
        raise ValueError(f"a layout wants at least one rank, not {world}")
    plain = [contiguous(mask.tokens, world), zigzag(mask.tokens, world)]
    made = [] if world == 1 else [_positions(bins) for bins in _finished(mask, world)]
    best = min([*plain, *made], key=lambda positions: burden(mask, positions).cost)
    return Layout("balanced", mask.tokens, tuple(best))


def _finished(mask: Mask, world: int) -> Iterator[Bins]:
    """The most promising starts, their area evened out and cut stretches reunited."""
    rows = _rows(mask, world)
    shares = [area / world for area in accumulate(row.area(0, row.tokens) for row in rows)]
    starts = sorted(_starts(rows, shares, world), key=lambda bins: _promise(rows, bins, shares))
    for bins in starts[:max(LEAST_FINISHED, FINISHED_RANKS // world)]:
        for number, (row, share) in enumerate(zip(rows, shares)):
            _carry(rows, bins, shares, number)
            even_out(row, bins[number], SLACK * share)
            reunite(row, bins[number], SLACK * share)
        yield bins


def _rows(mask: Mask, world: int) -> list[Row]:
    """Ranks of few tokens get finer pieces than a tile, ranks of very many coarser ones."""
    share = mask.tokens // world
    step = max(min(TILE, share // LEAST_PIECES), share // MOST_PIECES, 1)
    return [Row.of(geometry(mask), number, step) for number in range(mask.batch)]


def _starts(rows: list[Row], shares: list[float], world: int) -> Iterator[Bins]:
    """Contiguous and zigzag bins, then filled ones. Every rank has its exact number of tokens."""
    least, more = divmod(rows[0].tokens, world)
    tokens = [least + (rank < more) for rank in range(world)]
    ends = [0, *accumulate(tokens)]
    halves = [0, *accumulate([count // 2 for count in tokens] + [count - count // 2 for count in reversed(tokens)])]
    plain = ([[piece] for piece in pairwise(ends)],
             [[head, tail] for head, tail in zip(pairwise(halves), reversed(list(pairwise(halves))))][:world])
    for pieces in plain:
        yield [[Bin(0, 0.0, [piece for piece in own if piece[0] < piece[1]]) for own in pieces] for _ in rows]
    for reserve in RESERVES:
        yield _filled(rows, shares, tokens, reserve)


def _filled(rows: list[Row], shares: list[float], tokens: list[int], reserve: float) -> Bins:
    bins: Bins = []
    for number, row in enumerate(rows):
        bins.append([Bin(count, 0.0) for count in tokens])
        _carry(rows, bins, shares, number)
        fill(row, bins[number], reserve * row.area(0, row.tokens) / row.tokens)
    return bins


def _carry(rows: list[Row], bins: Bins, shares: list[float], number: int) -> None:
    """Sets what the bins of a row may still take: the share of all rows so far, less what their ranks hold of these."""
    for rank, one in enumerate(bins[number]):
        held = sum(rows[number].area(*piece) for piece in one.pieces)
        before = bins[number - 1][rank].area - shares[number - 1] if number else 0.0
        one.area = before + shares[number] - held


def _promise(rows: list[Row], bins: Bins, shares: list[float]) -> float:
    """Traffic, and more for area that will have to be traded."""
    for number in range(len(rows)):
        _carry(rows, bins, shares, number)
    off = max(0.0, 1 - EVEN - min(one.area for one in bins[-1]) / max(shares[-1], 1))
    return sum(traffic(row, own) for row, own in zip(rows, bins)) * (1 + OFF * off)


def _positions(bins: Bins) -> list[Tensor]:
    """What each rank holds: `[L]` for one row, `[B, L]` for more."""
    parts = [torch.stack([_held(row[rank]) for row in bins]) for rank in range(len(bins[0]))]
    return [part[0] for part in parts] if len(bins) == 1 else parts


def _held(one: Bin) -> Tensor:
    return torch.cat([torch.arange(0), *(torch.arange(*piece) for piece in sorted(one.pieces))])
