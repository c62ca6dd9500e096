"""Mutants that change nothing that a trial could see, each with the reason, judged by hand."""

import json
from functools import cache
from pathlib import Path

from harness.sabotage import mutants

FILE = Path(__file__).parent / "equivalents.json"


@cache
def reasons() -> dict[tuple[str, str, str], str]:
    """The reason by `Mutant.key`; equivalents.json has them the other way round, since one reason serves many."""
    judged = json.loads(FILE.read_text(encoding="utf-8"))
    return {tuple(key): why for why, keys in judged.items() for key in keys}


def reason(spec: str) -> str | None:
    """Why the mutant of a spec is equivalent, None where nobody says so."""
    return next((reasons().get(mutant.key) for mutant in mutants.every() if mutant.spec == spec), None)
