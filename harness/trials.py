"""The kinds of trial, which of them a case is given, and trials of several implementations that take turns."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from cases import bench
from cases.case import Case
from harness import limits, probing, trial
from harness.by_owner import run_owners
from harness.clock import Timing
from harness.implementation import Implementation
from harness.places import run_placed
from harness.probing import run_probes
from harness.ranks import Ranks
from harness.recover import run_recovery
from harness.relating import run_relations
from harness.trial import fresh_seed, run_trial
from harness.turns import alternate

KINDS = {"dense": run_trial, "verdict": partial(run_trial, diagnosed=False), "probes": run_probes,
         "relations": run_relations, "recover": run_recovery, "owners": run_owners}
TURNS = {"dense": trial.turns, "probes": probing.turns}
CHOICES = ("auto", "dense", "probes", "relations")
LARGEST_DENSE = 1 << 14


def kind_of(case: Case, truth: str) -> str:
    """What `--truth` means for a case: "auto" is the dense truth up to LARGEST_DENSE tokens, then probes."""
    if truth != "auto":
        return truth
    return "dense" if case.shape.tokens <= LARGEST_DENSE else "probes"


def timing_of(case: Case, timing: Timing) -> Timing:
    """Bench cases are also timed against what bounds them."""
    return replace(timing, bound=case.group == bench.GROUP)


def run(kind: str, case: Case, implementation: Implementation, ranks: Ranks, timing: Timing,
        spec: str) -> dict[str, Any] | None:
    """One trial of a kind on every rank; the record on rank 0, None elsewhere."""
    return run_placed(lambda asked, part: KINDS[kind](asked, implementation, part, timing, spec), case, ranks)


def alternates(kind: str, case: Case, timing: Timing, specs: list[str]) -> bool:
    """Whether implementations of a case take turns: where there are several, and times to compare."""
    return len(specs) > 1 and bool(timing.iters) and kind in TURNS and not case.topology.groups


def run_turns(kind: str, case: Case, made: dict[str, Implementation], ranks: Ranks, timing: Timing,
              begun: Callable[[str], None] = lambda spec: None) -> list[dict[str, Any] | None]:
    """One trial of each implementation, by spec, lap by lap in turn; records as `run` gives them."""
    seed = cache(lambda: fresh_seed(ranks))
    turns = {spec: TURNS[kind](case, one, ranks, timing, spec, seed) for spec, one in made.items()}
    heard: set[str] = set()

    def now(spec: str) -> None:
        if spec not in heard:
            heard.add(spec)
            ranks.begin()
        begun(spec)

    records = list(alternate(turns, now).values())
    if ranks.group.rank == 0:
        for record in records:
            if record["measurement"]:
                record["measurement"]["beside"] = [spec for spec in made if spec != record["implementation"]["spec"]]
        limits.shared(records)
    return records
