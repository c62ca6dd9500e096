"""Which faults no case tells apart: groups are split by their verdicts, case by case, until nothing splits them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from harness.kills import Ask, Bench, Subject


def alike(subjects: Sequence[Subject], asked: Sequence[Ask], bench: Bench) -> Iterator[list[Subject]]:
    """Groups of subjects that have the same verdict in every trial that was asked."""
    groups: list[tuple[list[Subject], frozenset[str]]] = [(list(subjects), frozenset())]
    while groups:
        group, tried = groups.pop()
        parts = split(group, [ask for ask in asked if ask.name not in tried], bench) if len(group) > 1 else None
        if parts:
            used, found = parts
            groups += [(part, tried | used) for part in found]
        elif len(group) > 1:
            yield group


def split(group: list[Subject], asked: list[Ask], bench: Bench) -> tuple[frozenset[str], list[list[Subject]]] | None:
    """The names of the asks that were tried and what the last of them split the group into, None when none does. Those
    that are known to show one of the group come first."""
    together = Subject("", "", "", tuple(sorted({broken for subject in group for broken in subject.breaks})))
    known, used = {subject.first for subject in group}, set()
    for ask in sorted(bench.ordered(asked, together), key=lambda ask: ask.name not in known):
        used.add(ask.name)
        by_verdict: dict[str, list[Subject]] = defaultdict(list)
        for subject in group:
            by_verdict[bench.verdict(ask, subject.spec)].append(subject)
        if len(by_verdict) > 1:
            return frozenset(used), list(by_verdict.values())
    return None
