"""Faults of groups inside a larger world, and of what has to be refused."""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from cases.case import Case
from cases.mask import Mask
from cases.rows import Rows
from harness.implementation import Group, Session, Setting, Step
from harness.sabotage.fault import Fault, FaultySession, Result
from harness.sabotage.gradients import scaled


def world_of(group: Group) -> int:
    """Ranks of the whole world."""
    return dist.get_world_size() if group.process_group is not None else max(group.ranks) + 1


class GlobalRankTakenForGroupRank(Fault):
    """A rank takes the chunk of its global rank, modulo the group's size."""

    breaks = ("D2",)

    def open(self, case: Case, group: Group) -> FaultySession:
        session = super().open(case, group)
        held = session.inner.layout.positions
        lengths = {part.shape[-1] for part in held}
        if len(lengths) == 1:
            believed = tuple(held[rank % group.size] for rank in group.ranks)
            session.inner.layout = replace(session.inner.layout, positions=believed)
        return session


class WorldTakenForGroup(Fault):
    """Gradients are averaged over the whole world after a sum over the group."""

    breaks = ("D2", "B4")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        factor = group.size / world_of(group)
        return step(q, scaled(k, factor), scaled(v, factor))


class OnlyTheFirstGroup(Fault):
    """Groups without global rank 0 return nothing."""

    breaks = ("D2",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out * (1.0 if 0 in group.ranks else 0.0), lse


class StridedGroupsTakenForNeighbours(Fault):
    """The ranks of a group are taken to follow each other from its first one on."""

    breaks = ("D2",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        neighbours = tuple(range(group.ranks[0], group.ranks[0] + group.size))
        return out * (1.0 if group.ranks == neighbours else 0.5), lse


class ChunksTakenInRankOrder(Fault):
    """Rank r is taken to hold chunk r, whoever holds it."""

    breaks = ("D2", "D1")

    def open(self, case: Case, group: Group) -> FaultySession:
        session = super().open(case, group)
        ranked = self.host.layout(replace(case, topology=type(case.topology)()), group.size)
        if len({part.shape[-1] for part in ranked}) == 1:
            session.inner.layout = replace(session.inner.layout, positions=tuple(ranked))
        return session


def spoken() -> None:
    """A collective of all ranks that there are; threads have none."""
    if dist.is_initialized():
        dist.all_reduce(torch.zeros(4))


class RefusesAfterCollective(Fault):
    """Ranks agree among themselves on whether to refuse."""

    breaks = ("D7",)

    def refuses(self, case: Case, setting: Setting) -> str | None:
        spoken()
        return super().refuses(case, setting)


class LayoutAfterCollective(Fault):
    breaks = ("D7",)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        spoken()
        return super().layout(case, world)


class UnknownRulesIgnored(Fault):
    """What is not supported is left out without a word."""

    breaks = ("D7",)

    def refuses(self, case: Case, setting: Setting) -> str | None:
        return super().refuses(known(case), setting)

    def misread(self, case: Case) -> Case:
        return known(case)


class DropoutIgnored(Fault):
    breaks = ("D7",)

    def refuses(self, case: Case, setting: Setting) -> str | None:
        return super().refuses(known(case, ("dropout",)), setting)

    def misread(self, case: Case) -> Case:
        return known(case, ("dropout",))


def known(case: Case, names: tuple[str, ...] = ()) -> Case:
    """The case without the rules that must be refused, or without those of these names."""
    kept = tuple(rule for rule in case.mask.rules if not (rule.name in names if names else rule.refused))
    return replace(case, mask=Mask(kept))


class ImagesByGlobalRank(Fault):
    """With images or regions, ranks whose number in the group is not that in the world halve their output."""

    breaks = ("D2",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, moved = session.load(batch), group.ranks[group.rank] != group.rank
        plain = batch.token_types is None and batch.selected is None

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            return (out * 0.5 if moved and not plain else out), lse

        return forward
