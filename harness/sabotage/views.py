"""Faults of the mask inside the ring: who sees whom is changed rank by rank, alike on all ranks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cases import intervals
from harness.sabotage.copies import Copy
from harness.sabotage.fault import RingFault
from ringcp.mask import Mask


@dataclass(frozen=True, eq=False)
class View:
    """What the queries of one rank may see. B rows, G key/value heads that the mask tells apart, L queries, S keys.

    allowed  [B, G, L, S] as it should be
    query    [B, 1, L, 1] positions of the queries, -1 for fillers
    key      [S] positions of all keys
    owner    [B, 1, 1, S] rank that holds each key
    slot     [B, 1, 1, S] where its owner holds it, counted by position
    """

    mask: Mask
    rank: int
    world: int
    allowed: Tensor
    query: Tensor
    key: Tensor
    owner: Tensor
    slot: Tensor
    reading: Callable[[Mask], Tensor]

    @property
    def own(self) -> Tensor:
        """Keys of this rank."""
        return self.owner == self.rank

    @property
    def distance(self) -> Tensor:
        """In which hop each key comes."""
        return (self.rank - self.owner) % self.world

    @property
    def query_slot(self) -> Tensor:
        """[1, 1, L, 1]"""
        return torch.arange(self.query.shape[2])[None, None, :, None]

    def under(self, **changes: Any) -> Tensor:
        """`allowed` of another mask."""
        return self.reading(replace(self.mask, **changes))

    def of_query(self, values: Tensor) -> Tensor:
        """[B, S] values of tokens -> [B, 1, L, 1] of the queries."""
        return values.gather(1, self.query.clamp(min=0).flatten(1))[:, None, :, None]

    @staticmethod
    def of_key(values: Tensor) -> Tensor:
        """[B, S] values of tokens -> [B, 1, 1, S]."""
        return values[:, None, None]


class MaskFault(RingFault):
    """Subclasses say in `pairs` who sees whom instead, `[B, G, L, S]` bool."""

    def bend(self, copy: Copy) -> None:
        copy.replace("plan.spans", lambda original, mask: (mask, original))
        copy.replace("plan._at", self.instead)

    def pairs(self, view: View) -> Tensor:
        raise NotImplementedError

    def instead(self, original: Callable, read: tuple[Mask, Callable], held: list[Tensor]) -> list[Tensor]:
        mask, spans = read

        def allowed(rank: int) -> Callable[[Mask], Tensor]:
            return lambda other: seen(original(spans(other), held)[rank], mask.tokens)

        owner, slot = holders(held, mask.tokens)
        bent = []
        for rank, positions in enumerate(held):
            query = positions[:, None, :, None]
            view = View(mask, rank, len(held), allowed(rank)(mask), query, torch.arange(mask.tokens),
                        owner[:, None, None], slot[:, None, None], allowed(rank))
            bent.append(intervals.from_bool(self.pairs(view).expand(view.allowed.shape) & (query >= 0)))
        return bent


def seen(spans: Tensor, tokens: int) -> Tensor:
    """Key spans `[B, G, L, K, 2]` -> `[B, G, L, S]`."""
    return intervals.contains(spans, torch.arange(tokens))


def holders(held: list[Tensor], tokens: int) -> tuple[Tensor, Tensor]:
    """Rank and slot of every token, `[B, S]` each."""
    owner = torch.zeros(len(held[0]), tokens, dtype=torch.int64)
    slot = torch.zeros_like(owner)
    for rank, positions in enumerate(held):
        row, column = (positions >= 0).nonzero(as_tuple=True)
        owner[row, positions[row, column]] = rank
        slot[row, positions[row, column]] = column
    return owner, slot


class BackwardMaskFault(RingFault):
    """The backward follows `other` mask than the forward."""

    def bend(self, copy: Copy) -> None:
        copy.replace("attention.make_plan", self._plan)
        copy.replace("attention.Ring.backward", self._backward)

    def other(self, mask: Mask) -> Mask:
        raise NotImplementedError

    def _plan(self, original: Callable, mask: Mask, *place: Any) -> Any:
        plan = original(mask, *place)
        object.__setattr__(plan, "in_backward", original(self.other(mask), *place))
        return plan

    @staticmethod
    def _backward(original: Callable, ring: Any, *tensors: Any) -> Any:
        return original(replace(ring, plan=ring.plan.in_backward), *tensors)
