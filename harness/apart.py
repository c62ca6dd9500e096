"""Which faults no case tells apart: a few cases are asked of all faults, then the groups that are left are split, so
that no fault is asked more than it takes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from harness.kills import Ask, Bench, Subject

Vector = tuple[str, ...]
BROAD = 20


def known(subjects: Sequence[Subject], asked: Sequence[Ask]) -> list[Ask]:
    """The BROAD ones that are known to show most of the subjects."""
    shows = Counter(subject.first for subject in subjects)
    named = sorted((ask for ask in asked if ask.name in shows), key=lambda ask: -shows[ask.name])
    return named[:BROAD]


def vector(subject: Subject, asked: Sequence[Ask], bench: Bench) -> Vector:
    """Its verdict in every trial of `asked`."""
    verdicts = tuple(bench.verdict(ask, subject.spec) for ask in asked)
    bench.forget()
    return verdicts


def grouped(vectors: Iterable[tuple[Subject, Vector]]) -> list[list[Subject]]:
    """Subjects of one vector together, those that are alone left out."""
    groups: dict[Vector, list[Subject]] = defaultdict(list)
    for subject, verdicts in vectors:
        groups[verdicts].append(subject)
    return [group for group in groups.values() if len(group) > 1]


def alike(subjects: Sequence[Subject], asked: Sequence[Ask], bench: Bench) -> Iterator[list[Subject]]:
    """Groups of subjects that have the same verdict in every trial that was asked."""
    groups: list[tuple[list[Subject], frozenset[str]]] = [(list(subjects), frozenset())]
    while groups:
        group, tried = groups.pop()
        parts = split(group, [ask for ask in asked if ask.name not in tried], bench) if len(group) > 1 else None
        bench.forget()
        if parts:
            used, found = parts
            groups += [(part, tried | used) for part in found]
        elif len(group) > 1:
            yield group


def split(group: list[Subject], asked: list[Ask], bench: Bench) -> tuple[frozenset[str], list[list[Subject]]] | None:
    """The names of the asks that were tried and what the last of them split the group into, None when none does."""
    used = set()
    for ask in _unlike(group, asked, bench):
        used.add(ask.name)
        by_verdict: dict[str, list[Subject]] = defaultdict(list)
        for subject in group:
            by_verdict[bench.verdict(ask, subject.spec)].append(subject)
        if len(by_verdict) > 1:
            return frozenset(used), list(by_verdict.values())
    return None


def _unlike(group: list[Subject], asked: list[Ask], bench: Bench) -> list[Ask]:
    """What is known to show one of the group comes first: the others are likely to pass. Then one ask of each scenario,
    then another of each: faults that fail the same way differ where something else is asked."""
    together = Subject("", "", "", tuple(sorted({broken for subject in group for broken in subject.breaks})))
    firsts, seen = {subject.first for subject in group}, Counter()
    turn = {}
    for ask in bench.ordered(asked, together):
        turn[ask] = (ask.name not in firsts, seen[ask.case.name])
        seen[ask.case.name] += 1
    return sorted(turn, key=turn.__getitem__)
