"""Faults of a ring that misreads what it was asked: mask, scale, metadata."""

from dataclasses import replace

from torch import Tensor

from cases.case import Case
from cases.mask import Mask
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault


def without(case: Case, rule: str) -> Case:
    return replace(case, mask=Mask(tuple(kept for kept in case.mask.rules if kept.name != rule)))


class ScaleIgnored(Fault):
    breaks = ("A9",)

    def misread(self, case: Case) -> Case:
        return replace(case, scale=None)


class CausalDropped(Fault):
    breaks = ("A1",)

    def misread(self, case: Case) -> Case:
        return without(case, "causal")


class WindowTooWide(Fault):
    breaks = ("A2",)
    change = 1

    def misread(self, case: Case) -> Case:
        rules = tuple(replace(rule, size=max(1, rule.size + self.change)) if rule.name == "window" else rule
                      for rule in case.mask.rules)
        return replace(case, mask=Mask(rules))


class WindowTooNarrow(WindowTooWide):
    change = -1


class WindowIgnored(Fault):
    breaks = ("A2",)

    def misread(self, case: Case) -> Case:
        return without(case, "window")


class DocumentsIgnored(Fault):
    breaks = ("A3", "A7")

    def misread(self, case: Case) -> Case:
        return without(case, "documents")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        return session.load(replace(batch, documents=None))


class PaddingIgnored(Fault):
    breaks = ("A4", "B3")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        return session.load(replace(batch, padding=None))


class MetadataByReference(Fault):
    """Reads the batch when a step runs, after its buffers were refilled."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        def late(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
            return session.load(batch)(q, k, v)

        return late


class MetadataModified(Fault):
    breaks = ("B7",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step = session.load(batch)
        for tensor in (batch.documents, batch.padding, batch.token_types):
            if tensor is not None:
                tensor.zero_()
        return step


FAULTS = (ScaleIgnored, CausalDropped, WindowTooWide, WindowTooNarrow, WindowIgnored, DocumentsIgnored, PaddingIgnored,
          MetadataByReference, MetadataModified)
