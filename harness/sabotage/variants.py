"""Faults of variants and of sizes: what a reading of a rule, a fourth row or an unusual width meets for the first time
in a model."""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.state import memory


class FirstBatchAgain(Fault):
    """Where the rule has the variant, the part of the metadata that the first batch had is kept for later ones."""

    breaks = ("D3",)
    rule: ClassVar[str]
    variant: ClassVar[str]
    part: ClassVar[str]

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        asked = any((rule.name, rule.variant) == (self.rule, self.variant) for rule in session.case.mask.rules)
        own = getattr(batch, self.part)
        if not asked or own is None:
            return session.load(batch)
        return session.load(replace(batch, **{self.part: memory(session).setdefault(self.part, own.clone())}))


class RunsOfFirstBatch(FirstBatchAgain):
    rule, variant, part = "documents", "runs", "documents"


class CompactedByFirstPadding(FirstBatchAgain):
    rule, variant, part = "window", "compacted", "padding"


class BoundedImagesOfFirstBatch(FirstBatchAgain):
    rule, variant, part = "vision", "bounded", "token_types"


class OverlaidImagesOfFirstBatch(FirstBatchAgain):
    rule, variant, part = "vision", "overlay", "token_types"


class FourthRowLikeThird(Fault):
    """Rows beyond the third have its metadata."""

    breaks = ("B1",)
    parts: ClassVar[tuple[str, ...]] = ("documents", "padding", "token_types")

    def metadata(self, batch: Rows) -> Rows:
        return replace(batch, **{part: self._third(getattr(batch, part)) for part in self.parts})

    def _third(self, x: Tensor | None) -> Tensor | None:
        return x if x is None or len(x) < 4 else torch.cat((x[:3], x[2:3].expand(len(x) - 3, -1)))


class SixteenHeadsAtMost(Fault):
    """Heads beyond the sixteenth are not computed."""

    breaks = ("A8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return out * (torch.arange(out.shape[1], device=out.device) < 16)[:, None, None], lse


class WidthRoundedDown(Fault):
    """Widths between two powers of two, 96 and 192, are computed as the lower one."""

    breaks = ("A8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        width = q.shape[-1]
        low = torch.arange(width, device=q.device) < {96: 64, 192: 128}.get(width, width)
        return step(q * low, k, v)


class SteepScaleClipped(Fault):
    """Scales beyond 4 are taken for a mistake."""

    breaks = ("A9",)

    def misread(self, case: Case) -> Case:
        return replace(case, scale=4.0) if (case.scale or 0) > 4 else case
