"""The kinds of trial, and which of them a case is given."""

from functools import partial
from typing import Any

from cases.case import Case
from harness.clock import Timing
from harness.implementation import Implementation
from harness.places import run_placed
from harness.probing import run_probes
from harness.ranks import Ranks
from harness.recover import run_recovery
from harness.relating import run_relations
from harness.trial import run_trial

KINDS = {"dense": run_trial, "verdict": partial(run_trial, diagnosed=False), "probes": run_probes,
         "relations": run_relations, "recover": run_recovery}
CHOICES = ("auto", "dense", "probes", "relations")
LARGEST_DENSE = 1 << 14


def kind_of(case: Case, truth: str) -> str:
    """What `--truth` means for a case: "auto" is the dense truth up to LARGEST_DENSE tokens, then probes."""
    if truth != "auto":
        return truth
    return "dense" if case.shape.tokens <= LARGEST_DENSE else "probes"


def run(kind: str, case: Case, implementation: Implementation, ranks: Ranks, timing: Timing,
        spec: str) -> dict[str, Any] | None:
    """One trial of a kind on every rank; the record on rank 0, None elsewhere."""
    return run_placed(lambda asked, part: KINDS[kind](asked, implementation, part, timing, spec), case, ranks)
