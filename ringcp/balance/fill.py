"""Fill: hands the stretches of a row out to bins until each holds its tokens, with its share of the area or near it.

Largest first. A stretch goes whole where it fits; otherwise one bin takes as much of its tail as it has area for, and
the head waits as a smaller stretch.
"""

from bisect import bisect_right
from heapq import heapify, heappop, heappush

from ringcp.balance.bins import Bin, Piece, Row


def fill(row: Row, bins: list[Bin], reserve: float) -> None:
    """`reserve` is the area that each token of what comes last is thought to have: short documents, heads."""
    waiting = [(-row.area(*piece), piece) for piece in row.stretches]
    heapify(waiting)
    while waiting:
        piece = heappop(waiting)[1]
        chosen, part = _whole(row, bins, piece, reserve), piece
        if chosen is None:
            chosen, part = _cut(row, bins, piece, reserve)
        chosen.take(row, part)
        for rest in ((piece[0], part[0]), (part[1], piece[1])):
            if rest[0] < rest[1]:
                heappush(waiting, (-row.area(*rest), rest))
    for one in bins:
        one.join()


def _whole(row: Row, bins: list[Bin], piece: Piece, reserve: float) -> Bin | None:
    """The bin with the most area to spare that takes it whole; one that holds what lies behind comes first."""
    (start, end), area = piece, row.area(*piece)
    fits = [one for one in bins if one.tokens >= end - start and one.spare(reserve) >= area - reserve * (end - start)]
    behind = row.stretch(end - 1)[1]

    def wish(one: Bin) -> tuple[bool, float]:
        return end < behind and any(end <= first < behind for first, _ in one.pieces), one.spare(reserve)

    return max(fits, key=wish, default=None)


def _cut(row: Row, bins: list[Bin], piece: Piece, reserve: float) -> tuple[Bin, Piece]:
    """A bin, and the end of the piece that it takes."""
    start, end = piece
    chosen = max((one for one in bins if one.tokens), key=lambda one: one.spare(reserve))
    most = min(chosen.tokens, end - start)
    length = bisect_right(range(1, most + 1), chosen.spare(reserve),
                          key=lambda length: row.area(end - length, end) - reserve * length)
    if row.step < length < most:
        length -= (length - end + row.stretch(end - 1)[0]) % row.step
    few = length == chosen.tokens <= row.step and 2 * length < end - start
    if length < min(row.step, most) or few:
        return _by_tokens(bins, piece)
    return chosen, (end - length, end)


def _by_tokens(bins: list[Bin], piece: Piece) -> tuple[Bin, Piece]:
    """The bin with the most tokens left takes what it can. Queries of a tail need the head's keys, so the head is the
    shorter part."""
    start, end = piece
    chosen = max(bins, key=lambda one: one.tokens)
    length = min(chosen.tokens, end - start)
    return chosen, (end - length, end) if 2 * length >= end - start else (start, start + length)
