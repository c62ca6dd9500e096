"""`python -m harness.score`: how many faulty rings a set of cases kills, which case kills which, and what survives."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from harness import kills, scorecard
from harness.kills import Ask, Bench, Found
from harness.sabotage import faults, shown
from harness.scoring import Settings, parse

PASSED, FAILED, USAGE = 0, 1, 2


@dataclass(frozen=True)
class Plan:
    """What every worker of a score is told once."""

    asked: tuple[Ask, ...]
    settings: Settings


def main(argv: list[str] | None = None) -> int:
    """Scores what the arguments ask for. Returns 0 when everything asked is killed, 1 when something survives,
    2 for bad usage."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        return score(settings)
    except ValueError as error:
        print(f"ringcheck score: {error}", file=sys.stderr)
        return USAGE


def score(settings: Settings) -> int:
    """Runs and prints a whole score."""
    started = time.perf_counter()
    plan = Plan(tuple(kills.asks(settings.chosen())), settings)
    card = scorecard.Scorecard(settings, plan.asked, sys.stdout)
    card.header()
    found = []
    for one in hunted(settings.names(), plan):
        found.append(one)
        card.row(one)
    card.end(found, time.perf_counter() - started, tier_seconds(plan) if settings.tier else None)
    return PASSED if all(one.killed for one in found) else FAILED


def hunted(names: list[str], plan: Plan) -> Iterator[Found]:
    """Every fault as it is found, by one process or several."""
    if plan.settings.jobs == 1:
        bench = Bench()
        try:
            yield from (hunt(name, plan, bench) for name in names)
        finally:
            bench.close()
        return
    with ProcessPoolExecutor(plan.settings.jobs, get_context("spawn"), _begin, (plan,)) as workers:
        yield from workers.map(_one, names)


def hunt(name: str, plan: Plan, bench: Bench) -> Found:
    """One fault against the plan's cases, with the first line of what killed it."""
    started = time.perf_counter()
    kind = faults.FAULTS[name]
    order = bench.ordered(plan.asked, kind.breaks, shown.case_of(name))
    if plan.settings.smallest:
        order = sorted(plan.asked, key=lambda ask: ask.cost)
    spec = f"sabotage:{name}"
    found = bench.hunt(name, spec, order)
    if found.killer:
        record = bench.trial(found.killer, spec, "dense")
        found.said = (record["diagnosis"] or {}).get("headline", "")
    if plan.settings.matrix:
        _rest(found, spec, plan, bench)
    found.seconds = time.perf_counter() - started
    bench.forget()
    return found


def _rest(found: Found, spec: str, plan: Plan, bench: Bench) -> None:
    """The verdicts of all cases that were not needed."""
    for ask in plan.asked:
        if ask.name not in found.verdicts:
            found.verdicts[ask.name] = bench.verdict(ask, spec)


def tier_seconds(plan: Plan) -> float:
    """What the cases of a tier take on the ring, in this process."""
    bench = Bench()
    started = time.perf_counter()
    try:
        for ask in plan.asked:
            bench.passes(ask)
    finally:
        bench.close()
    return time.perf_counter() - started


_work: dict[str, Any] = {}


def _begin(plan: Plan) -> None:
    _work.update(plan=plan, bench=Bench())


def _one(name: str) -> Found:
    return hunt(name, _work["plan"], _work["bench"])


if __name__ == "__main__":
    sys.exit(main())
