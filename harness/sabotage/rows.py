"""Faults of batch rows: the first one's metadata stand for all, in some masks alone."""

from dataclasses import replace

from torch import Tensor

from cases.mask import Mask as CaseMask
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault


class OfFirstRow(Fault):
    """`names` are read from the first row in masks for which `concerns` holds."""

    names: tuple[str, ...]

    def concerns(self, mask: CaseMask) -> bool:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        if self.concerns(session.case.mask):
            batch = replace(batch, **{name: first(getattr(batch, name)) for name in self.names})
        return session.load(batch)


class RunsOfFirstRow(OfFirstRow):
    breaks = ("A3",)
    names = ("documents",)

    def concerns(self, mask: CaseMask) -> bool:
        return has(mask, "documents", "runs")


class BoundedImagesOfFirstRow(OfFirstRow):
    breaks = ("A5",)
    names = ("token_types",)

    def concerns(self, mask: CaseMask) -> bool:
        return has(mask, "vision", "bounded")


class CompactedWindowOfFirstRow(OfFirstRow):
    """The distances of a compacted window are counted in the first row."""

    breaks = ("A2",)
    names = ("documents", "padding")

    def concerns(self, mask: CaseMask) -> bool:
        return has(mask, "window", "compacted")


class DocumentsOfFirstRowBesideRegions(OfFirstRow):
    breaks = ("A3", "A7")
    names = ("documents",)

    def concerns(self, mask: CaseMask) -> bool:
        return has(mask, "regions")


class PaddingOfFirstRowWithoutCausal(OfFirstRow):
    breaks = ("A4",)
    names = ("padding",)

    def concerns(self, mask: CaseMask) -> bool:
        return not has(mask, "causal")


class DocumentsOfFirstRowWithoutCausal(OfFirstRow):
    breaks = ("A3",)
    names = ("documents",)

    def concerns(self, mask: CaseMask) -> bool:
        return not has(mask, "causal")


def has(mask: CaseMask, rule: str, variant: str | None = None) -> bool:
    return any(own.name == rule and variant in (None, own.variant) for own in mask.rules)


def first(x: Tensor | None) -> Tensor | None:
    return None if x is None else x[:1].expand_as(x)
