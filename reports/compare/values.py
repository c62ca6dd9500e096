"""Lists of numbers of a record: all of a list or none of it, and then why."""

import math
from dataclasses import dataclass
from typing import Any

from reports.compare.sides import Trial

LEAST, MOST = 1e-12, 1e12
"""Seconds that no clock shows, and that nobody waits for."""
LARGEST = 1e300
"""Counts above it do not add up."""


@dataclass(frozen=True)
class Values:
    """Numbers as floats; where there are none although the record has the list, `wrong` says why."""

    numbers: tuple[float, ...] = ()
    wrong: str = ""


def seconds(trial: Trial, name: str) -> Values:
    """A list of `measurement`, all of them positive finite times."""
    return _sound(_listed(trial, "measurement", name), name, lambda x: LEAST < x < MOST, "time")


def by_rank(trial: Trial, source: str, name: str) -> Values:
    """A list of one count for each rank of the case's world."""
    listed, world = _listed(trial, source, name), trial["case"]["world"]
    if listed and len(listed) != world:
        return Values(wrong=f"{name}: {len(listed)} numbers for {world} ranks")
    return _sound(listed, name, lambda x: 0 <= x <= LARGEST, "count")


def _listed(trial: Trial, source: str, name: str) -> list[Any]:
    part = trial.get(source)
    values = part.get(name) if isinstance(part, dict) else None
    return values if isinstance(values, list) else []


def _sound(values: list[Any], name: str, fits: Any, kind: str) -> Values:
    bad = [x for x in values if isinstance(x, bool) or not isinstance(x, (int, float)) or not fits(x)]
    if bad:
        return Values(wrong=f"{name}: {len(bad)} of {len(values)} are no {kind}, such as {_short(bad[0])}")
    return Values(tuple(map(float, values)))


def _short(value: Any) -> str:
    large = isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST
    return "a number beyond all reason" if large else repr(value)[:40]


def imbalance(areas: tuple[float, ...]) -> float | None:
    """The largest over the mean; None where all are 0. Safe for numbers of any size."""
    most = max(areas)
    return len(areas) / math.fsum(x / most for x in areas) if most else None
