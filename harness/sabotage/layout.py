"""Faults of the layout: who holds which tokens, said wrongly or forgotten inside."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.case import Case
from harness.implementation import Group, Step
from harness.sabotage.fault import Fault, FaultySession, Result, RingFault
from ringcp.layout import LAYOUTS, make_layout


class PositionTwice(Fault):
    """The layout holds position 0 twice and the last one not at all."""

    breaks = ("D1",)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        held = self.host.layout(case, world)
        return [torch.where(part == case.shape.tokens - 1, 0, part) for part in held]


class PositionBeyondRow(Fault):
    """The layout counts positions from 1."""

    breaks = ("D1",)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return [part + 1 for part in self.host.layout(case, world)]


class LayoutInInt32(Fault):
    breaks = ("D1",)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return [part.to(torch.int32) for part in self.host.layout(case, world)]


class LayoutOfAnotherWorld(Fault):
    """The layout is made for one rank more."""

    breaks = ("D1",)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return self.host.layout(case, world + 1)


class EverythingOnOneRank(Fault):
    """The first rank holds all tokens."""

    breaks = ("D1", "D9")

    def layout(self, case: Case, world: int) -> list[Tensor]:
        nothing = torch.arange(0)
        return [torch.arange(case.shape.tokens)] + [nothing] * (world - 1)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return q.new_zeros(*q.shape[:3], v.shape[3]), q.new_zeros(q.shape[:3])


class LayoutReversed(Fault):
    """Rank r is told what the rank as far from the end holds."""

    breaks = ("D1",)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        held = self.host.layout(case, world)
        even = len({part.shape[-1] for part in held}) == 1
        return held[::-1] if even else held


class Believed(Fault):
    """The ring computes as if its tokens were laid out as `believes` says."""

    breaks = ("D1",)
    believes = "contiguous"

    def open(self, case: Case, group: Group) -> FaultySession:
        session = super().open(case, group)
        believed = make_layout(self.believes, case.shape.tokens, group.size)
        held = self.host.layout(case, group.size)
        if [part.shape for part in believed.positions] == [part.shape for part in held]:
            session.inner.layout = replace(session.inner.layout, positions=believed.positions)
        return session


class AlwaysContiguous(Believed):
    pass


class AlwaysZigzag(Believed):
    believes = "zigzag"


class AlwaysStriped(Believed):
    believes = "striped"


class ZigzagSecondHalfBackward(Fault):
    """The second stretch of a zigzag is taken to run backward."""

    breaks = ("D1",)

    def open(self, case: Case, group: Group) -> FaultySession:
        session, size = super().open(case, group), group.size
        if case.layout == "zigzag":
            turned = tuple(torch.cat([part[:len(part) // 2], part[len(part) // 2:].flip(0)])
                           for part in LAYOUTS["zigzag"](case.shape.tokens, size))
            session.inner.layout = replace(session.inner.layout, positions=turned)
        return session


class StripesOfBlocks(Fault):
    """Stripes are taken to be two tokens wide."""

    breaks = ("D1",)

    def open(self, case: Case, group: Group) -> FaultySession:
        session, tokens, size = super().open(case, group), case.shape.tokens, group.size
        if case.layout == "striped" and tokens % (2 * size) == 0:
            pairs = torch.arange(tokens).view(-1, size, 2)
            session.inner.layout = replace(session.inner.layout,
                                           positions=tuple(pairs[:, rank].flatten() for rank in range(size)))
        return session


class LongerRanksCut(Fault):
    """What a rank holds beyond the shortest one's tokens is left out."""

    breaks = ("D1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out * self._kept(q, group)[:, None].to(out.dtype), lse

    def loaded(self, session, batch, group):
        self.shortest = min(part.shape[-1] for part in session.layout.positions)
        return super().loaded(session, batch, group)

    def _kept(self, q: Tensor, group: Group) -> Tensor:
        return torch.arange(q.shape[2], device=q.device) < self.shortest


class OrderIgnored(RingFault):
    """Keys of a layout that does not rise are used as they lie."""

    breaks = ("D1", "D2")
    part = "transfer._ordered"

    def instead(self, original, tensor, order):
        return tensor


class OwnGradientsUnordered(RingFault):
    """dK and dV of such a layout come back by position."""

    breaks = ("B4", "D2")
    part = "transfer.Returns._add_own"

    def instead(self, original, returns, grads, order):
        return original(returns, grads, torch.arange(order.shape[1]).expand_as(order))
