"""A6: a query sees only keys of the regions that were selected for it (compressed sparse attention)."""

import random
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cases import intervals, runs
from cases.case import Inputs, Place, Scenario, Shape
from cases.mask import Mask
from cases.rows import Rows
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.rule import Rule
from cases.rules.window import Window

Selection = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Router:
    """Selections as a learned router makes them, drawn from a seed.

    top_k  regions chosen at random among those that begin at or before the first query of a block
    share  neighbouring queries that choose together
    own    True adds the query's own region, False leaves it out
    """

    seed: int
    top_k: int
    share: int = 1
    own: bool = True

    def select(self, sizes: tuple[int, ...], row: int, group: int) -> Selection:
        """(queries, regions) runs for one batch row and one key/value group."""
        draw = random.Random(f"{self.seed}/{row}/{group}")
        regions = [region for region, size in enumerate(sizes) for _ in range(size)]
        chosen = []
        for first in range(0, len(regions), self.share):
            block = regions[first:first + self.share]
            own = sorted(set(block))
            past = [region for region in range(block[0] + 1) if region not in own]
            picks = draw.sample(past, min(self.top_k, len(past)))
            chosen.append((len(block), tuple(sorted(picks + own if self.own else picks))))
        return tuple(chosen)


@dataclass(frozen=True)
class Regions(Rule):
    """Region sizes per batch row, and which regions each query selects.

    sizes   tokens of each region, one tuple a batch row; zero is a region without tokens
    chosen  a Router, or `[row][group]` runs (queries, regions); one row or one group stands for all of them.
            Regions may repeat; every query that has fewer of them than another gets unused slots.
    """

    sizes: tuple[tuple[int, ...], ...] = ()
    chosen: Router | tuple[tuple[Selection, ...], ...] = ()
    name = "regions"
    requirement = "A6"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "sizes", runs.frozen(self.sizes))
        chosen = Router(**self.chosen) if isinstance(self.chosen, dict) else runs.frozen(self.chosen)
        object.__setattr__(self, "chosen", chosen)

    @classmethod
    def even(cls, tokens: int, size: int, chosen, batch: int = 1) -> "Regions":
        """Canonical regions: the region of key j is j // size."""
        return cls((tuple(runs.cut([size] * (-(-tokens // size)), tokens)),) * batch, chosen)

    @property
    def canonical(self) -> bool:
        """Whether the region of key j is j // size for one size in all rows."""
        whole = {size for row in self.sizes for size in row[:-1]}
        return len(whole) <= 1 and all(row[-1] <= min(whole, default=row[-1]) for row in self.sizes)

    def selections(self, rows: Rows) -> list[list[Selection]]:
        """`[batch][groups]` runs of (queries, regions), each sorted."""
        if isinstance(self.chosen, Router):
            return [[self.chosen.select(sizes, row, group) for group in range(rows.groups)]
                    for row, sizes in enumerate(self.sizes)]
        per_row = self.chosen * rows.batch if len(self.chosen) == 1 else self.chosen
        runs.check_batch("selected regions", len(per_row), rows)
        found = []
        for number, groups in enumerate(per_row):
            if len(groups) not in (1, rows.groups):
                raise ValueError(f"selected regions of row {number}: {len(groups)} groups are described, "
                                 f"the batch has {rows.groups}")
            found.append(list(groups) * rows.groups if len(groups) == 1 else list(groups))
        return found

    def metadata(self, rows: Rows) -> dict[str, Tensor | int]:
        described = tuple(tuple(enumerate(row)) for row in self.sizes)
        unused = max(map(len, self.sizes), default=0)
        token_regions = runs.tensor("regions", described, rows)
        chosen = self.selections(rows)
        slots = max((len(picks) for row in chosen for group in row for _, picks in group), default=0)
        selected = torch.stack([torch.stack([_written(group, max(1, slots), unused, rows) for group in row])
                                for row in chosen])
        return {"token_regions": token_regions, "selected": selected, "regions": unused}

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        chosen = torch.zeros(rows.batch, rows.groups, len(i), rows.regions + 1, dtype=torch.bool)
        chosen.scatter_(-1, rows.selected[:, :, i], True)
        region = rows.token_regions[:, None, None, j].expand(-1, rows.groups, len(i), -1)
        return chosen.gather(-1, region)

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        number = torch.arange(rows.regions).expand(rows.batch, -1).contiguous()
        edges = [torch.searchsorted(rows.token_regions, number, right=right) for right in (False, True)]
        table = torch.nn.functional.pad(torch.stack(edges, -1), (0, 0, 0, 1))
        row = torch.arange(rows.batch)[:, None, None, None]
        found = table[row, rows.selected[:, :, i]]
        return intervals.union(found, torch.zeros(1, 2, dtype=torch.int64))

    def sliced(self, tokens: int) -> "Regions":
        cut = [tuple(runs.cut(row, tokens)) for row in self.sizes]
        sizes = tuple(kept + (0,) * (len(row) - len(kept)) for kept, row in zip(cut, self.sizes))
        return replace(self, sizes=sizes, chosen=self._chosen_by(lambda queries: runs.cut_runs(queries, tokens)))

    def stretched(self, tokens: int, to: int) -> "Regions":
        sizes = tuple(tuple(runs.stretch(row, tokens, to)) for row in self.sizes)
        chosen = self._chosen_by(lambda queries: runs.stretch_runs(queries, tokens, to))
        return replace(self, sizes=sizes, chosen=chosen)

    def another(self, tokens: int, number: int) -> "Regions":
        """The same sizes backwards; a router draws anew, explicit selections change places among the queries."""
        chosen = (replace(self.chosen, seed=self.chosen.seed + number) if isinstance(self.chosen, Router)
                  else self._chosen_by(lambda queries: runs.rolled(queries, tokens, number)))
        return replace(self, sizes=tuple(row[::-1] for row in self.sizes), chosen=chosen)

    def _chosen_by(self, resize):
        """`chosen` with its (queries, regions) runs resized as (value, length) runs."""
        if isinstance(self.chosen, Router):
            return self.chosen
        return tuple(tuple(runs.swap(resize(runs.swap(group))) for group in row) for row in self.chosen)


def _written(selection: Selection, slots: int, unused: int, rows: Rows) -> Tensor:
    """The (queries, regions) runs of one group as `[S, slots]`."""
    runs.check_lengths("selected regions", [[queries for queries, _ in selection]], rows)
    for _, picks in selection:
        if any(not 0 <= pick < unused for pick in picks):
            raise ValueError(f"selected regions: {picks} names a region outside 0..{unused - 1}")
    lines = torch.tensor([sorted(picks) + [unused] * (slots - len(picks)) for _, picks in selection])
    return lines.repeat_interleave(torch.tensor([queries for queries, _ in selection]), 0)


def _even(tokens: int, size: int, router: Router, *more: Rule) -> Mask:
    return Mask((Causal(), Regions.even(tokens, size, router), *more))


def _shards(place: Place) -> Mask:
    """A region is a shard and one token; every query sees its own and one earlier region."""
    return _even(place.tokens, place.shard + 1, Router(5, top_k=1, share=8))


RAGGED = (1, 40, 7, 64, 3, 0, 50, 35)
WIDE = Shape(tokens=200, heads=8, kv_heads=2, head_dim=64)
EXPLICIT = (((20, ()), (60, (0, 1)), (50, (1, 1, 3)), (70, (0, 2, 6))), ((100, (1,)), (100, (3, 4, 7))))
FUTURE = (((100, (2, 3)), (100, (0, 3))),)

CASES = (
    Scenario("csa/canonical", "A1 A6", _even(256, 16, Router(1, top_k=3, share=4))),
    Scenario("csa/every-query", "A1 A6", _even(160, 8, Router(2, top_k=4)), Shape(tokens=160, heads=4, kv_heads=4)),
    Scenario("csa/one-choice", "A1 A6", _even(256, 32, Router(3, top_k=2, share=64)), Shape(head_dim=80)),
    Scenario("csa/shards", "A1 A6", _shards, least_world=2),
    Scenario("csa/odd-size", "A1 A6", _even(250, 13, Router(4, top_k=3, share=5)), Shape(tokens=250)),
    Scenario("csa/ragged", "A1 A6", Mask((Causal(), Regions((RAGGED,), Router(5, 3, 4)))), WIDE),
    Scenario("csa/own-left-out", "A6 B3", _even(200, 16, Router(6, 2, 4, own=False)), Shape(tokens=200)),
    Scenario("csa/groups-differ", "A1 A6 A8 B3", Mask((Causal(), Regions((RAGGED,), (EXPLICIT,)))), WIDE),
    Scenario("csa/future-selected", "A1 A6 B3", Mask((Causal(), Regions.even(200, 50, (FUTURE,)))), Shape(tokens=200)),
    Scenario("csa/full", "A6 B7", Mask((Regions.even(200, 50, (FUTURE,)),)), Shape(tokens=200, head_dim=24),
             inputs=Inputs("expanded-keys")),
    Scenario("csa/nothing-selected", "A6 B3", Mask((Causal(), Regions.even(64, 16, ((((64, ()),),),)))),
             Shape(tokens=64)),
    Scenario("csa/packed", "A1 A3 A6", Mask((Causal(), Regions.even(240, 16, Router(7, 3, 8), batch=2),
                                            Documents.packed([70, 99, 71], [130, 20, 90]))),
             Shape(batch=2, tokens=240, heads=4, kv_heads=1)),
    Scenario("csa/window", "A1 A2 A6", _even(240, 16, Router(8, 5, 8), Window(60)), Shape(tokens=240, head_dim=128)),
    Scenario("csa/padded", "A1 A4 A6 B3", _even(240, 16, Router(9, 3, 8), Padding((((40, 71), (220, 240)),))),
             Shape(tokens=240)),
    Scenario("csa/two-rows", "A1 A6",
             Mask((Causal(), Regions(((64, 64), (10, 30, 50, 38)), Router(10, 1, 4)))), Shape(batch=2, tokens=128)),
    Scenario("csa/padded-rows", "A1 A4 A6 A9 B3 B8",
             Mask((Causal(), Regions(((64, 64), (10, 30, 50, 38)), Router(13, 2, 4)),
                   Padding((((0, 21),), ((50, 60), (110, 128)))))),
             Shape(batch=2, tokens=128, heads=4, kv_heads=4, head_dim=1), inputs=Inputs(grads="qv")),
    Scenario("csa/long-rows", "A1 A6", _even(1026, 57, Router(16, top_k=3, share=8)), Shape(tokens=1026, head_dim=8),
             note="blocks of queries, and one query over"),
    Scenario("csa/unbind", "A6 A8 A9 B7", Mask((Regions.even(150, 16, Router(14, 2, 8)),)),
             Shape(tokens=150, heads=6, head_dim=8, value_dim=24), scale=0.5, inputs=Inputs(strides="unbind")),
    Scenario("csa/huge-packed", "A3 A4 A6 A9 B3 B5",
             Mask((Regions.even(150, 16, Router(15, 2, 8)), Documents((((1, 60), (0, 15), (2, 75)),)))),
             Shape(tokens=150, head_dim=136), inputs=Inputs(poison="huge")),
)
