"""A2: a query sees only keys that are near."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cases import intervals
from cases.case import Inputs, Place, Scenario, Shape
from cases.mask import Mask
from cases.rows import Rows
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.rule import Rule


@dataclass(frozen=True)
class Window(Rule):
    """The `size` nearest keys on the left, the query's own among them; the right side is open.

    inclusive  one key more
    symmetric  abs(i - j) < size, in a mask without A1
    compacted  distance counts only unpadded tokens of the query's own document
    """

    size: int = 1
    name = "window"
    requirement = "A2"
    variants = ("inclusive", "symmetric", "compacted")

    def __post_init__(self):
        super().__post_init__()
        if self.size < 1:
            raise ValueError(f"window: size must be at least 1, got {self.size}")

    @property
    def stage(self) -> int:
        return 2

    def under(self, declared: frozenset[str], beside: frozenset[str] = frozenset()) -> Rule:
        return super().under(declared - {"window.symmetric"} if "causal" in beside else declared, beside)

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        if self.variant == "compacted":
            return j >= _compacted_start(rows, self.size)[:, i][:, None, :, None]
        distance = i[:, None] - j
        if self.variant == "symmetric":
            return distance.abs() < self.size
        return distance < self._reach

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        if self.variant == "compacted":
            start = _compacted_start(rows, self.size)[:, i][:, None]
        else:
            start = (i - self._reach + 1).clamp(min=0)
        end = (i + self.size).clamp(max=rows.tokens) if self.variant == "symmetric" else torch.tensor(rows.tokens)
        return intervals.single(start, end)

    @property
    def _reach(self) -> int:
        return self.size + (self.variant == "inclusive")

    def __str__(self) -> str:
        return f"{super().__str__()}({self.size})"


def _compacted_start(rows: Rows, size: int) -> Tensor:
    """`[B, S]`: the leftmost key of each query when only unpadded tokens of its own document are counted."""
    document = torch.zeros(rows.batch, rows.tokens, dtype=torch.int64) if rows.documents is None else rows.documents
    document = document.masked_fill(rows.padded, torch.iinfo(torch.int64).min)
    document, position = document.sort(dim=-1, stable=True)
    place = torch.arange(rows.tokens).expand_as(position)
    opens = torch.ones_like(document, dtype=torch.bool)
    opens[:, 1:] = document[:, 1:] != document[:, :-1]
    first = torch.where(opens, place, 0).cummax(-1).values
    start = position.gather(-1, torch.maximum(place - size + 1, first))
    return torch.empty_like(start).scatter_(-1, position, start)


def _near(extra: int, shards: int = 1, **options):
    """A causal window of some shards and `extra` tokens."""
    def mask(place: Place) -> Mask:
        return Mask((Causal(), Window(max(1, place.shard * shards + extra), **options)))

    return mask


def _compacted(place: Place) -> Mask:
    pattern = Mask((Documents((((1, 90), (2, 70), (1, 60), (0, 20)),)), Padding((((20, 50), (100, 120)),))))
    rules = pattern.stretched(240, place.tokens).rules
    return Mask((Causal(), *rules, Window(place.shard // 2 + 1, variant="compacted")))


INTERLEAVED = ((1, 40), (2, 33), (1, 30), (0, 7), (2, 40))
UNBROKEN = ((1, 90), (2, 60))
PACKED = Documents.packed([50, 21, 79])
LONG = Documents.packed([700, 3, 397])

CASES = (
    Scenario("sliding/one", "A1 A2", Mask((Causal(), Window(1)))),
    Scenario("sliding/two", "A1 A2", Mask((Causal(), Window(2))), Shape(tokens=129, heads=4, kv_heads=4)),
    Scenario("sliding/half-shard", "A1 A2", lambda place: Mask((Causal(), Window(max(1, place.shard // 2))))),
    Scenario("sliding/shard-minus-one", "A1 A2", _near(-1)),
    Scenario("sliding/shard", "A1 A2", _near(0), Shape(heads=8, kv_heads=2, head_dim=64)),
    Scenario("sliding/shard-plus-one", "A1 A2", _near(1), Shape(heads=4, kv_heads=1)),
    Scenario("sliding/shard-plus-two", "A1 A2", _near(2)),
    Scenario("sliding/two-shards-plus-one", "A1 A2", _near(1, shards=2), Shape(tokens=255, head_dim=80)),
    Scenario("sliding/beyond-row", "A1 A2", Mask((Causal(), Window((1 << 16) + 5))), Shape(tokens=256, head_dim=24)),
    Scenario("sliding/both-sides", "A2", Mask((Window(40),)), Shape(tokens=200)),
    Scenario("sliding/inclusive", "A1 A2", _near(0, variant="inclusive")),
    Scenario("sliding/inclusive-one", "A1 A2", Mask((Causal(), Window(1, variant="inclusive"))), Shape(tokens=131)),
    Scenario("sliding/symmetric", "A2", lambda place: Mask((Window(place.shard // 2 + 1, variant="symmetric"),)),
             Shape(tokens=190)),
    Scenario("sliding/compacted", "A1 A2 A3 A4 B3", _compacted, Shape(tokens=240, heads=4, kv_heads=1)),
    Scenario("sliding/compacted-full", "A2 A3 A4 A9 B3 B8",
             Mask((Window(20, variant="compacted"), Documents((INTERLEAVED, UNBROKEN)),
                   Padding((((20, 31),), ((60, 64), (140, 150)))))),
             Shape(batch=2, tokens=150, heads=3, kv_heads=3, head_dim=160), inputs=Inputs(grads="kv")),
    Scenario("sliding/packed-inclusive", "A1 A2 A3 A8 A9 B7", Mask((Causal(), Window(20, variant="inclusive"), PACKED)),
             Shape(tokens=150, heads=6), scale=0.3, inputs=Inputs(strides="transposed")),
    Scenario("sliding/packed-symmetric", "A2 A3 A8 B7", Mask((Window(20, variant="symmetric"), PACKED)),
             Shape(tokens=150, heads=6, head_dim=64, value_dim=32), inputs=Inputs(strides="unbind")),
    Scenario("sliding/long-rows", "A1 A2 A3 A8", Mask((Causal(), Window(300), LONG)),
             Shape(tokens=1100, heads=2, kv_heads=1, head_dim=16)),
)
