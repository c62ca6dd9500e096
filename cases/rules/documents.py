"""A3: a query sees only keys of its own document."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cases import runs
from cases.case import Inputs, Place, Scenario, Shape
from cases.mask import Mask
from cases.rows import Rows
from cases.rules.causal import Causal
from cases.rules.rule import Rule
from cases.runs import Runs


@dataclass(frozen=True)
class Documents(Rule):
    """Integer ids as (id, length) runs per batch row; equal ids are one document, ids <= 0 are padding.

    runs  every contiguous run of the given ids is a document of its own
    """

    ids: tuple[Runs, ...] = ()
    name = "documents"
    requirement = "A3"
    variants = ("runs",)

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "ids", runs.frozen(self.ids))

    @classmethod
    def packed(cls, *rows: Sequence[int], tokens: int | None = None, variant: str | None = None) -> "Documents":
        """Documents 1, 2, ... of these lengths, one sequence a row; up to `tokens` the rest of a row is padding."""
        described = []
        for lengths in rows:
            row = [(number, length) for number, length in enumerate(lengths, 1)]
            rest = (tokens or sum(lengths)) - sum(lengths)
            described.append((*row, (0, rest)) if rest else tuple(row))
        return cls(tuple(described), variant=variant)

    def metadata(self, rows: Rows) -> dict[str, Tensor | int]:
        return {"documents": runs.tensor("documents", self.ids, rows)}

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        ids = self.numbers(rows)
        return (ids[:, i, None] == ids[:, None, j])[:, None]

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        tables = [_runs_by_document(row) for row in self.numbers(rows)]
        width = max(table.shape[1] for table, _ in tables)
        found = torch.zeros(rows.batch, len(i), width, 2, dtype=torch.int64)
        for row, (table, document) in zip(found, tables):
            row[:, :table.shape[1]] = table[document[i]]
        return found[:, None]

    def numbers(self, rows: Rows) -> Tensor:
        """`[B, S]`: equal where two tokens are of one document, as the variant reads the ids."""
        return rows.documents if self.variant is None else _run_numbers(rows.documents)

    def sliced(self, tokens: int) -> "Documents":
        return replace(self, ids=tuple(runs.cut_runs(row, tokens) for row in self.ids))

    def stretched(self, tokens: int, to: int) -> "Documents":
        return replace(self, ids=tuple(runs.stretch_runs(row, tokens, to) for row in self.ids))

    def another(self, tokens: int, number: int) -> "Documents":
        """Batch C has the edges of A and joins other runs; a row that is one document is cut."""
        if all(len(runs.merged(row)) == 1 for row in self.ids):
            return replace(self, ids=tuple(_cut(row, tokens, number) for row in self.ids))
        if number != 2:
            return replace(self, ids=tuple(runs.rolled(row, tokens, number) for row in self.ids))
        return replace(self, ids=tuple(_joined(row, tokens, number) for row in self.ids))


def _cut(row: Runs, tokens: int, number: int) -> Runs:
    """Five documents in place of one, as long as the row allows."""
    (first, length), = runs.merged(row)
    edges = sorted({length * part // (6 + number) for part in range(1, 5)} | {0, length})
    return tuple((first + at, end - start) for at, (start, end) in enumerate(zip(edges, edges[1:])))


def _joined(row: Runs, tokens: int, number: int) -> Runs:
    """The last run goes on with the first document, or with none where it did; rolled where that would move an edge."""
    row = runs.merged(row)
    last = max((at for at, (value, _) in enumerate(row) if value > 0), default=0)
    first = next((value for value, _ in row if value > 0), 0)
    other = first if row[last][0] != first else max(value for value, _ in row) + 1
    joined = (*row[:last], (other, row[last][1]), *row[last + 1:])
    return joined if len(row) > 2 and runs.merged(joined) == joined else runs.rolled(row, tokens, number)


def _run_numbers(ids: Tensor) -> Tensor:
    """`[B, S]` ids -> `[B, S]` number of the contiguous run that each token stands in."""
    numbers = torch.zeros_like(ids)
    numbers[:, 1:] = (ids[:, 1:] != ids[:, :-1]).cumsum(-1)
    return numbers


def _runs_by_document(ids: Tensor) -> tuple[Tensor, Tensor]:
    """ids `[S]` -> the runs of each distinct id `[U, K, 2]`, and the index of each token's id `[S]`."""
    run_ids, lengths = torch.unique_consecutive(ids, return_counts=True)
    ends = lengths.cumsum(0)
    _, document, counts = torch.unique(run_ids, return_inverse=True, return_counts=True)
    order = document.argsort(stable=True)
    slot = torch.arange(len(order)) - (counts.cumsum(0) - counts)[document[order]]
    table = torch.zeros(len(counts), int(counts.max()), 2, dtype=torch.int64)
    table[document[order], slot] = torch.stack([ends - lengths, ends], -1)[order]
    return table, document.repeat_interleave(lengths)


def _shards(extra: int):
    """Documents of one shard and `extra` tokens; the last one takes what is left."""
    def mask(place: Place) -> Mask:
        length = max(1, place.shard + extra)
        full, rest = divmod(place.tokens, length)
        return Mask((Causal(), Documents.packed([length] * full + [rest] * (rest > 0))))

    return mask


def _causal(*ids: Runs, variant: str | None = None) -> Mask:
    return Mask((Causal(), Documents(ids, variant=variant)))


def _packed(*rows: Sequence[int]) -> Mask:
    return Mask((Causal(), Documents.packed(*rows)))


SHORT = (3, 9, 1, 14, 2, 7, 21, 5, 1, 1, 30, 4, 11, 8, 6, 5)

CASES = (
    Scenario("packed/even", "A1 A3", _packed([64] * 4)),
    Scenario("packed/straddle", "A1 A3", _packed([37, 101, 118])),
    Scenario("packed/short", "A1 A3", _packed(SHORT), Shape(tokens=sum(SHORT), heads=4, kv_heads=4, head_dim=64)),
    Scenario("packed/long-then-short", "A1 A3", _packed([190, 3, 5, 58]), Shape(heads=8, kv_heads=2)),
    Scenario("packed/single-tokens", "A1 A3", _packed([1] * 300 + [20]), Shape(tokens=320)),
    Scenario("packed/shards", "A1 A3", _shards(0), least_world=2),
    Scenario("packed/shards-plus-one", "A1 A3", _shards(1), Shape(head_dim=80), least_world=2),
    Scenario("packed/shards-minus-one", "A1 A3", _shards(-1), Shape(heads=4, kv_heads=1), least_world=2),
    Scenario("packed/full", "A3", Mask((Documents.packed([37, 101, 62], [120, 80]),)),
             Shape(batch=2, tokens=200, head_dim=64)),
    Scenario("packed/tail-zero", "A1 A3 A4 B3", _causal(((1, 90), (2, 110), (0, 56)))),
    Scenario("packed/leading-zero", "A1 A3 A4 B3", _causal(((0, 33), (4, 90), (2, 133)))),
    Scenario("packed/interior-zero", "A1 A3 A4 B3", _causal(((1, 90), (0, 41), (1, 60), (2, 65)))),
    Scenario("packed/negative-ids", "A1 A3 A4 B3", _causal(((7, 80), (-1, 20), (3, 100), (-9, 56)))),
    Scenario("packed/large-ids", "A1 A3",
             _causal(((1 << 40, 60), ((1 << 40) + 1, 40), (1 << 53, 50), ((1 << 53) + 1, 50), (1 << 32, 56)))),
    Scenario("packed/reunited", "A1 A3", _causal(((1, 60), (2, 130), (1, 66))), Shape(head_dim=128)),
    Scenario("packed/reunited-runs", "A1 A3", _causal(((1, 60), (2, 130), (1, 66)), variant="runs")),
    Scenario("packed/two-rows", "A1 A3 A4 B3",
             Mask((Causal(), Documents.packed([50, 78], [9, 100], tokens=128))), Shape(batch=2, tokens=128)),
    Scenario("packed/three-rows", "A1 A3 A8 B8", _packed([96], [30, 1, 65], [60, 36]),
             Shape(batch=3, tokens=96, heads=6, head_dim=80), inputs=Inputs(grads="qk")),
)
