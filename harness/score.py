"""`python -m harness.score`: how many faulty rings a set of cases kills, which case kills which, and what survives."""

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import apart, crew, kills, scorecard
from harness.apart import Split
from harness.interrupts import ended_alike
from harness.kills import Ask, Bench, Found, Subject
from harness.scoring import Settings, parse

PASSED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 3
EVERY = 20
Worker = Callable[[Any], Any]


@dataclass(frozen=True)
class Plan:
    """What every worker of a score is told once."""

    asked: tuple[Ask, ...]
    settings: Settings


def main(argv: list[str] | None = None) -> int:
    """Scores what the arguments ask for. Returns 0 when everything asked is killed, 1 when something survives,
    2 for bad usage, 3 for an interruption."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        with ended_alike(torchrun=False):
            return listed(settings) if settings.listing else score(settings)
    except KeyboardInterrupt:
        print("ringcheck score: interrupted", file=sys.stderr)
        return INTERRUPTED
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
    card.claim()
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
    """Prints the faults that no case tells apart, and where it is interrupted those that are still together."""
    started = time.perf_counter()
    left, alike = Counter(apart.grouped(seen(subjects, plan, card), broad(plan))), 0
    card.note(f"{left.total()} groups of {', '.join(str(len(group.subjects)) for group in left)} are split")
    splits = spread(list(left), plan, splitter, lambda group: Split(group, [], [group.subjects]),
                    lambda found: found.further)
    try:
        for number, found in enumerate(splits, 1):
            left += Counter(found.further)
            left[found.group] -= 1
            if number % EVERY == 0:
                card.note(f"{left.total()} groups left after {number} splits, {time.perf_counter() - started:.0f} s")
            for same in found.alike:
                alike += 1
                card.note(f"told alike everywhere: {', '.join(subject.name for subject in same)}")
    except KeyboardInterrupt:
        card.note("interrupted; still together, each a --faults to go on with:")
        for group in +left:
            card.note(",".join(subject.name for subject in group.subjects))
        return INTERRUPTED
    told = f"{alike} groups among them are not told apart, in {time.perf_counter() - started:.1f} s"
    card.note(f"{len(subjects)} faults, {len(plan.asked)} trials each: {told}")
    return FAILED if alike else PASSED


def seen(subjects: list[Subject], plan: Plan, card: scorecard.Scorecard) -> Iterator[tuple[Subject, apart.Vector]]:
    """Subjects with their verdicts in the broad cases, and a line at every tenth of the way."""
    answers = spread(subjects, plan, viewer, lambda subject: (subject, ("lost",)))
    for count, one in enumerate(answers, 1):
        if count * 10 // len(subjects) > (count - 1) * 10 // len(subjects):
            card.note(f"{count} of {len(subjects)} faults have answered")
        yield one


def broad(plan: Plan) -> list[Ask]:
    """The cases that every fault is asked."""
    return apart.known(plan.settings.subjects(), plan.asked)


def viewer(plan: Plan, bench: Bench) -> Worker:
    """Gives subjects with their verdicts in the broad cases."""
    asked = broad(plan)
    return lambda subject: (subject, apart.vector(subject, asked, bench))


def splitter(plan: Plan, bench: Bench) -> Worker:
    """Gives what a group is split into."""
    return lambda group: apart.split(group, plan.asked, bench)


def hunter(plan: Plan, bench: Bench) -> Worker:
    """Hunts a subject."""
    return lambda subject: hunt(subject, plan, bench)


def hunted(subjects: list[Subject], plan: Plan) -> Iterator[Found]:
    """Every subject as it is found."""
    return spread(subjects, plan, hunter, lambda subject: Found(subject, crashed=True))


def spread(items: list, plan: Plan, made: Callable[[Plan, Bench], Worker], lost: Worker,
           then: Callable[[Any], Iterable[Any]] = lambda result: ()) -> Iterator:
    """What a worker makes of each item and of those that follow from a result, in this process or in several; `lost` of
    one over which a process died."""
    if plan.settings.jobs > 1:
        yield from crew.work(items, plan.settings.jobs, partial(_benched, made), plan, lost, then)
        return
    bench, left = Bench(plan.settings.limit), deque(items)
    worker = made(plan, bench)
    try:
        while left:
            result = worker(left.popleft())
            left.extend(then(result))
            yield result
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
