"""OLD and NEW: what each side's files hold, the latest record of a trial once, and which records belong together."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports import view
from reports.compare import environment
from reports.record import Results, read_all

Trial = dict[str, Any]


@dataclass(frozen=True)
class Taken:
    """A trial with the header of its run."""

    trial: Trial
    header: dict[str, Any]

    @property
    def name(self) -> tuple[str, str]:
        """Case id and how the implementation was asked for."""
        made = self.trial["implementation"]
        return self.trial["case"]["id"], str(made.get("spec") or made.get("name") or "?")

    @property
    def kind(self) -> tuple:
        """What one side may have side by side under one name."""
        return self.trial["implementation"].get("device"), self.trial["case"].get("seed")

    @property
    def key(self) -> environment.Key | None:
        return environment.key(self.header)


Pair = tuple[Taken | None, Taken | None]


def files(paths: Iterable[str | Path]) -> list[Results]:
    """Results of these files, and of all *.jsonl right in these folders. Raises ValueError, the path named, for what
    cannot be opened, and where no file holds a record."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise ValueError(f"folder {path} holds no results file (*.jsonl)")
        found += inside
    return read_all(found)


def taken(results: Sequence[Results]) -> list[Taken]:
    """Every trial once: its last run counts, in whatever file, also where its case was another one before."""
    headers = {id(trial): run.header for one in results for run in one.runs for trial in run.trials}
    trials = [Taken(trial, headers[id(trial)]) for trial in view.latest(results)]
    trials.sort(key=lambda one: one.header.get("time") or "")
    return list({(one.name, one.kind): one for one in trials}.values())


def pairs(old: Iterable[Taken], new: Iterable[Taken]) -> list[Pair]:
    """Trials of one name together: of equal device and seed first, then what is left of it. The order of the trials
    does not matter."""
    named: dict[tuple[str, str], tuple[dict, dict]] = defaultdict(lambda: ({}, {}))
    for side, trials in enumerate((old, new)):
        for one in trials:
            named[one.name][side][one.kind] = one
    found: list[Pair] = []
    for _, (before, after) in sorted(named.items()):
        both = sorted((kind for kind in before if kind in after), key=repr)
        found += [(before.pop(kind), after.pop(kind)) for kind in both]
        left, right = ([side[kind] for kind in sorted(side, key=repr)] for side in (before, after))
        size = max(len(left), len(right))
        found += zip(left + [None] * (size - len(left)), right + [None] * (size - len(right)), strict=True)
    return found
