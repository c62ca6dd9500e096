"""`python -m harness.score`: how many faulty rings a set of cases kills, which case kills which, and what survives."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import apart, crew, kills, scorecard
from harness.kills import Ask, Bench, Found, Subject
from harness.scoring import Settings, parse

PASSED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 3
Worker = Callable[[Any], Any]


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
        return listed(settings) if settings.listing else score(settings)
    except ValueError as error:
        print(f"ringcheck score: {error}", file=sys.stderr)
        return USAGE


def listed(settings: Settings) -> int:
    """Prints what would be scored: class, name, what it breaks or changes, the smallest case known to show it."""
    for one in settings.subjects():
        print(f"{one.group:12} {one.name:40} {one.detail or ' '.join(one.breaks):8} {one.first or ''}".rstrip())
    return PASSED


def score(settings: Settings) -> int:
    """Runs and prints a whole score."""
    started = time.perf_counter()
    plan, subjects = Plan(tuple(kills.asks(settings.chosen())), settings), settings.subjects()
    card = scorecard.Scorecard(settings, plan.asked, sys.stdout)
    if settings.apart:
        return told_apart(subjects, plan, card)
    card.header(len(subjects))
    found = []
    try:
        for one in hunted(subjects, plan):
            found.append(one)
            card.row(one)
    except KeyboardInterrupt:
        card.end(found, time.perf_counter() - started, None)
        card.note(f"interrupted: {len(found)} of {len(subjects)} were scored")
        return INTERRUPTED
    card.end(found, time.perf_counter() - started, tier_seconds(plan) if settings.tier else None)
    return PASSED if all(one.killed or scorecard.excused(one) for one in found) else FAILED


def told_apart(subjects: list[Subject], plan: Plan, card: scorecard.Scorecard) -> int:
    """Prints the faults that no case tells apart."""
    started, count = time.perf_counter(), 0
    seen = spread(subjects, plan, viewer, lambda subject: (subject, ("lost",)))
    groups = apart.grouped(paced(seen, len(subjects), "faults have answered", card))
    split = spread(groups, plan, splitter, lambda group: [group])
    for alike in paced(split, len(groups), "groups are split", card):
        for group in alike:
            count += 1
            card.note(f"same verdict everywhere: {', '.join(subject.name for subject in group)}")
    told = f"{count} groups among them are not told apart, in {time.perf_counter() - started:.1f} s"
    card.note(f"{len(subjects)} faults, {len(plan.asked)} trials each: {told}")
    return FAILED if count else PASSED


def paced(seen: Iterator, number: int, words: str, card: scorecard.Scorecard) -> Iterator:
    """The same, with a line at every tenth of the way."""
    for count, one in enumerate(seen, 1):
        if count * 10 // number > (count - 1) * 10 // number:
            card.note(f"{count} of {number} {words}")
        yield one


def viewer(plan: Plan, bench: Bench) -> Worker:
    """Gives subjects with their verdicts in all cases that are known to show some fault."""
    asked = apart.known(plan.settings.subjects(), plan.asked)
    return lambda subject: (subject, apart.vector(subject, asked, bench))


def splitter(plan: Plan, bench: Bench) -> Worker:
    """Gives the groups within a group that nothing splits."""
    return lambda group: list(apart.alike(group, plan.asked, bench))


def hunter(plan: Plan, bench: Bench) -> Worker:
    """Hunts a subject."""
    return lambda subject: hunt(subject, plan, bench)


def hunted(subjects: list[Subject], plan: Plan) -> Iterator[Found]:
    """Every subject as it is found."""
    return spread(subjects, plan, hunter, lambda subject: Found(subject, crashed=True))


def spread(items: list, plan: Plan, made: Callable[[Plan, Bench], Worker], lost: Worker) -> Iterator:
    """What a worker makes of each item, in this process or in several; `lost` of one over which a process died."""
    if plan.settings.jobs > 1:
        yield from crew.work(items, plan.settings.jobs, partial(_benched, made), plan, lost)
        return
    bench = Bench(plan.settings.limit)
    try:
        yield from map(made(plan, bench), items)
    finally:
        bench.close()


def _benched(made: Callable[[Plan, Bench], Worker], plan: Plan) -> Worker:
    return made(plan, Bench(plan.settings.limit))


def hunt(subject: Subject, plan: Plan, bench: Bench) -> Found:
    """One subject against the plan's cases, with the first line of what killed it."""
    started = time.perf_counter()
    found = bench.hunt(subject, bench.ordered(plan.asked, subject))
    if found.killer and plan.settings.smallest:
        bench.shrink(found, plan.asked)
    if found.killer:
        record = bench.trial(found.killer, subject.spec, "verdict" if subject.crashes else "dense")
        found.said = (record["diagnosis"] or {}).get("headline") or record["reason"] or "did not fail again"
    if plan.settings.matrix:
        for ask in plan.asked:
            if ask.name not in found.verdicts:
                found.verdicts[ask.name] = bench.verdict(ask, subject.spec)
    found.seconds = time.perf_counter() - started
    bench.forget()
    return found


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


if __name__ == "__main__":
    sys.exit(main())
