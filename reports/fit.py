"""Whether what figures are drawn from fits together: loads rank by rank, errors cell by cell, spans of time."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

from reports.non_finite import SPELLED

LAYOUTS = ("contiguous", "zigzag", "striped")


def wrong(trial: dict[str, Any]) -> Iterator[str]:
    """In words, field first, what does not fit in `work.layouts`, `timeline` and `error_maps`, whose values are of the
    right kinds already. What is absent or null fits."""
    layouts = (trial.get("work") or {}).get("layouts") or {}
    for name in LAYOUTS:
        if not _even(layouts.get(name) or {}):
            yield f"work.layouts.{name} is not for equally many ranks everywhere"
    for rank in (trial.get("timeline") or {}).get("ranks") or []:
        yield from _times(rank)
    for one in trial.get("error_maps") or []:
        yield from _cells(one)


def _even(load: dict[str, Any]) -> bool:
    by_hop = load.get("area_by_hop")
    parts = [load.get("area_by_rank"), load.get("need_bytes"), by_hop, *(by_hop or [])]
    return len({len(part) for part in parts if part is not None}) <= 1


def _times(rank: dict[str, Any]) -> Iterator[str]:
    if not all(len(one) == 3 and isinstance(one[0], str) and _lasts(one[1:]) for one in rank.get("phases") or []):
        yield "timeline.ranks.phases holds no name with a start and an end"
    if not all(_lasts((one.get("start"), one.get("end"))) for one in rank.get("transfers") or []):
        yield "timeline.ranks.transfers holds no start with an end"
    if not all(len(one) == 3 and _lasts(one[:2]) for one in rank.get("waits") or []):
        yield "timeline.ranks.waits holds no start and end with a hop"


def _lasts(span: Sequence[Any]) -> bool:
    start, end = span
    return all(isinstance(one, int | float) for one in span) and 0 <= start <= end < math.inf


def _cells(one: dict[str, Any]) -> Iterator[str]:
    rows, edges = one.get("ratios") or [], one.get("edges")
    if len({len(row) for row in rows}) > 1:
        yield "error_maps.ratios has rows of unlike lengths"
    unknown = [cell for cell in chain(*rows) if isinstance(cell, str) and cell not in SPELLED]
    if unknown:
        yield f"error_maps.ratios is no number: {unknown[0][:40]!r}"
    if edges is not None and (len(edges) != len(rows) + 1 or any(a >= b for a, b in pairwise(edges))):
        yield "error_maps.edges does not fit error_maps.ratios"
