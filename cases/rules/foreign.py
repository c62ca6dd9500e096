"""What is not yet a rule (SPEC A): an implementation has to refuse it on every rank, never to ignore it (SPEC D7)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cases import intervals
from cases.rows import Rows
from cases.rules.rule import Rule


@dataclass(frozen=True)
class Foreign(Rule):
    """Forbids no pair, changes the arithmetic: there is no true answer."""

    name = "foreign"
    requirement = "D7"
    refused = True

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones(1, 1, dtype=torch.bool)

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        return intervals.single(torch.tensor(0), torch.tensor(rows.tokens))


@dataclass(frozen=True)
class Dropout(Foreign):
    """Weights are dropped with this probability."""

    probability: float = 0.1
    name = "dropout"


@dataclass(frozen=True)
class Softcap(Foreign):
    """Scores are bent into -cap..cap by a hyperbolic tangent."""

    cap: float = 30.0
    name = "softcap"
