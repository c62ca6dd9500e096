"""What a figure calls a trial: its implementation, world and dtype where they differ, its mask."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from reports import view
from reports.figures.values import items
from reports.metrics import Trial

SIZE = re.compile(r"-\d+[kKmM]?(?=-|$)")
Kind = TypeVar("Kind")


def case(trial: Trial, name: str) -> str:
    """A field of the case as a word, "?" where it is not there."""
    value = trial["case"].get(name)
    return "?" if value is None else str(value)


def unsized(trial: Trial) -> str:
    """The name of the case without a size in it: causal-64k and causal-128k are one problem."""
    return SIZE.sub("", case(trial, "name"))


def world(trial: Trial) -> int:
    return max(1, trial["case"]["world"])


def rules(trial: Trial) -> str:
    """The rules of the mask, which tell kinds of work apart; its group where they were not recorded."""
    told = " & ".join(str(rule) for rule in items(trial["case"].get("rules")))
    return told or str(trial["case"].get("mask") or trial["case"].get("group") or "other")


def series(trials: Sequence[Trial], label: Callable[[Trial], str] | None = None) -> Callable[[Trial], str]:
    """Implementation and world, and the dtype where there are several."""
    label = label or view.labels(trials)
    several = len({case(trial, "dtype") for trial in trials}) > 1

    def told(trial: Trial) -> str:
        return f"{label(trial)} w{world(trial)}" + (f" {case(trial, 'dtype')}" if several else "")

    return told


def drawable(trials: Sequence[Trial], count: int) -> tuple[Callable[[Trial], str], list[str], str]:
    """What series are called, the at most `count` that are drawn, in order, and a sentence on the others.

    Where there are too many, one world stands for all: beyond 1 the one that most implementations have, or the largest.
    """
    label = view.labels(trials)
    called = series(trials, label)
    order = {called(trial): (label(trial), world(trial), case(trial, "dtype")) for trial in trials}
    kept = list(trials)
    if len(order) > count:
        has = defaultdict(set)
        for trial in trials:
            has[world(trial)].add(label(trial))
        chosen = max(has, key=lambda one: (one > 1, len(has[one]), one))
        kept = [trial for trial in trials if world(trial) == chosen]
    kinds, _ = most((called(trial) for trial in kept), count)
    return called, sorted(kinds, key=order.__getitem__), left_out(len(order) - len(kinds), "series")


def most(kinds: Iterable[Kind], count: int) -> tuple[list[Kind], int]:
    """The `count` kinds that occur most, in order of appearance, and how many kinds were left out."""
    found = Counter(kinds)
    kept = {kind for kind, _ in sorted(found.items(), key=lambda item: -item[1])[:count]}
    return [kind for kind in found if kind in kept], len(found) - len(kept)


def left_out(count: int, what: str) -> str:
    """A sentence for the caption, where something is not drawn."""
    return f" More {what} are in the table only: {count}." if count else ""
