"""Which faults no case tells apart: a few cases are asked of all faults, then the groups that are left are split, so
that no fault is asked more than it takes. Faults are apart where a verdict, or what it says of a failure but for
numbers, is another one: what breaks a promise does so in every case, and PASS and FAIL alone would make one of all."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from harness.kills import Ask, Bench, Subject

Vector = tuple[str, ...]
BROAD, SCOUTS, PATIENCE = 20, 4, 100


class Group(NamedTuple):
    """Subjects that had the same verdict wherever all of them were asked.

    tried  names of the asks that all of them were asked
    quiet  those in which the scouts of a group around this one had the same verdict
    """

    subjects: tuple[Subject, ...]
    tried: frozenset[str] = frozenset()
    quiet: frozenset[str] = frozenset()


class Split(NamedTuple):
    """What a group came to: groups that may be split further, and subjects that had the same verdict in every trial
    that was asked."""

    group: Group
    further: list[Group]
    alike: list[tuple[Subject, ...]]


def known(subjects: Sequence[Subject], asked: Sequence[Ask]) -> list[Ask]:
    """The BROAD ones that are known to show most of the subjects."""
    shows = Counter(subject.first for subject in subjects)
    named = sorted((ask for ask in asked if ask.name in shows), key=lambda ask: -shows[ask.name])
    return named[:BROAD]


def vector(subject: Subject, asked: Sequence[Ask], bench: Bench) -> Vector:
    """Its verdict in every trial of `asked`."""
    verdicts = tuple(bench.said(ask, subject.spec) for ask in asked)
    bench.forget()
    return verdicts


def grouped(vectors: Iterable[tuple[Subject, Vector]], asked: Sequence[Ask]) -> list[Group]:
    """Subjects of one vector together, those that are alone left out."""
    groups: dict[Vector, list[Subject]] = defaultdict(list)
    for subject, verdicts in vectors:
        groups[verdicts].append(subject)
    tried = frozenset(ask.name for ask in asked)
    return [Group(tuple(group), tried) for group in groups.values() if len(group) > 1]


def split(group: Group, asked: Sequence[Ask], bench: Bench, patience: int = PATIENCE) -> Split:
    """What a group comes to within `patience` asks.

    A few scouts of a large group are asked first, and the others only where the scouts differ. Scouts that no ask tells
    apart are alike; one of them goes on with the others.
    """
    scouts = group.subjects[::-(-len(group.subjects) // SCOUTS)]
    order = _order(scouts, [ask for ask in asked if ask.name not in group.tried], group.quiet, bench)
    agreed = []
    for ask in order[:patience]:
        agreed.append(ask.name)
        said = {scout: bench.said(ask, scout.spec) for scout in scouts}
        if len(set(said.values())) > 1:
            bench.parted[ask.name] += 1
            return Split(group, _parts(_heard(group, scouts, agreed), ask, said, bench), [])
    left = _heard(group, scouts, agreed)
    if len(order) > patience:
        return Split(group, [left], [])
    others = tuple(subject for subject in group.subjects if subject not in scouts[1:])
    return Split(group, [left._replace(subjects=others)] * (len(others) > 1), [scouts])


def _heard(group: Group, scouts: tuple[Subject, ...], agreed: list[str]) -> Group:
    if scouts == group.subjects:
        return group._replace(tried=group.tried.union(agreed))
    return group._replace(quiet=group.quiet.union(agreed))


def _parts(group: Group, ask: Ask, said: dict[Subject, str], bench: Bench) -> list[Group]:
    parts: dict[str, list[Subject]] = defaultdict(list)
    for subject in group.subjects:
        parts[said.get(subject) or bench.said(ask, subject.spec)].append(subject)
    bench.forget()
    return [Group(tuple(part), group.tried | {ask.name}, group.quiet) for part in parts.values() if len(part) > 1]


def _order(subjects: Sequence[Subject], asked: list[Ask], quiet: frozenset[str], bench: Bench) -> list[Ask]:
    """What is known to show one of them comes first: the others are likely to pass. Then by turns an ask that tests
    what they break, where faults that do little differ, and a cheap one, where those pass that do much; of either one
    ask of each scenario before another of any. What parted others goes before what did not."""
    together = Subject("", "", "", tuple(sorted({broken for subject in subjects for broken in subject.breaks})))
    firsts = {subject.first for subject in subjects}
    near = _scenarios(bench.ordered(asked, together))
    cheap = _scenarios(sorted(asked, key=lambda ask: ask.cost))
    turns = dict.fromkeys(ask for ask in chain(*zip_longest(near, cheap)))
    return sorted(turns, key=lambda ask: (ask.name in quiet, ask.name not in firsts, -bench.parted[ask.name]))


def _scenarios(asked: Iterable[Ask]) -> list[Ask]:
    seen: Counter[str] = Counter()
    turn = {}
    for ask in asked:
        turn[ask] = seen[ask.case.name]
        seen[ask.case.name] += 1
    return sorted(turn, key=turn.__getitem__)
