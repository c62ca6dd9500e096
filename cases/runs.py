"""Run-length descriptions of whole rows: small, hashable and exact, whatever the number of tokens."""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

from cases.rows import Rows

Runs = tuple[tuple[int, int], ...]


def frozen(value):
    """Nested lists as nested tuples, so that a description can be hashed; anything else as it is."""
    return tuple(frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


def of(values: Iterable[int]) -> Runs:
    """The (value, length) runs of a row of values."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([int(value), 1])
    return frozen(runs)


def tensor(what: str, described: tuple[Runs, ...], rows: Rows) -> Tensor:
    """The runs of every batch row, written out: int64 `[B, S]`. Raises ValueError when they do not fit `rows`."""
    check_batch(what, len(described), rows)
    check_lengths(what, [[length for _, length in row] for row in described], rows)
    values = [torch.tensor([value for value, _ in row], dtype=torch.int64) for row in described]
    lengths = [torch.tensor([length for _, length in row], dtype=torch.int64) for row in described]
    return torch.stack([value.repeat_interleave(length) for value, length in zip(values, lengths)])


def check_batch(what: str, described: int, rows: Rows) -> None:
    if described != rows.batch:
        raise ValueError(f"{what}: {described} rows are described, the batch has {rows.batch}")


def check_lengths(what: str, lengths: list[list[int]], rows: Rows) -> None:
    for number, row in enumerate(lengths):
        if min(row, default=0) < 0:
            raise ValueError(f"{what} of row {number}: a length is negative ({min(row)})")
        if sum(row) != rows.tokens:
            raise ValueError(f"{what} of row {number}: lengths add up to {sum(row)}, not to {rows.tokens} tokens")


def cut(lengths: Iterable[int], tokens: int) -> list[int]:
    """Leading `tokens` of a row of lengths; entries that begin behind them are dropped."""
    kept, left = [], tokens
    for length in lengths:
        if left <= 0:
            break
        kept.append(min(length, left))
        left -= length
    return kept


def stretch(lengths: Iterable[int], tokens: int, to: int) -> list[int]:
    """A row of `tokens` as a row of `to` tokens, every boundary moved in proportion."""
    ends, total = [0], 0
    for length in lengths:
        total += length
        ends.append(total * to // tokens)
    return [end - start for start, end in pairwise(ends)]


def cut_runs(row: Runs, tokens: int) -> Runs:
    return tuple((value, length) for (value, _), length in zip(row, cut([n for _, n in row], tokens)))


def stretch_runs(row: Runs, tokens: int, to: int) -> Runs:
    return tuple((value, length) for (value, _), length in zip(row, stretch([n for _, n in row], tokens, to)))


def rolled(row: Runs, tokens: int, number: int) -> Runs:
    """The runs backwards, beginning about a third of the row further on, the number-th time with another third."""
    start = _third(tokens, number)
    return (*cut_runs(row, start)[::-1], *cut_runs(row[::-1], tokens - start))


def rolled_spans(row: Runs, tokens: int, number: int) -> Runs:
    """The same for (start, end) spans."""
    moved = [(tokens - end + _third(tokens, number), end - start) for start, end in row]
    ends = [(start % tokens, start % tokens + length) for start, length in moved if length]
    return tuple(span for start, end in ends for span in ((start, min(end, tokens)), (0, end - tokens)) if span[1] > 0)


def _third(tokens: int, number: int) -> int:
    return (tokens // 3 + 1) * number % tokens


def swap(row: tuple) -> tuple:
    """(length, value) runs as (value, length) runs and back."""
    return tuple((second, first) for first, second in row)


def merged(row: Iterable[tuple[int, int]]) -> Runs:
    """The same row with neighbouring runs of one value joined and empty ones dropped."""
    found: list[list[int]] = []
    for value, length in row:
        if found and found[-1][0] == value:
            found[-1][1] += length
        elif length:
            found.append([value, length])
    return frozen(found)
