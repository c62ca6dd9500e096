"""A4: a padded token neither attends nor is attended."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cases import intervals, runs
from cases.case import Place, Scenario, Shape
from cases.mask import Mask
from cases.rows import Rows
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.rule import Rule


@dataclass(frozen=True)
class Padding(Rule):
    """Padded positions as (start, end) spans per batch row.

    Ids <= 0 of A3 pad too, so it is the mask that keeps padded tokens out (`Rows.padded`); the rule only tells where.
    """

    spans: tuple[tuple[tuple[int, int], ...], ...] = ()
    name = "padding"
    requirement = "A4"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "spans", runs.frozen(self.spans))

    def metadata(self, rows: Rows) -> dict[str, Tensor | int]:
        runs.check_batch("padding", len(self.spans), rows)
        padding = torch.zeros(rows.batch, rows.tokens, dtype=torch.bool)
        for number, spans in enumerate(self.spans):
            for start, end in spans:
                if not 0 <= start <= end <= rows.tokens:
                    raise ValueError(f"padding of row {number}: span {start}..{end} is outside 0..{rows.tokens}")
                padding[number, start:end] = True
        return {"padding": padding}

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones(1, 1, dtype=torch.bool)

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        return intervals.single(torch.tensor(0), torch.tensor(rows.tokens))

    def sliced(self, tokens: int) -> "Padding":
        spans = tuple(tuple((start, min(end, tokens)) for start, end in row if start < tokens) for row in self.spans)
        return replace(self, spans=spans)

    def stretched(self, tokens: int, to: int) -> "Padding":
        spans = tuple(tuple((start * to // tokens, end * to // tokens) for start, end in row) for row in self.spans)
        return replace(self, spans=spans)

    def another(self, tokens: int, number: int) -> "Padding":
        """Batch C differs from A in the first token alone, which one rank holds; rows without any get some."""
        if not any(self.spans) and number != 2:
            return replace(self, spans=tuple(((tokens // 3, tokens // 2),) for _ in self.spans))
        if number != 2:
            return replace(self, spans=tuple(runs.rolled_spans(row, tokens, number) for row in self.spans))
        return replace(self, spans=tuple(_turned(row) for row in self.spans))


def _turned(row: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The spans with the first token padded, or not padded where it was."""
    if any(start == 0 < end for start, end in row):
        return tuple((max(1, start), end) for start, end in row if end > 1)
    return ((0, 1), *row)


def _causal(*spans: tuple[tuple[int, int], ...]) -> Mask:
    return Mask((Causal(), Padding(spans)))


def _rank(number: int):
    """Everything that this rank holds in a contiguous layout is padding."""
    def mask(place: Place) -> Mask:
        rank = number % place.world
        return _causal(((rank * place.shard, min(place.tokens, (rank + 1) * place.shard)),))

    return mask


def _tail(place: Place) -> Mask:
    return _causal(((place.tokens - place.shard // 2 - 1, place.tokens),))


CASES = (
    Scenario("padding/tail", "A1 A4 B3", _tail),
    Scenario("padding/left", "A1 A4 B3", _causal(((0, 77),)), Shape(heads=8, kv_heads=2)),
    Scenario("padding/interior", "A1 A4 B3", _causal(((90, 161),)), Shape(head_dim=64)),
    Scenario("padding/scattered", "A1 A4 B3", _causal(tuple((n, n + 1) for n in range(0, 96, 3))), Shape(tokens=96)),
    Scenario("padding/first-rank", "A1 A4 B3 D6 D8", _rank(0), least_world=2),
    Scenario("padding/last-rank", "A1 A4 B3 D6 D8", _rank(-1), Shape(heads=4, kv_heads=1), least_world=2),
    Scenario("padding/whole-row", "A1 A4 B3", _causal(((0, 128),), ()), Shape(batch=2, tokens=128)),
    Scenario("padding/everything", "A4 B3", _causal(((0, 64),)), Shape(tokens=64, heads=4, kv_heads=4)),
    Scenario("padding/one-left", "A4 B3", _causal(((0, 100), (101, 128))), Shape(tokens=128, head_dim=80)),
    Scenario("padding/full", "A4 B3", Mask((Padding((((0, 10), (120, 150)), ((40, 60),))),)),
             Shape(batch=2, tokens=150, head_dim=24)),
    Scenario("padding/mask-and-ids", "A1 A3 A4 B3",
             Mask((Causal(), Padding((((30, 50), (170, 200)),)), Documents((((1, 90), (2, 90), (0, 20)),)))),
             Shape(tokens=200)),
    Scenario("padding/dead-blocks", "A1 A4 B3", _causal(((300, 1300),)),
             Shape(tokens=1500, heads=2, kv_heads=1, head_dim=16), note="whole blocks of queries see nothing"),
    Scenario("padding/two-rows", "A1 A4 B3", _causal(((0, 31),), ((100, 144),)), Shape(batch=2, tokens=144)),
)
