"""A5: tokens of one image or video see each other in both directions."""

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
from cases.runs import Runs


@dataclass(frozen=True)
class Vision(Rule):
    """Token types as (type, length) runs per batch row: 0 text, 1 and 2 vision; a group is a maximal vision run.

    overlay  E = (A1 and A2) or same group; what variant None means
    bounded  E = A2 and (A1 or same group)
    none     no vision edges; an implementation that declares it has none in masks without a window
    """

    types: tuple[Runs, ...] = ()
    name = "vision"
    requirement = "A5"
    variants = ("overlay", "bounded", "none")

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "types", runs.frozen(self.types))
        wrong = [value for row in self.types for value, _ in row if value not in (0, 1, 2)]
        if wrong:
            raise ValueError(f"vision: token types are 0, 1 and 2, got {wrong[0]}")

    @property
    def stage(self) -> int:
        return {None: 3, "overlay": 3, "bounded": 1, "none": 4}[self.variant]

    @property
    def widens(self) -> bool:
        return self.variant != "none"

    def under(self, declared: frozenset[str], beside: frozenset[str] = frozenset()) -> Rule:
        if self.variant is None and "vision.none" in declared and "window" not in beside:
            return replace(self, variant="none")
        return super().under(declared - {"vision.none"}, beside)

    def metadata(self, rows: Rows) -> dict[str, Tensor | int]:
        return {"token_types": runs.tensor("token types", self.types, rows)}

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        if not self.widens:
            return torch.ones(1, 1, dtype=torch.bool)
        start, end = (edge[:, i][:, None, :, None] for edge in _group_edges(rows.token_types))
        return (start <= j) & (j < end)

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        if not self.widens:
            return intervals.single(torch.tensor(0), torch.tensor(rows.tokens))
        start, end = (edge[:, i][:, None] for edge in _group_edges(rows.token_types))
        return intervals.single(start, end)

    def sliced(self, tokens: int) -> "Vision":
        return replace(self, types=tuple(runs.cut_runs(row, tokens) for row in self.types))

    def stretched(self, tokens: int, to: int) -> "Vision":
        return replace(self, types=tuple(runs.stretch_runs(row, tokens, to) for row in self.types))

    def another(self, tokens: int, number: int) -> "Vision":
        """The images elsewhere; rows of text alone get one."""
        if not any(value for row in self.types for value, _ in row):
            image = ((0, tokens // 4), (1, tokens - tokens // 4 - tokens // 5), (0, tokens // 5))
            return replace(self, types=tuple(image for _ in self.types))
        return replace(self, types=tuple(runs.rolled(row, tokens, number) for row in self.types))


def _group_edges(types: Tensor) -> tuple[Tensor, Tensor]:
    """`[B, S]` token types -> first position of each token's group and the one behind it; text gets 0, 0."""
    vision = (types == 1) | (types == 2)
    position = torch.arange(types.shape[-1]).expand_as(types)
    start = torch.where(vision, -1, position).cummax(-1).values + 1
    end = torch.where(vision, types.shape[-1], position).flip(-1).cummin(-1).values.flip(-1)
    return start * vision, end * vision


def _causal(*types: Runs, variant: str | None = None, window: int | None = None) -> Mask:
    return Mask((Causal(), Vision(types, variant=variant)) + ((Window(window),) if window else ()))


def _straddle(reach: float, window: float | None = None, variant: str | None = None):
    """A group of `reach` shards around every second shard edge; a window in shards."""
    def mask(place: Place) -> Mask:
        half = max(1, int(place.shard * reach / 2))
        types = [0] * place.tokens
        for edge in range(place.shard, place.tokens + 1, 2 * place.shard):
            for position in range(max(0, edge - half), min(place.tokens, edge + half)):
                types[position] = 1
        return _causal(runs.of(types), variant=variant, window=max(1, int(place.shard * window)) if window else None)

    return mask


IMAGES = ((0, 20), (1, 45), (0, 30), (1, 60), (2, 25), (0, 60))
APART = ((1, 50), (2, 60), (1, 70), (0, 12), (2, 48))
ENDS = ((1, 40), (0, 120), (2, 40))

CASES = (
    Scenario("vision/images", "A1 A5", _causal(IMAGES), Shape(tokens=240)),
    Scenario("vision/straddle", "A1 A5", _straddle(0.5), Shape(heads=8, kv_heads=2, head_dim=64)),
    Scenario("vision/three-ranks", "A1 A5", _straddle(1.6), Shape(heads=4, kv_heads=1)),
    Scenario("vision/first-and-last", "A1 A5", _causal(ENDS), Shape(tokens=200)),
    Scenario("vision/all", "A5", _causal(((1, 97),)), Shape(tokens=97)),
    Scenario("vision/many", "A1 A5", _causal(((0, 3), (1, 4), (0, 1), (2, 5)) * 9), Shape(tokens=117)),
    Scenario("vision/touching", "A1 A5", _causal(((0, 31), (1, 20), (1, 30), (2, 15), (0, 32))), Shape(tokens=128)),
    Scenario("vision/nearly-touching", "A1 A5", _causal(((0, 31), (1, 40), (0, 1), (1, 32), (0, 24))),
             Shape(tokens=128, heads=4, kv_heads=4)),
    Scenario("vision/across-documents", "A1 A3 A5",
             Mask((Causal(), Vision((IMAGES,)), Documents.packed([50, 80, 110]))), Shape(tokens=240, head_dim=80)),
    Scenario("vision/across-one-document", "A1 A3 A5",
             Mask((Causal(), Vision((IMAGES,)), Documents((((1, 100), (2, 40), (1, 100)),)))), Shape(tokens=240)),
    Scenario("vision/padded-inside", "A1 A4 A5 B3",
             Mask((Causal(), Vision((IMAGES,)), Padding((((30, 40), (150, 200)),)))), Shape(tokens=240)),
    Scenario("vision/window", "A1 A2 A5", _causal(IMAGES, window=50), Shape(tokens=240)),
    Scenario("vision/longer-than-window", "A1 A2 A5", _causal(IMAGES, window=16), Shape(tokens=240, head_dim=128)),
    Scenario("vision/first-longer-than-window", "A1 A2 A5", _causal(ENDS, window=16), Shape(tokens=200)),
    Scenario("vision/straddle-window", "A1 A2 A5", _straddle(0.8, window=0.25)),
    Scenario("vision/overlay", "A1 A2 A5", _causal(IMAGES, variant="overlay", window=24), Shape(tokens=240)),
    Scenario("vision/bounded", "A1 A2 A5", _causal(IMAGES, APART, variant="bounded", window=24),
             Shape(batch=2, tokens=240)),
    Scenario("vision/bounded-straddle", "A1 A2 A5", _straddle(1.6, window=0.4, variant="bounded"),
             Shape(heads=8, kv_heads=2)),
    Scenario("vision/none", "A1 A5", _causal(IMAGES, variant="none"), Shape(tokens=240)),
    Scenario("vision/none-packed", "A1 A2 A3 A4 A5 B3",
             Mask((Causal(), Vision((IMAGES,), variant="none"), Window(40), Documents((APART,)))),
             Shape(tokens=240, heads=4, kv_heads=1, head_dim=256)),
    Scenario("vision/runs", "A1 A3 A4 A5 A8 B3 B7",
             Mask((Causal(), Vision((IMAGES,)), Documents((APART,), variant="runs"), Padding((((70, 80),),)))),
             Shape(tokens=240, heads=6, head_dim=128, value_dim=64), inputs=Inputs("expanded-keys")),
    Scenario("vision/compacted", "A1 A2 A3 A4 A5 A9 B3",
             Mask((Causal(), Vision((IMAGES,), variant="overlay"), Window(24, variant="compacted"), Documents((APART,)),
                   Padding((((70, 80),),)))), Shape(tokens=240, heads=8, head_dim=8), scale=-0.4),
    Scenario("vision/two-rows", "A1 A5", _causal(((0, 9), (1, 50), (0, 69)), ((1, 30), (0, 60), (2, 38))),
             Shape(batch=2, tokens=128, head_dim=24)),
)
