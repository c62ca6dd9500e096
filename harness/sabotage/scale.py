"""Faults of the scale: which number multiplies q.k."""

from dataclasses import replace

import torch

from cases.case import Case
from harness.sabotage.fault import Fault


class Scale(Fault):
    """`scale` is used instead of the case's own; None means the default."""

    breaks = ("A9",)

    def scale(self, case: Case) -> float | None:
        return case.scale

    def misread(self, case: Case) -> Case:
        return replace(case, scale=self.scale(case))


class ScaleIgnored(Scale):
    def scale(self, case: Case) -> float | None:
        return None


class ScaleMissing(Scale):
    """Scores are not scaled unless a scale is given."""

    def scale(self, case: Case) -> float | None:
        return 1.0 if case.scale is None else case.scale


class ScaleZeroReadAsNone(Scale):
    def scale(self, case: Case) -> float | None:
        return case.scale or None


class ScaleCutToOne(Scale):
    """A scale is taken for a share: nothing beyond -1 .. 1."""

    def scale(self, case: Case) -> float | None:
        return case.scale if case.scale is None else max(-1.0, min(1.0, case.scale))


class ScaleWithoutSign(Scale):
    def scale(self, case: Case) -> float | None:
        return case.scale and abs(case.scale)


class ScaleTimesDefault(Scale):
    """A given scale comes on top of 1 / sqrt(head_dim)."""

    def scale(self, case: Case) -> float | None:
        return case.scale and case.scale * case.shape.head_dim ** -0.5


class ScaleOfPaddedHead(Scale):
    """The default counts head_dim after padding it to a multiple of 32."""

    def scale(self, case: Case) -> float | None:
        return (-(-case.shape.head_dim // 32) * 32) ** -0.5 if case.scale is None else case.scale


class ScaleOfValues(Scale):
    """The default counts the values' head_dim."""

    def scale(self, case: Case) -> float | None:
        return case.shape.v_dim ** -0.5 if case.scale is None else case.scale


class ScaleOfHeadDimWithoutRoot(Scale):
    def scale(self, case: Case) -> float | None:
        return 1 / case.shape.head_dim if case.scale is None else case.scale


class ScaleRoundedToBfloat16(Scale):
    def scale(self, case: Case) -> float | None:
        value = case.shape.head_dim ** -0.5 if case.scale is None else case.scale
        return float(torch.tensor(value).bfloat16())
