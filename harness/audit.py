"""What a trial costs at least: allowed pairs, arithmetic, bytes that must travel, and the picture of its mask."""

from functools import lru_cache
from typing import Any

from torch import Tensor

from cases import picture as drawing
from cases.case import Case
from cases.mask import Mask
from cases.work import work as counted
from harness.inputs import DTYPES


def work(case: Case, mask: Mask, layout: list[Tensor]) -> dict[str, Any]:
    """`work` of the record; layout: positions `[B, L]` a rank."""
    return _work(case, mask, _Layout(layout))


def picture(case: Case, mask: Mask, layout: list[Tensor]) -> dict[str, Any]:
    """`picture` of the record: the first batch row."""
    return _picture(case, mask, _Layout(layout))


class _Layout(tuple):
    """A layout as a cache key: equal when every rank holds the same positions."""

    def __new__(cls, parts: list[Tensor]):
        made = super().__new__(cls, ((tuple(part.shape), part.numpy().tobytes()) for part in parts))
        made.parts = parts
        return made


@lru_cache(maxsize=64)
def _work(case: Case, mask: Mask, layout: _Layout) -> dict[str, Any]:
    done = counted(mask, case.rows(), case.shape, layout.parts)
    forward, backward = done.flops(case.shape)
    need = done.need_bytes(case.shape, DTYPES[case.dtype].itemsize)
    return {"area": done.area, "flops_forward": forward, "flops_backward": backward, "area_by_rank": list(done.by_rank),
            "area_by_hop": [list(row) for row in done.by_owner], "need_bytes": need}


@lru_cache(maxsize=64)
def _picture(case: Case, mask: Mask, layout: _Layout) -> dict[str, Any]:
    rows = case.rows()
    allowed = drawing.allowed_share(mask, rows)
    rounded = [[round(share, 4) for share in line] for line in allowed.tolist()]
    return {"size": len(rounded), "allowed": rounded, "owner": drawing.owner(layout.parts, rows).tolist()}
