"""Reunite: brings parts of one stretch together in one bin, against whole stretches of equally many tokens."""

from collections.abc import Iterator

from ringcp.balance.bins import Bin, Piece, Row, swap
from ringcp.balance.burden import TILE

ROUNDS = 12


def traffic(row: Row, bins: list[Bin]) -> float:
    """The last part of a burden's cost, roughly: pieces stand for cuts and peers."""
    return _total([_asked(row, one) for one in bins])


def _asked(row: Row, one: Bin) -> tuple[int, int]:
    return one.keys(row), len(one.pieces)


def _total(asked: list[tuple[int, int]]) -> float:
    keys, pieces = zip(*asked)
    return (sum(keys) + len(keys) * max(keys)) / 2 + TILE * sum(pieces)


def reunite(row: Row, bins: list[Bin], slack: float) -> None:
    """Makes the best such exchange again and again while traffic falls and no area goes beyond its share by more than
    `slack`."""
    for _ in range(ROUNDS):
        asked = [_asked(row, one) for one in bins]
        best, at = _total(asked), None
        for one, other, given, taken in _exchanges(row, bins, slack):
            swapped = bins[one].copy(), bins[other].copy()
            swap(row, *swapped, [given], taken)
            after = list(asked)
            after[one], after[other] = (_asked(row, each) for each in swapped)
            if _total(after) < best:
                best, at = _total(after), (bins[one], bins[other], [given], taken)
        if at is None:
            return
        swap(row, *at)


def _exchanges(row: Row, bins: list[Bin], slack: float) -> Iterator[tuple[int, int, Piece, list[Piece]]]:
    """Each part of a cut stretch, to each bin that holds another part of it, and what comes back."""
    for one, giver in enumerate(bins):
        for part in (piece for piece in giver.pieces if row.remote(*piece)):
            stretch = row.stretch(part[0])
            if part[1] > stretch[1]:
                continue
            for other, taker in enumerate(bins):
                if other != one and any(_meet(piece, stretch) for piece in taker.pieces):
                    back = _gathered(row, taker, part[1] - part[0], stretch)
                    moved = row.area(*part) - sum(row.area(*piece) for piece in back)
                    if back and giver.area + moved >= -slack and taker.area - moved >= -slack:
                        yield one, other, part, back


def _gathered(row: Row, taker: Bin, tokens: int, stretch: Piece) -> list[Piece]:
    """So many tokens of a bin: whole stretches, the longest first, and one head; empty when it cannot."""
    free = [piece for piece in taker.pieces if not _meet(piece, stretch)]
    chosen: list[Piece] = []
    for start, end in sorted(free, key=lambda piece: piece[0] - piece[1]):
        if end - start <= tokens and not row.remote(start, end):
            chosen.append((start, end))
            tokens -= end - start
    heads = [(start, start + tokens, end) for start, end in free
             if end - start >= tokens and (start, end) not in chosen]
    if not tokens or not heads:
        return [] if tokens else chosen
    start, middle, _ = min(heads, key=lambda head: _parted(row, *head))
    return [*chosen, (start, middle)]


def _parted(row: Row, start: int, middle: int, end: int) -> int:
    return row.remote(start, middle) + row.remote(middle, end) - row.remote(start, end)


def _meet(one: Piece, other: Piece) -> bool:
    return one[0] < other[1] and other[0] < one[1]
