"""The score as it is printed: a line a fault, a table of classes, survivors, the hardest, a cover, pairs alike."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TextIO

from harness.kills import Ask, Found, cover, deadly
from harness.sabotage import equivalents
from harness.sabotage.faults import OUTSIDE
from harness.sabotage.words import names
from harness.scoring import Settings
from reports import keep

HARDEST = 10


class Scorecard:
    """Prints a score to `out` while it is made; `#` before everything that is not a fault."""

    def __init__(self, settings: Settings, asked: Sequence[Ask], out: TextIO):
        self.settings, self.asked, self.out = settings, asked, out

    def claim(self) -> None:
        """Takes the file of --json, before anything runs. An earlier score is put aside. Raises ValueError for a file
        of something else and where none can be written."""
        path = self.settings.json
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file() and path.stat().st_size:
                if not _holds_score(path):
                    raise ValueError(f"{path} is there already and is no score; it is left as it is")
                self.note(f"an earlier score is now {keep.put_aside(path)}")
            path.open("a").close()
        except OSError as error:
            raise ValueError(f"score {path} cannot be written: {error.strerror or error}") from error

    def header(self, subjects: int) -> None:
        worlds = ",".join(map(str, sorted({ask.case.world for ask in self.asked})))
        cases = len({ask.case.id for ask in self.asked})
        what = "mutants" if self.settings.mutants else "faults"
        self.note(f"ringcheck score  {subjects} {what}  {cases} cases of "
                  f"{' '.join(self.settings.cases)}  {len(self.asked) - cases} of them timed as well  ranks {worlds}")
        self.note(f"{'fault':38} {'class':10} {'killed by':44} {'tried':>5}  first line")

    def row(self, one: Found) -> None:
        killer = one.killer.name if one.killer else "- takes its process down" if one.crashed else "- survives"
        killer = "- only errors" if one.broken else killer
        said = one.subject.detail or one.said
        self.say(f"{one.subject.name:40} {one.subject.group:10} {killer:44} {len(one.verdicts):5}  {said}")
        self._write(line(one))

    def end(self, found: list[Found], seconds: float, tier_seconds: float | None) -> None:
        """All that follows the last fault."""
        self._classes(found)
        self._survivors(found)
        self._hardest(found)
        self._cover(found)
        if self.settings.matrix:
            self._alike(found)
        sums = totals(found, seconds, tier_seconds)
        self._sums(sums)
        self._write(sums)

    def note(self, text: str) -> None:
        self.say(f"# {text}")

    def say(self, text: str) -> None:
        print(text.rstrip(), file=self.out, flush=True)

    def _classes(self, found: list[Found]) -> None:
        self.note(f"{'class':12} {'faults':>6} {'killed':>6} {'named':>6}")
        for group, own in by_class(found).items():
            self.note(f"{group:12} {len(own):6} {sum(one.killed for one in own):6} {sum(map(named, own)):6}")

    def _survivors(self, found: list[Found]) -> None:
        for one in found:
            if not one.killed:
                what = "raises or hangs, and never answers wrongly" if one.broken else "survives"
                why = excused(one)
                detail = f"  {one.subject.detail}" if one.subject.detail else ""
                self.note(f"{one.subject.name} {what} ({len(one.verdicts)} trials){detail}{f': {why}' if why else ''}")

    def _hardest(self, found: list[Found]) -> None:
        killed = sorted((one for one in found if one.killer), key=lambda one: (share(one), one.subject.name))
        what = "share of cases that kill" if self.settings.matrix else "share of tried cases that kill"
        self.note(f"the hardest ({what})")
        for one in killed[:HARDEST]:
            self.note(f"  {one.subject.name:38} {share(one):7.2%}  {one.killer.name}")

    def _cover(self, found: list[Found]) -> None:
        chosen = cover(found)
        seen = "" if self.settings.matrix else ", among the trials made"
        self.note(f"{len(chosen)} cases kill all that were killed (chosen greedily{seen})")
        for name in chosen:
            self.note(f"  {name}")

    def _alike(self, found: list[Found]) -> None:
        pairs = alike(found)
        self.note(f"{len(pairs)} pairs of faults have the same verdict everywhere")
        for one, other in pairs:
            self.note(f"  {one}  {other}")

    def _sums(self, sums: dict[str, Any]) -> None:
        faulty, killed, rightly = sums["faults"], sums["killed"], sums["named"]
        told = f", class named in the first line {rightly}/{killed} ({rightly / max(1, killed):.1%})"
        if self.settings.mutants:
            told = f", {sums['excused']} of the rest equivalent, by ERROR alone {sums['by_error']}"
        self.note(f"killed {killed}/{faulty} ({killed / max(1, faulty):.1%}){told}")
        if sums["outside"]:
            share = sums["outside_named"] / sums["outside"]
            self.note(f"of them from people who had not seen the diagnosis: {sums['outside']}, class named "
                      f"{sums['outside_named']} ({share:.1%})")
        self.note(f"scored in {sums['seconds']:.1f} s by {self.settings.jobs} processes")
        if sums["tier_seconds"] is not None:
            self.note(f"tier {self.settings.tier} takes {sums['tier_seconds']:.1f} s on the ring in one process")

    def _write(self, line: dict[str, Any]) -> None:
        if self.settings.json:
            with self.settings.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _holds_score(path: Path) -> bool:
    """Whether the first line of a file is one of a score."""
    with path.open("rb") as file:
        try:
            first = json.loads(file.readline())
        except ValueError:
            return False
    return isinstance(first, dict) and bool({"fault", "faults"} & first.keys())


def line(one: Found) -> dict[str, Any]:
    """One subject as a JSON line."""
    subject, killer = one.subject, one.killer
    return {"fault": subject.name, "class": subject.group, "spec": subject.spec, "breaks": subject.breaks,
            "detail": subject.detail, "killed": killer and killer.name, "world": killer and killer.case.world,
            "crashed": one.crashed, "said": one.said, "named": named(one), "seconds": one.seconds,
            "verdicts": one.verdicts}


def named(one: Found) -> bool:
    """Whether the first line of the failure names the fault's class."""
    return one.killed and not one.subject.crashes and names(one.said or "", one.subject.group)


def excused(one: Found) -> str | None:
    """Why a mutant that survives changes nothing, where somebody has judged so."""
    return equivalents.reason(one.subject.spec) if one.subject.crashes else None


def share(one: Found) -> float:
    """Verdicts that kill among all."""
    verdicts = list(one.verdicts.values())
    return sum(verdict in deadly(one.subject) for verdict in verdicts) / max(1, len(verdicts))


def by_class(found: Iterable[Found]) -> dict[str, list[Found]]:
    own: dict[str, list[Found]] = defaultdict(list)
    for one in found:
        own[one.subject.group].append(one)
    return own


def alike(found: Iterable[Found]) -> list[tuple[str, str]]:
    """Pairs whose verdicts agree in every trial that both had."""
    return [(one.subject.name, other.subject.name) for one, other in combinations(found, 2)
            if all(other.verdicts.get(name, verdict) == verdict for name, verdict in one.verdicts.items())]


def totals(found: list[Found], seconds: float, tier_seconds: float | None) -> dict[str, Any]:
    """The sums of a score."""
    outside = [one for one in found if one.subject.group in OUTSIDE and one.killed]
    return {"outside": len(outside), "outside_named": sum(map(named, outside)),
            "faults": len(found), "killed": sum(one.killed for one in found), "named": sum(map(named, found)),
            "excused": sum(1 for one in found if not one.killed and excused(one)),
            "by_error": sum(1 for one in found if one.killed and "FAIL" not in one.verdicts.values()),
            "seconds": seconds, "tier_seconds": tier_seconds}
