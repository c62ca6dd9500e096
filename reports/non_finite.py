"""Numbers that JSON has none of: infinities and NaN, spelled as text, so that they stay apart from null."""

import math
from typing import Any

LARGEST = 10**300
"""Whole numbers beyond it are told as infinite: no sum of them is a float."""
SPELLED = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def plain(value: Any) -> Any:
    """`value` with every number that is not finite, at any depth, as the string "inf", "-inf" or "nan"."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, int) and abs(value) > LARGEST:
        return "inf" if value > 0 else "-inf"
    return value


def restored(value: Any) -> Any:
    """The number that a text spells; anything else as it is."""
    return SPELLED.get(value, value) if isinstance(value, str) else value
