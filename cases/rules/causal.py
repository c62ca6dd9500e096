"""A1: a query sees no later key."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cases import intervals
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
