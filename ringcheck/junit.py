"""What a JUnit file says of a case beyond its name: properties of its test case, from what was listed and recorded.
Stdlib only."""

import math
from typing import Any

LISTED = ("world", "layout", "dtype", "group", "level")
LISTS = ("requirements", "rules")
Record = dict[str, Any]


def properties(case: Record, record: Record, implementation: str) -> list[tuple[str, str]]:
    """Names and values; what is not known has none. `error/budget` is the largest of the required level, with the
    tensor that it is of."""
    about, made = record.get("case") or {}, record.get("implementation") or {}
    found = {"case": case["id"], "implementation": implementation, "verdict": record.get("verdict")}
    found |= {name: case.get(name, about.get(name)) for name in LISTED}
    found |= {name: " ".join(case.get(name) or ()) for name in LISTS}
    found |= {"mask": about.get("mask"), "digest": about.get("digest"), "kernel": made.get("kernel"),
              "truth": record.get("truth"), **furthest(record.get("deviations") or [])}
    if made.get("layout") not in (None, found["layout"]):
        found["layout that ran"] = made["layout"]
    return [(name, str(value)) for name, value in found.items() if value not in (None, "")]


def furthest(deviations: list[Record]) -> dict[str, str]:
    """The largest error/budget that was compared, and its tensor; a NaN is larger than any."""
    compared = [(number(one["ratio"]), one.get("tensor")) for one in deviations
                if one.get("ratio") is not None and one.get("level", "required") == "required"]
    if not compared:
        return {}
    ratio, tensor = max(compared, key=lambda one: math.inf if math.isnan(one[0]) else one[0])
    return {"error/budget": f"{ratio:.3g}", "worst tensor": str(tensor)}


def number(ratio: float | str) -> float:
    """A ratio, which is a text where it is not finite."""
    return float(ratio)
