"""Trials that take turns: each pauses between its laps, so that those of several implementations alternate."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

Made = TypeVar("Made")
Turns = Generator[None, None, Made]
Record = dict[str, Any]


def alone(trial: Turns[Made]) -> Made:
    """Runs a trial to its end without a pause, and gives what it returns."""
    while True:
        try:
            next(trial)
        except StopIteration as end:
            return end.value


def alternate(trials: dict[str, Turns[Made]], begun: Callable[[str], None]) -> dict[str, Made]:
    """What each trial returns, by name: each runs to its next pause in its turn. `begun` hears whose turn it is."""
    found: dict[str, Made] = {}
    while len(found) < len(trials):
        for name in [name for name in trials if name not in found]:
            begun(name)
            try:
                next(trials[name])
            except StopIteration as end:
                found[name] = end.value
    return {name: found[name] for name in trials}
