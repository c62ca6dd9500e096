"""Mask: a composition of rules with one predicate; area, load and intervals derive from it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cases import intervals
from cases.rows import Rows
from cases.rules.rule import Rule


@dataclass(frozen=True)
class Mask:
    """Who may attend whom. No rules means every query sees every key (SPEC A1 `full`)."""

    rules: tuple[Rule, ...] = ()

    def __post_init__(self):
        ordered = tuple(sorted(self.rules, key=lambda rule: (rule.stage, rule.name)))
        object.__setattr__(self, "rules", ordered)
        names = [rule.name for rule in ordered]
        if len(set(names)) < len(names):
            raise ValueError(f"a mask takes each rule once, got {', '.join(names)}")

    def under(self, declared: frozenset[str]) -> "Mask":
        """The mask as an implementation that follows these variants reads it."""
        names = frozenset(rule.name for rule in self.rules)
        return Mask(tuple(rule.under(declared, names) for rule in self.rules))

    def sliced(self, tokens: int) -> "Mask":
        """The mask of the leading `tokens` of every row."""
        return Mask(tuple(rule.sliced(tokens) for rule in self.rules))

    def stretched(self, tokens: int, to: int) -> "Mask":
        """The pattern of rows of `tokens` enlarged or shrunk to rows of `to` tokens."""
        return Mask(tuple(rule.stretched(tokens, to) for rule in self.rules))

    def rows(self, batch: int, tokens: int, groups: int) -> Rows:
        """Fresh whole-row metadata of this mask."""
        rows = Rows(batch, tokens, groups)
        for rule in self.rules:
            rows = rows.with_metadata(**rule.metadata(rows))
        return rows

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        """SPEC A7: i `[I]`, j `[J]` global positions -> bool `[B, G or 1, I, J]`."""
        allowed = torch.ones(rows.batch, 1, len(i), len(j), dtype=torch.bool)
        for rule in self.rules:
            own = rule.allowed(rows, i, j)
            allowed = allowed | own if rule.widens else allowed & own
        padded = rows.padded
        return allowed & ~padded[:, None, i, None] & ~padded[:, None, None, j]

    def keys(self, rows: Rows, i: Tensor) -> Tensor:
        """The same as sorted disjoint key intervals: i `[I]` -> int64 `[B, G or 1, I, K, 2]`."""
        every = torch.tensor([0, rows.tokens])
        keys = every.expand(rows.batch, 1, len(i), 1, 2)
        for rule in self.rules:
            own = rule.keys(rows, i)
            keys = intervals.union(keys, own) if rule.widens else intervals.intersect(keys, own)
        live = intervals.from_bool(~rows.padded)[:, None, None]
        keys = intervals.intersect(keys, live)
        return keys * ~rows.padded[:, None, i, None, None]

    def documents(self, rows: Rows) -> Tensor | None:
        """`[B, S]`: equal where two tokens of a row are of one document; None without documents."""
        return next((rule.numbers(rows) for rule in self.rules if rule.name == "documents"), None)

    def __str__(self) -> str:
        return " & ".join(map(str, self.rules)) or "full"
