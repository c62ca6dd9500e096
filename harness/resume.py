"""What `--resume` keeps of a results file, and what it repeats because it was asked otherwise then."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cases.case import Case
from harness import trials
from harness.arguments import Settings
from reports.record import Results, Run

Asked = list[tuple[Case, str]]
TOLD = (("settings", "iters"), ("settings", "warmup"), ("settings", "timeout"), ("environment", "torch"),
        ("environment", "ringcheck"), ("environment", "commit"))
LACKING = {"reason": None, "deviations": [], "diagnosis": None}


@dataclass(frozen=True)
class Kept:
    """Records that stand beside those of this run, the asked trials that they answer, and what to say of it."""

    records: list[dict[str, Any]] = field(default_factory=list)
    done: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()


def keep(found: Results, asked: Asked, settings: Settings, about: dict[str, Any]) -> Kept:
    """`about` is the environment of this run. A trial counts as done when it was made on the same device and backend,
    held to the same truth, and timed if times are asked for; one that was made otherwise is repeated."""
    cases = {(case.digest, spec): case for case, spec in asked}
    last = {key(trial): (trial, run) for run in found.runs for trial in run.trials}
    fits = {place: reasons(*last[place], cases[place[:2]], settings, about) for place in last
            if place[:2] in cases and place[2] == settings.device}
    repeated = {reason for found in fits.values() for reason in found}
    anew = [place for place, found in fits.items() if found]
    kept = {place: pair for place, pair in last.items() if place not in anew}
    notes = [f"{len(kept)} trials of {found.path} are kept"]
    if anew:
        notes.append(f"{len(anew)} are repeated, made with another {', '.join(sorted(repeated))}")
    done = {place for place in fits if place in kept}
    errors = sum(kept[place][0]["verdict"] == "ERROR" for place in done)
    if errors:
        notes.append(f"{errors} of them are errors, which are not asked again")
    notes += differences([kept[place][1] for place in kept if place in done], settings, about)
    return Kept([LACKING | trial for trial, _ in kept.values()], frozenset(place[:2] for place in done), tuple(notes))


def key(trial: dict[str, Any]) -> tuple[str | None, ...]:
    made = trial["implementation"]
    return trial["case"].get("digest") or trial["case"]["id"], made.get("spec"), made.get("device")


def reasons(trial: dict[str, Any], run: Run, case: Case, settings: Settings, about: dict[str, Any]) -> list[str]:
    """In what a recorded trial is not what is asked for now."""
    then, there = run.header.get("settings") or {}, run.header.get("environment") or {}
    truth = trials.kind_of(case, then["truth"]) if then.get("truth") in trials.CHOICES else trial.get("truth", "dense")
    timed = then.get("iters", trial.get("measurement"))
    found = ["truth"] if truth != trials.kind_of(case, settings.truth) else []
    found += ["iters"] if settings.timing.iters and not timed else []
    return found + (["backend"] if there.get("backend", about["backend"]) != about["backend"] else [])


def differences(runs: list[Run], settings: Settings, about: dict[str, Any]) -> list[str]:
    """What was otherwise when the trials that count were made, one line a value."""
    now = {"iters": settings.timing.iters, "warmup": settings.timing.warmup, "timeout": settings.timeout, **about}
    lines = []
    for part, name in TOLD:
        then = Counter(str((run.header.get(part) or {}).get(name, now.get(name))) for run in runs)
        lines += [f"{count} of them were made with {name} {value}, not {now.get(name)}"
                  for value, count in then.items() if value != str(now.get(name))]
    return lines
