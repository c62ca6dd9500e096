"""Faults of paths: what a kernel for a dtype, a width, a frozen input or a variant forgets of the rules."""

import math
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from cases.case import Case
from cases.mask import Mask
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.gradients import Changed
from harness.sabotage.scale import Scale
from harness.sabotage.window import without


class Windowless(Fault):
    """Cases that take the path lose the window."""

    breaks = ("A2",)

    def takes(self, case: Case) -> bool:
        raise NotImplementedError

    def misread(self, case: Case) -> Case:
        return without(case, "window") if self.takes(case) else case


class HalfWithoutWindow(Windowless):
    def takes(self, case: Case) -> bool:
        return case.dtype == "fp16"


class WidestHeadsWithoutWindow(Windowless):
    """Head dimensions above 256 have a kernel of their own."""

    def takes(self, case: Case) -> bool:
        return case.shape.head_dim > 256


class NarrowValuesWithoutWindow(Windowless):
    """As those of latent attention."""

    def takes(self, case: Case) -> bool:
        return case.shape.v_dim < case.shape.head_dim


class Read(Fault):
    """Cases that take the path read `rule` in the variant `said` where they ask for `known`."""

    rule: ClassVar[str]
    known: ClassVar[str | None] = None
    said: ClassVar[str | None] = None

    def takes(self, case: Case) -> bool:
        raise NotImplementedError

    def misread(self, case: Case) -> Case:
        if not self.takes(case):
            return case
        rules = (replace(rule, variant=self.said) if (rule.name, rule.variant) == (self.rule, self.known) else rule
                 for rule in case.mask.rules)
        return replace(case, mask=Mask(tuple(rules)))


def _has(case: Case, name: str) -> bool:
    return any(rule.name == name for rule in case.mask.rules)


class CompactedOnlyWithDocuments(Read):
    breaks, rule, known = ("A2",), "window", "compacted"

    def takes(self, case: Case) -> bool:
        return not _has(case, "documents")


class CompactedOnlyWithPadding(Read):
    breaks, rule, known = ("A2",), "window", "compacted"

    def takes(self, case: Case) -> bool:
        return not _has(case, "padding")


class InclusiveNotBesideImages(Read):
    breaks, rule, known = ("A2",), "window", "inclusive"

    def takes(self, case: Case) -> bool:
        return _has(case, "vision") and _has(case, "causal")


class BoundedNotForOneKeyHead(Read):
    breaks, rule, known, said = ("A5", "A8"), "vision", "bounded", "overlay"

    def takes(self, case: Case) -> bool:
        return case.shape.kv_heads == 1 < case.shape.heads


class Imageless(Read):
    """Cases that take the path lose their images."""

    breaks, rule, said = ("A5",), "vision", "none"


class WideValuesWithoutImages(Imageless):
    def takes(self, case: Case) -> bool:
        return case.shape.v_dim > case.shape.head_dim


class FrozenQueriesWithoutImages(Imageless):
    breaks = ("A5", "B8")

    def takes(self, case: Case) -> bool:
        return "q" not in case.inputs.grads


class SelectionWithoutImages(Imageless):
    breaks = ("A5", "A6")

    def takes(self, case: Case) -> bool:
        return _has(case, "regions") and not _has(case, "documents")


class ImagesOfFirstRowInOverlay(Fault):
    """Under `vision.overlay` the first row's token types stand for every row."""

    breaks = ("A5",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        overlay = any(rule.name == "vision" and rule.variant == "overlay" for rule in session.case.mask.rules)
        types = batch.token_types
        return session.load(replace(batch, token_types=types[:1].expand_as(types).clone()) if overlay else batch)


class PackedScaleIgnored(Scale):
    """The call for packed causal rows is not handed the scale."""

    def scale(self, case: Case) -> float | None:
        return None if {rule.name for rule in case.mask.rules} == {"causal", "documents"} else case.scale


class ScaleOneReadAsNone(Scale):
    def scale(self, case: Case) -> float | None:
        return None if case.scale in (1.0, -1.0) else case.scale


class DefaultScale(Fault):
    """The scale is lost in some calls."""

    breaks = ("A9",)

    def loses(self) -> bool:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, case = session.load(batch), session.case
        ratio = case.shape.head_dim ** -0.5 / case.scale if case.scale else 1.0
        return lambda q, k, v: step(q * ratio if self.loses() else q, k, v)


class ScaleLostWithoutGrad(DefaultScale):
    """Inference has a path of its own."""

    def loses(self) -> bool:
        return not torch.is_grad_enabled()


class ScaleLostInRecompute(DefaultScale):
    """Keyword arguments are not handed on when a checkpoint runs the step again."""

    breaks = ("A9", "D4")

    def loses(self) -> bool:
        return torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1


class InfinityNotCleaned(Fault):
    """NaN is cleaned out of unseen tokens, infinity is not."""

    breaks = ("B5",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return (out * math.nan if k.numel() and bool(k.isinf().any()) else out), lse


class MaximumFromZero(Fault):
    """The running maximum starts at 0: rows whose scores are all far below it sum to nothing."""

    breaks = ("B1", "B2")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        lost = lse < (-745.0 if q.dtype == torch.float64 else -103.0)
        return out.masked_fill(lost[..., None], 0), lse.masked_fill(lost, -torch.inf)


class DimensionsBeyondEightsLost(Fault):
    """A head_dim that is no multiple of 8 loses its rest."""

    breaks = ("B1",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        width = q.shape[-1] // 8 * 8 or q.shape[-1]
        return step(q * (torch.arange(q.shape[-1]) < width), k, v)


class ArrivalsLostWithoutLoss(Fault):
    """A rank whose dout is 0 everywhere takes its key gradients for 0, and loses what others sent it."""

    breaks = ("B4", "D6")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        lossless = []

        def seen(grad: Tensor) -> Tensor:
            lossless.append(grad.numel() > 0 and not bool(grad.any()))
            return grad

        def kept(grad: Tensor) -> Tensor:
            return grad * 0 if any(lossless) else grad

        out, lse = step(q, Changed.apply(k, kept), Changed.apply(v, kept))
        return Changed.apply(out, seen), lse
