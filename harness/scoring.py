"""The command line of the score: flags -> Settings, or one clear line about what is wrong."""

import argparse
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

from cases import catalogue
from cases.case import WORLDS, Case
from harness.arguments import counts, names, natural, tier
from harness.kills import Subject
from harness.sabotage import faults, mutants, shown


@dataclass(frozen=True)
class Settings:
    """What a score was asked to do."""

    cases: tuple[str, ...]
    tier: str | None
    worlds: tuple[int, ...]
    dtypes: tuple[str, ...] | None
    layouts: tuple[str, ...] | None
    faults: tuple[str, ...]
    mutants: bool
    sample: int | None
    seed: int
    jobs: int
    matrix: bool
    smallest: bool
    apart: bool
    listing: bool
    json: Path | None

    @property
    def limit(self) -> float:
        """Seconds that a trial may take; mutants that wait for nobody are many."""
        return 5.0 if self.mutants else 20.0

    def subjects(self) -> list[Subject]:
        """What is to be killed. Raises ValueError when a pattern chooses nothing."""
        if self.mutants:
            drawn = [one for one in mutants.sample(self.sample, self.seed) if self._asked(one.name, one.module)]
            if not drawn:
                known = ", ".join(mutants.MODULES)
                raise ValueError(f"no mutant matches {', '.join(self.faults)}: modules are {known}")
            return [Subject(one.name, one.module, one.spec, crashes=True, detail=str(one)) for one in drawn]
        return [Subject(name, faults.GROUPS[name], f"sabotage:{name}", faults.FAULTS[name].breaks, shown.case_of(name))
                for name in self.names()]

    def chosen(self) -> list[Case]:
        """The cases. Raises ValueError when a pattern chooses none."""
        return catalogue.select(self.cases, self.worlds, self.layouts, self.dtypes, self.seed)

    def names(self) -> list[str]:
        """The faults that are asked for by name, class or wildcard; those that lose a rank are no wrong answers.

        Raises ValueError when a pattern chooses none.
        """
        scored = [name for name, kind in faults.FAULTS.items() if not kind.lost]
        for pattern in self.faults:
            if not any(_chosen(name, faults.GROUPS[name], pattern) for name in scored):
                known = ", ".join(dict.fromkeys(faults.GROUPS.values()))
                raise ValueError(f"no fault matches {pattern!r}: classes are {known}")
        return [name for name in scored if self._asked(name, faults.GROUPS[name])]

    def _asked(self, name: str, group: str) -> bool:
        return any(_chosen(name, group, pattern) for pattern in self.faults)


def _chosen(name: str, group: str, pattern: str) -> bool:
    return group == pattern or fnmatchcase(name, pattern)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse(argv: list[str]) -> Settings:
    """Settings from arguments. Raises ValueError with one line."""
    made = _Parser(prog="ringcheck score", allow_abbrev=False, description="What a set of cases catches.")
    add = made.add_argument
    add("--cases", nargs="+", action="extend", metavar="PATTERN", help="as of ringcheck (default: default)")
    add("--tier", choices=tuple(catalogue.TIERS), help="smoke, default or deep in place of --cases, and its own time")
    add("--ranks", type=counts, metavar="N", help="numbers of ranks (default 1,2,3,4)")
    add("--dtype", type=names, metavar="NAME")
    add("--layout", type=names, metavar="NAME")
    add("--faults", type=names, default=("*",), metavar="PATTERN",
        help="names, classes or wildcards (of mutants MODULE or MODULE/NUMBER); commas separate")
    add("--mutants", action="store_true", help="automatic mutants of ringcp's source in place of faults")
    add("--sample", type=natural, metavar="N", help="so many mutants, drawn by --seed")
    add("--seed", type=natural, default=7, metavar="N")
    add("--jobs", type=natural, default=os.cpu_count() or 1, metavar="N", help="processes (default: one a core)")
    add("--matrix", action="store_true", help="every case on every fault: true cover, faults that look alike")
    add("--smallest", action="store_true", help="then looks for a cheaper case that shows each fault")
    add("--list", action="store_true", help="prints the chosen faults or mutants and runs nothing")
    add("--apart", action="store_true", help="only looks for faults that no case tells apart")
    add("--json", type=Path, metavar="FILE", help="one line a fault, then the sums")
    given = made.parse_args(argv)
    if given.sample is not None and not given.mutants:
        raise ValueError("--sample goes with --mutants")
    if given.sample == 0:
        raise ValueError("--sample 0 draws no mutant")
    if not given.faults:
        raise ValueError("--faults names nothing")
    cases, worlds = tier(given.tier, given.cases, given.ranks or ())
    return Settings(cases, given.tier, worlds or WORLDS, given.dtype, given.layout, given.faults, given.mutants,
                    given.sample, given.seed, max(1, given.jobs), given.matrix, given.smallest, given.apart, given.list,
                    given.json)
