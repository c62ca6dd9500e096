"""Row and Bin: one row of tokens as sums to look up, and what one rank holds of it."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import torch

from ringcp.balance.burden import Geometry

Piece = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Row:
    """A row of S tokens. It falls into stretches that no allowed pair joins: documents, mostly.

    before     [S + 1] pairs of the queries before each position
    ends       first position of each stretch, and S
    low, high  [S] first and one past the last of each query's keys and itself
    step       tokens by which stretches are cut where that does not hurt
    """

    before: Sequence[int]
    ends: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]
    step: int

    @classmethod
    def of(cls, found: Geometry, number: int, step: int) -> "Row":
        tokens = found.area.shape[1]
        before = torch.nn.functional.pad(found.area[number].cumsum(0), (1, 0))
        ends = torch.cat([found.edge[number].nonzero()[:, 0], torch.tensor([tokens])])
        return cls(*(x.numpy().data for x in (before, ends, found.low[number], found.high[number])), step)

    @property
    def tokens(self) -> int:
        return len(self.low)

    def area(self, start: int, end: int) -> int:
        return self.before[end] - self.before[start]

    def stretch(self, position: int) -> Piece:
        """The stretch that holds a position."""
        after = bisect_right(self.ends, position)
        return self.ends[after - 1], self.ends[after]

    @cached_property
    def stretches(self) -> list[Piece]:
        """All of them in order, neighbours joined while they hold at most a step together."""
        joined: list[Piece] = []
        for start, end in pairwise(self.ends):
            if joined and end - joined[-1][0] <= self.step:
                start = joined.pop()[0]
            joined.append((start, end))
        return joined

    def remote(self, start: int, end: int) -> int:
        """Roughly the keys that travel when a rank of its own holds these tokens: those they see and those seen."""
        if start >= end:
            return 0
        first, last = self.stretch(start)[0], self.stretch(end - 1)[1]
        sees = start - min(self.low[start], start) + max(self.high[end - 1], end) - end
        later = min(end - start, max(0, end - self.low[end])) if end < last else 0
        earlier = min(end - start, max(0, self.high[start - 1] - start)) if start > first else 0
        return sees + later + earlier


@dataclass
class Bin:
    """What a rank holds of a row as (start, end) pieces; `tokens` and `area` are what it may still take."""

    tokens: int
    area: float
    pieces: list[Piece] = field(default_factory=list)

    def copy(self) -> "Bin":
        return Bin(self.tokens, self.area, list(self.pieces))

    def spare(self, reserve: float) -> float:
        """Area left when each token still to come has `reserve` of it."""
        return self.area - reserve * self.tokens

    def take(self, row: Row, piece: Piece) -> None:
        self.tokens -= piece[1] - piece[0]
        self.area -= row.area(*piece)
        self.pieces.append(piece)

    def give(self, row: Row, part: Piece) -> None:
        """Gives up a part of one piece; what is left of that piece stays."""
        start, end = next(piece for piece in self.pieces if piece[0] <= part[0] and part[1] <= piece[1])
        self.pieces.remove((start, end))
        self.pieces += [rest for rest in ((start, part[0]), (part[1], end)) if rest[0] < rest[1]]
        self.tokens += part[1] - part[0]
        self.area += row.area(*part)

    def join(self) -> None:
        """Pieces that follow each other become one."""
        joined: list[Piece] = []
        for start, end in sorted(self.pieces):
            if joined and joined[-1][1] == start:
                start = joined.pop()[0]
            joined.append((start, end))
        self.pieces = joined

    def keys(self, row: Row) -> int:
        """Roughly the keys of others that it attends: all that lie between the first and the last key of a piece."""
        seen = total = 0
        for start, end in sorted(self.pieces):
            low, high = min(row.low[start], start), max(row.high[end - 1], end)
            total += max(0, high - max(low, seen)) - (end - start)
            seen = max(seen, high)
        return total


def swap(row: Row, one: Bin, other: Bin, given: Iterable[Piece], taken: Iterable[Piece]) -> None:
    """`given` goes from one bin to the other, `taken` comes back."""
    for giver, taker, parts in ((one, other, given), (other, one, taken)):
        for part in parts:
            giver.give(row, part)
            taker.take(row, part)
    one.join()
    other.join()
