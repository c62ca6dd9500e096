"""What a page or a summary shows: trials of several files put in order and counted. Plain values, no markup."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from reports import metrics
from reports.metrics import Trial
from reports.record import Results, Run

VERDICTS = ("PASS", "FAIL", "ERROR", "SKIP")
WORST = ("FAIL", "ERROR", "PASS", "SKIP")
ALL_WORLDS_UP_TO = 48
LONGEST = 300


def latest(files: Iterable[Results]) -> list[Trial]:
    """Every trial once, in the order of their runs: a repeated one counts as its last run, in whatever file. Where two
    runs began in the same second and neither goes on with the other, the worse verdict counts: which was the last
    nobody knows, and no failure hides behind it."""
    runs = sorted((run for results in files for run in results.runs), key=time_of)
    found: dict[tuple, tuple[Trial, Run]] = {}
    for trial, run in ((trial, one) for one in runs for trial in one.trials):
        case, implementation = trial["case"], trial["implementation"]
        asked = (case["id"], case.get("digest"), str(case.get("seed")))
        key = (*asked, *(implementation.get(name) for name in ("spec", "name", "device")))
        earlier = found.get(key)
        if not earlier or replaces(trial, run, *earlier):
            found[key] = trial, run
    return [trial for trial, _ in found.values()]


def time_of(run: Run) -> str:
    return run.header.get("time") or ""


def replaces(trial: Trial, run: Run, earlier: Trial, of: Run) -> bool:
    """Whether a record counts in the place of one that stands before it."""
    known = run is of or time_of(run) > time_of(of) or goes_on(of, run)
    return known or WORST.index(trial["verdict"]) <= WORST.index(earlier["verdict"])


@dataclass(frozen=True)
class Cut:
    """The last run of a file, when it did fewer trials than it was asked for; None where the file does not say."""

    path: str
    done: int
    asked: int | None
    ended: bool
    running: bool = False

    def __str__(self) -> str:
        if self.asked:
            share = f" ({100 * self.done // self.asked} %)" if self.running else ""
            return f"{self.state}: {self.done} of {some(self.asked, 'trial')}{share}"
        return f"{self.state}, {some(self.done, 'trial')} so far" if self.running else \
            f"{self.state} after {some(self.done, 'trial')}"

    @property
    def state(self) -> str:
        return "goes on" if self.running else "ended early" if self.ended else "cut"


def cuts(files: Iterable[Results]) -> list[Cut]:
    """Runs that are not whole and that no later run of their file goes on with: the last one, and in a file that was
    merged any other."""
    found = []
    for results in files:
        for number, run in enumerate(results.runs):
            cut = cut_of(results.path, run, results.running and run is results.runs[-1])
            if cut and not any(goes_on(run, later) for later in results.runs[number + 1:]):
                found.append(cut)
    return found


def cut_of(path: str, run: Run, running: bool = False) -> Cut | None:
    settings = run.header.get("settings") or {}
    asked, kept = (value if isinstance(value := settings.get(name), int) else None for name in ("asked", "kept"))
    done = len(run.trials) + run.lost + (kept or 0)
    whole = run.end is not None and not (asked and done < asked)
    return None if whole else Cut(path, done, asked, run.end is not None, running)


def goes_on(run: Run, later: Run) -> bool:
    """Whether `later` is a --resume of `run`, or `run` has lost the header that would tell."""
    one, other = (each.header.get("settings") or {} for each in (run, later))
    same = all(one.get(name) == other.get(name) for name in ("implementations", "cases"))
    return not run.header or same and "--resume" in (later.header.get("argv") or [])


def labels(trials: Iterable[Trial]) -> Callable[[Trial], str]:
    """What tells implementations apart: their name, how they were asked for where names are shared, and the device
    where there are several."""
    made = [trial["implementation"] for trial in trials]
    specs = defaultdict(set)
    for one in made:
        specs[one.get("name")].add(one.get("spec"))
    several = len({one.get("device") for one in made}) > 1

    def label(trial: Trial) -> str:
        one = trial["implementation"]
        name = one.get("name") or one.get("spec") or "?"
        if len(specs[one.get("name")]) > 1:
            name = one.get("spec") or name
        return f"{name} on {one.get('device')}" if several else name

    return label


def counts(trials: Iterable[Trial]) -> dict[str, int]:
    """Trials by verdict, all four verdicts present."""
    found = Counter(trial["verdict"] for trial in trials)
    return {verdict: found[verdict] for verdict in VERDICTS}


def strict_counts(trials: Iterable[Trial]) -> dict[str, int]:
    """Trials that a strict rule judged, PASS and FAIL."""
    found = Counter(metrics.strict_verdict(trial) for trial in trials)
    return {verdict: found[verdict] for verdict in ("PASS", "FAIL")}


def some(number: int, thing: str) -> str:
    """A number of things in words: `1 trial`, `2 trials`."""
    return f"{number:d} {thing}{'' if number == 1 else 's'}"


def unread(files: Iterable[Results]) -> str:
    """How much of these files could not be read: `2 lines and 1 field could not be read`; empty where all was."""
    damage = [one for results in files for one in results.damage]
    kinds = ((sum(one.whole and one.line > 0 for one in damage), "line"), (sum(not one.line for one in damage), "file"),
             (sum(not one.whole for one in damage), "field"))
    told = [some(number, thing) for number, thing in kinds if number]
    return f"{' and '.join(told)} could not be read" if told else ""


def left_out(files: Iterable[Results]) -> list[str]:
    """What could not be read, one line each: file, line, field, why."""
    return [words for results in files for words in results.left_out]


def few_lines(lines: Sequence[str], count: int) -> list[str]:
    """At most so many lines; where some are left out the last one counts them."""
    return list(lines) if len(lines) <= count else [*lines[: count - 1], f"and {len(lines) - count + 1} more"]


def headline(trials: list[Trial], cut: Sequence[Cut] = (), unread: str = "") -> str:
    """The run in one line; what is missing of it comes first. `unread` is what could not be read, in words."""
    found = counts(trials)
    judged = len(trials) - found["SKIP"]
    wrong = [
        f"{found[verdict]} {word}"
        for verdict, word in (("FAIL", "failed"), ("ERROR", "ended in error"))
        if found[verdict]
    ]
    passed = f"All {judged} trials passed" if judged > 1 else "1 trial passed"
    told = f"{' and '.join(wrong)} of {some(judged, 'trial')}" if wrong else passed
    told = told if judged else "Nothing ran"
    missing = [str(cut[0]) + (f" and {some(len(cut) - 1, 'more cut run')}" if len(cut) > 1 else "")] if cut else []
    line = "; ".join([*missing, *([unread] if unread else []), told[0].lower() + told[1:]])
    return f"{line[0].upper()}{line[1:]}"


def summed(files: Sequence[Results]) -> str:
    """The headline of these files."""
    return headline(latest(files), cuts(files), unread(files))


def named(files: Iterable[Results]) -> list[Results]:
    """The same files under the names that tell them apart, in the order of these: the file's own name, with as many of
    its folders as it takes where several share it. What is made of records says nothing of where they lie."""
    files = list(files)
    found = [replace(results, path=name) for results, name in zip(files, names(files), strict=True)]
    return sorted(found, key=lambda one: one.path)


def shortened(files: Iterable[Results]) -> list[Results]:
    """The same results with every text that says what a trial is at most LONGEST characters long, told apart by a
    digest where it is cut: a page names a trial many times."""
    return [replace(results, runs=[replace(run, trials=[_short_trial(trial) for trial in run.trials])
                                   for run in results.runs]) for results in files]


def _short_trial(trial: Trial) -> Trial:
    parts = {name: {key: _short(value) for key, value in trial[name].items()} for name in ("case", "implementation")}
    return trial if all(parts[name] == trial[name] for name in parts) else {**trial, **parts}


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(item) for item in value[:LONGEST]]
    if isinstance(value, (dict, str)) and len(text := str(value)) > LONGEST:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters, {digest})"
    return value


def names(files: Sequence[Results]) -> list[str]:
    """What tells these files apart, as short as can be; a file that is given twice has one name."""
    lengths = {PurePath(results.path): 1 for results in files}
    while True:
        told = {path: PurePath(*path.parts[-length:]).as_posix() for path, length in lengths.items()}
        shared = Counter(told.values())
        longer = {path: length + (shared[told[path]] > 1 and length < len(path.parts))
                  for path, length in lengths.items()}
        if longer == lengths:
            return [told[PurePath(results.path)] for results in files]
        lengths = longer


def failures(trials: Iterable[Trial]) -> list[Trial]:
    """Failed trials, then those that ended in error."""
    return sorted((t for t in trials if t["verdict"] in ("FAIL", "ERROR")), key=lambda t: t["verdict"] == "ERROR")


def unlike(failures: Iterable[Trial], count: int = 3) -> set[int]:
    """id()s of the first failures that say unlike things, numbers aside; those that say the same can wait."""
    found: dict[str, int] = {}
    for trial in failures:
        told = (trial.get("diagnosis") or {}).get("headline") or (trial.get("reason") or "").split("\n")[0]
        found.setdefault(re.sub(r"\d+", "#", told), id(trial))
    return set(list(found.values())[:count])


def strict_failures(trials: Iterable[Trial]) -> list[tuple[Trial, dict]]:
    """Trials that miss a strict rule, with their worst strict deviation."""
    return [(t, metrics.worst(t, "strict")) for t in trials if metrics.strict_verdict(t) == "FAIL"]


def skips(trials: Iterable[Trial], label: Callable[[Trial], str]) -> list[tuple[str, str, list[str]]]:
    """Implementations and their reasons for skipping with the ids they hit, most frequent first."""
    found = defaultdict(list)
    for trial in trials:
        if trial["verdict"] == "SKIP":
            found[label(trial), trial.get("reason") or "no reason given"].append(trial["case"]["id"])
    return sorted(((*key, ids) for key, ids in found.items()), key=lambda item: (-len(item[2]), item[:2]))


def few(ids: list[str], count: int = 3) -> str:
    """The first ids and how many more."""
    return ", ".join(ids[:count]) + (f" and {len(ids) - count} more" if len(ids) > count else "")


def grouped(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Trials by case group, in order of appearance."""
    found = defaultdict(list)
    for trial in trials:
        found[trial["case"].get("group") or "other"].append(trial)
    return dict(found)


def by_world(trials: list[Trial]) -> dict[str, Any]:
    """A table of counts: a row a group of cases, a column a world."""
    cells: dict[tuple[str, int], list[Trial]] = defaultdict(list)
    for trial in trials:
        cells[trial["case"].get("group") or "other", trial["case"].get("world", 0)].append(trial)
    worlds = sorted({world for _, world in cells})
    names = sorted({row for row, _ in cells})
    table = {row: [counts(cells[row, world]) if (row, world) in cells else None for world in worlds] for row in names}
    return {"worlds": worlds, "rows": table}


def pictured(trials: Iterable[Trial]) -> list[Trial]:
    """One trial for every mask picture: name, layout and world once; only the largest world when many."""
    found: dict[tuple, Trial] = {}
    for trial in trials:
        if trial.get("picture"):
            case = trial["case"]
            found.setdefault((case.get("name"), layout(trial), case.get("world")), trial)
    if len(found) > ALL_WORLDS_UP_TO:
        largest: dict[tuple, int] = {}
        for name, where, world in found:
            largest[name, where] = max(world, largest.get((name, where), 0))
        found = {key: trial for key, trial in found.items() if largest[key[0], key[1]] == key[2]}
    return list(found.values())


def layout(trial: Trial) -> str:
    """The layout that ran, as the implementation names it."""
    return trial["implementation"].get("layout") or trial["case"].get("layout") or ""


def ratios(trials: Iterable[Trial], label: Callable[[Trial], str] | None = None) -> dict[str, list[float]]:
    """Required error/budget ratios by tensor and dtype, and by implementation where a `label` tells them apart."""
    found = defaultdict(list)
    for trial in trials:
        for deviation in trial.get("deviations") or []:
            if deviation.get("ratio") is not None and deviation.get("level", "required") == "required":
                dtype = str(trial["case"].get("dtype") or "?")
                row = deviation.get("tensor") or "?", dtype, label(trial) if label else ""
                found[row].append(deviation["ratio"])
    tensors = ("out", "lse", "dq", "dk", "dv")

    def order(row: tuple[str, str, str]) -> tuple:
        return row[1], [*tensors, row[0]].index(row[0]), row

    return {" ".join(filter(None, row)): found[row] for row in sorted(found, key=order)}


def value(of: Callable[[Trial], float | None], trial: Trial) -> float | None:
    """A metric of a trial; None also where a foreign record holds numbers that allow no figure."""
    try:
        return of(trial)
    except (ArithmeticError, TypeError, ValueError, LookupError):
        return None


def clip(text: object, longest: int = 3000) -> str:
    """At most so many characters, and how many more the record has."""
    text = str(text)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest} more characters)"


def slowest(trials: Iterable[Trial], count: int = 5) -> list[Trial]:
    """Trials by wall time, longest first."""
    return sorted(trials, key=lambda t: (-(t.get("seconds") or 0), t["case"].get("id", "")))[:count]


def furthest(trials: Iterable[Trial], count: int = 5) -> list[tuple[Trial, dict]]:
    """Trials by worst error/budget, largest first, with the deviation."""
    pairs = [(t, d) for t in trials if (d := metrics.worst(t))]
    return sorted(
        pairs,
        key=lambda p: (-p[1]["ratio"] if p[1]["ratio"] == p[1]["ratio"] else float("-inf"), p[0]["case"].get("id", "")),
    )[:count]
