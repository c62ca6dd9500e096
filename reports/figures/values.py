"""Numbers and words out of records that anybody may have written: what is odd is not there, and never an error."""

import math
from collections.abc import Callable
from typing import Any

from reports import view
from reports.non_finite import restored

LIMIT = 1e30


def finite(value: Any) -> float | None:
    """A number that can be drawn; None for anything else, such as NaN, a bool or text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= LIMIT else None


def positive(value: Any) -> float | None:
    """A number that a logarithmic axis can hold."""
    number = finite(value)
    return number if number is not None and number > 1 / LIMIT else None


def ratio(value: Any) -> float | None:
    """A ratio from 0 up: infinities and NaN stay what they are, also where a record spells them as text."""
    value = restored(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return math.inf if value > LIMIT else float(max(value, 0)) if value == value else math.nan


def beyond(value: float) -> float:
    """A ratio as a key to order by: NaN is worse than everything."""
    return math.inf if math.isnan(value) else value


def numbers(values: Any) -> list[float]:
    """The finite numbers of a list, nothing of anything else."""
    return [number for value in items(values) if (number := finite(value)) is not None]


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def of(metric: Callable[[dict], Any], trial: dict) -> float | None:
    """A metric of a trial as a number that can be drawn; numbers that no run can have measured are none."""
    return finite(view.value(metric, trial))


def short(value: float | None) -> str:
    """Three digits at most: 0.25, 12.3, 1.2e6, and a dash for nothing."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "∞"
    return shorter(f"{value:.3g}" if abs(value) < 1000 or abs(value) >= 1e6 else f"{value:.0f}")


def brief(value: float) -> str:
    """A ratio in at most four columns."""
    if not math.isfinite(value) or value == 0:
        return short(value)
    return shorter(f"{value:.2f}" if 0.01 <= value < 9.995 else f"{value:.0f}" if 1 < value < 9999 else f"{value:.0e}")


def shorter(told: str) -> str:
    """1e-06 as 1e-6, 1e+06 as 1e6."""
    if "e" not in told:
        return told
    digits, power = told.split("e")
    return f"{digits}e{int(power)}"


def tokens(value: float) -> str:
    """A size as it is typed: 512, 1k, 64k, 1m."""
    for unit, letter in ((2**20, "m"), (2**10, "k")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:.0f}{letter}"
    return short(value) if value != int(value) or value >= 1e6 else f"{value:.0f}"
