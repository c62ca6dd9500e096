"""Trade: two bins of a row exchange equally many tokens, until none has more than its share of area."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ringcp.balance.bins import Bin, Piece, Row, swap

CLOSEST, LIGHTEST, ROUNDS, FINER = 5, 8, 4, 8


@dataclass(frozen=True)
class Trade:
    """`given` and `taken` change places between two bins; the giver loses `area`, `keys` more keys travel, roughly."""

    given: Piece
    taken: Piece
    area: int
    keys: int


def even_out(row: Row, bins: list[Bin], slack: float) -> None:
    """Trades from the bin with the most area until none is more than `slack` beyond its share, while that helps."""
    for _ in range(ROUNDS * len(bins)):
        heavy = min(bins, key=lambda one: one.area)
        excess = -slack - heavy.area
        if excess <= 0:
            return
        lights = sorted(bins, key=lambda one: -one.area)[:LIGHTEST]
        found = [(trade.keys * max(1.0, excess / trade.area), number, trade)
                 for number, light in enumerate(lights) if light.area > -slack
                 for trade in _trades(row, heavy, light, excess, light.area + slack)]
        if not found:
            return
        _, number, trade = min(found, key=lambda one: one[:2])
        swap(row, heavy, lights[number], [trade.given], [trade.taken])


def _trades(row: Row, heavy: Bin, light: Bin, excess: float, most: float) -> Iterator[Trade]:
    """An end of one of the deepest pieces against an end of one of the shallowest, as much as the excess asks."""
    deep, shallow = (sorted(one.pieces, key=lambda piece: sign * row.area(*piece) / (piece[1] - piece[0]))[:CLOSEST]
                     for one, sign in ((heavy, -1), (light, 1)))
    for high, low, *tails in product(deep, shallow, (True, False), (True, False)):
        trade = _sized(row, high, low, tails, excess, most)
        if trade is not None:
            yield trade


def _sized(row: Row, high: Piece, low: Piece, tails: list[bool], excess: float, most: float) -> Trade | None:
    """The smallest such trade that moves the excess, or all that there is; None when that is too much or nothing."""
    longest, step = min(high[1] - high[0], low[1] - low[0]), max(1, row.step // FINER)

    def ends(size: int) -> tuple[Piece, Piece]:
        return _end(high, tails[0], size), _end(low, tails[1], size)

    def gain(size: int) -> int:
        given, taken = ends(size)
        return row.area(*given) - row.area(*taken)

    sizes = range(step, longest, step)
    enough = bisect_left(sizes, excess, key=gain) if gain(longest) > excess else len(sizes)
    size = sizes[enough] if enough < len(sizes) else longest
    if not 0 < gain(size) <= most:
        return None
    given, taken = ends(size)
    return Trade(given, taken, gain(size), _parted(row, high, given) + _parted(row, low, taken))


def _end(piece: Piece, tail: bool, size: int) -> Piece:
    return (piece[1] - size, piece[1]) if tail else (piece[0], piece[0] + size)


def _parted(row: Row, piece: Piece, part: Piece) -> int:
    """Keys that travel more when `part`, one end of a piece, leaves it."""
    rest = (piece[0], part[0]) if part[1] == piece[1] else (part[1], piece[1])
    return row.remote(*part) + row.remote(*rest) - row.remote(*piece)
