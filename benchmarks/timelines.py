"""Timelines: what a profiler's events say of one step on a GPU; no torch."""

import re
from collections.abc import Iterable

LONG = 5.0
"""Microseconds; kernels of one stream follow each other within one or two."""


def timeline(events: Iterable[tuple[float, float, str]], began: float | None) -> dict:
    """What (start, duration, name) of kernels, copies and fills, in microseconds, say of a step that the host began at
    `began`.

    span_ms from the first start to the last end; busy_ms in which any ran; gap_us the rest, with the largest gap and
    how many are longer than LONG; first_us from `began` to the first; kernels: count and sum by name. None without any.
    """
    events = sorted(events)
    if not events:
        return dict.fromkeys(("span_ms", "busy_ms", "first_us", "gap_us", "largest_gap_us", "long_gaps", "kernels"))
    gaps, end = [], events[0][0]
    sums: dict[str, list[float]] = {}
    for start, duration, name in events:
        if start > end:
            gaps.append(start - end)
        end = max(end, start + duration)
        sums.setdefault(short(name), []).append(duration)
    span, idle_us = end - events[0][0], sum(gaps)
    kernels = [{"name": name, "count": len(each), "ms": sum(each) / 1e3} for name, each in sums.items()]
    return {"span_ms": span / 1e3, "busy_ms": (span - idle_us) / 1e3,
            "first_us": None if began is None else events[0][0] - began, "gap_us": idle_us,
            "largest_gap_us": max(gaps, default=0.0), "long_gaps": sum(gap > LONG for gap in gaps),
            "kernels": sorted(kernels, key=lambda one: -one["ms"])}


def short(name: str) -> str:
    """A kernel's name without what changes from run to run, its arguments, and what all of them begin with."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("at::native::", "")
    return re.sub(r"(_tensor|_object_at|\().*", "", plain)[:90]
