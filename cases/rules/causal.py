"""A1: a query sees no later key."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cases import intervals
from cases.case import Scenario, Shape
from cases.mask import Mask
from cases.rows import Rows
from cases.rules.rule import Rule


@dataclass(frozen=True)
class Causal(Rule):
    name = "causal"
    requirement = "A1"

    @property
    def stage(self) -> int:
        return 0

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        return j <= i[:, None]

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        return intervals.single(torch.zeros_like(i), i + 1)


CAUSAL, FULL = Mask((Causal(),)), Mask()

CASES = (
    Scenario("causal/even", "A1", CAUSAL),
    Scenario("causal/odd", "A1", CAUSAL, Shape(tokens=193, heads=4, kv_heads=4, head_dim=64)),
    Scenario("causal/short", "A1", CAUSAL, Shape(tokens=7)),
    Scenario("causal/two-rows", "A1", CAUSAL, Shape(batch=2, tokens=160, heads=8, kv_heads=2)),
    Scenario("causal/long", "A1", CAUSAL, Shape(tokens=512)),
    Scenario("causal/full", "", FULL, Shape(tokens=160)),
    Scenario("causal/full-odd", "", FULL, Shape(batch=2, tokens=101, heads=4, kv_heads=1, head_dim=80)),
)
