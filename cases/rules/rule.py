"""Rule: what one file of this folder adds to a mask."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from cases import intervals
from cases.rows import Rows


@dataclass(frozen=True)
class Rule:
    """One rule of SPEC A. Subclasses are frozen dataclasses of plain values (ints, strings, nested tuples).

    A mask starts from "every key" and applies its rules by rising `stage`: a rule that `widens` adds its
    pairs to what came before it, any other keeps only its own pairs (SPEC A7 is exactly this order).
    `refused` rules have no true answer: whoever is asked must refuse (SPEC D7).
    `variant` None follows whatever the implementation declares; a name pins the variant for this case.
    """

    name: ClassVar[str]
    requirement: ClassVar[str]
    variants: ClassVar[tuple[str, ...]] = ()
    refused: ClassVar[bool] = False
    variant: str | None = field(default=None, kw_only=True)

    def __post_init__(self):
        if self.variant is not None and self.variant not in self.variants:
            known = f"its variants are {', '.join(self.variants)}" if self.variants else "it has no variants"
            raise ValueError(f"rule {self.name} has no variant {self.variant!r}: {known}")

    @property
    def stage(self) -> int:
        return 4

    @property
    def widens(self) -> bool:
        return False

    def under(self, declared: frozenset[str], beside: frozenset[str] = frozenset()) -> "Rule":
        """This rule as an implementation that declares `declared` ("window.inclusive", ...) reads it.

        `beside` names the rules of the same mask: some variants hold only with or without another rule.
        """
        follows = [name for name in self.variants if f"{self.name}.{name}" in declared]
        return replace(self, variant=follows[0]) if self.variant is None and follows else self

    def metadata(self, rows: Rows) -> dict[str, Tensor | int]:
        """Whole-row tensors that an implementation needs to follow this rule; names are fields of Rows.

        Raises ValueError when the rule's description does not fit the rows.
        """
        return {}

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        """Whether query i may see key j as far as this rule goes.

        i `[I]`, j `[J]` global positions -> bool that broadcasts to `[B, G, I, J]`.
        """
        raise NotImplementedError

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        """The same as key intervals, i `[I]` -> int64 that broadcasts to `[B, G, I, K, 2]`.

        The default reads them off `allowed`, which costs O(I * S); built-in rules know them in closed form.
        """
        allowed = self.allowed(rows, i, torch.arange(rows.tokens))
        return intervals.from_bool(allowed.expand(*allowed.shape[:-1], rows.tokens))

    def sliced(self, tokens: int) -> "Rule":
        """The rule for the leading `tokens` of its rows."""
        return self

    def stretched(self, tokens: int, to: int) -> "Rule":
        """The rule for rows of `to` tokens, its pattern enlarged or shrunk in proportion from `tokens`."""
        return self

    def another(self, tokens: int, number: int) -> "Rule":
        """The rule with the metadata of the number-th later batch: other values in tensors of the same shapes."""
        return self

    def __str__(self) -> str:
        return self.name if self.variant is None else f"{self.name}.{self.variant}"
