"""Faults of selections: what a kernel for regions forgets of the rules beside them, on one path of many."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.window import without


class Forgetful(Fault):
    """Batches with regions that take the path lose what `lost` takes away."""

    breaks = ("A6",)

    def takes(self, case: Case) -> bool:
        raise NotImplementedError

    def lost(self, batch: Rows) -> Rows:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        takes = batch.selected is not None and self.takes(session.case)
        return session.load(self.lost(batch) if takes else batch)


class HalfSelectsEverything(Forgetful):
    """fp16 goes another way, which knows no regions."""

    def takes(self, case: Case) -> bool:
        return case.dtype == "fp16"

    def lost(self, batch: Rows) -> Rows:
        return replace(batch, selected=None, token_regions=None, regions=0)


class WindowLostInRecompute(Fault):
    breaks = ("A2", "A6", "D4")

    def misread(self, case: Case) -> Case:
        takes = case.course.recomputes and any(rule.name == "regions" for rule in case.mask.rules)
        return without(case, "window") if takes else case


class Documentless(Forgetful):
    def lost(self, batch: Rows) -> Rows:
        return replace(batch, documents=None if batch.documents is None else batch.documents.clamp(max=1))


class DocumentsLostForOneGradient(Documentless):
    """Where only one of q, k and v needs a gradient."""

    breaks = ("A3", "A6", "B8")

    def takes(self, case: Case) -> bool:
        return len(case.inputs.grads) == 1


class DocumentsLostForWideHeads(Documentless):
    breaks = ("A3", "A6", "A8")

    def takes(self, case: Case) -> bool:
        return case.shape.head_dim > 256


class PaddingLostForOddWidths(Forgetful):
    breaks = ("A4", "A6", "A8")

    def takes(self, case: Case) -> bool:
        return case.shape.v_dim % 8 != 0

    def lost(self, batch: Rows) -> Rows:
        return replace(batch, padding=None if batch.padding is None else torch.zeros_like(batch.padding))


class ScaleLostBesideRegions(Fault):
    """Scores of selected keys have the usual scale."""

    breaks = ("A6", "A9")

    def misread(self, case: Case) -> Case:
        regions = any(rule.name == "regions" for rule in case.mask.rules)
        return replace(case, scale=None) if regions and case.scale else case


class SelectionPeeksAcrossDocuments(Fault):
    """Without gradients the selection alone decides."""

    breaks = ("A3", "A6", "D3")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step = session.load(batch)
        if batch.selected is None or batch.documents is None:
            return step
        other = session.load(replace(batch, documents=torch.ones_like(batch.documents)))

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            return (step if torch.is_grad_enabled() else other)(q, k, v)

        return forward
