"""The smallest case of the catalogue that shows each fault, as `ringcheck score --smallest` found it."""

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "shown.json"


@cache
def cases() -> dict[str, str]:
    """Case id ("ID timed" for a timed trial) by fault; a fault that was not scored yet has none."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def case_of(fault: str) -> str | None:
    return cases().get(fault)
