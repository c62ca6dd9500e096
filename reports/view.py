"""What a page or a summary shows: trials of several files put in order and counted. Plain values, no markup."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from reports import metrics
from reports.metrics import Trial
from reports.record import Results

VERDICTS = ("PASS", "FAIL", "ERROR", "SKIP")
ALL_WORLDS_UP_TO = 48


def latest(files: Iterable[Results]) -> list[Trial]:
    """Every trial once, in the order of the files: a repeated one (`--resume`) counts as its last run."""
    found: dict[tuple, Trial] = {}
    for results in files:
        for trial in results.trials:
            case, implementation = trial["case"], trial["implementation"]
            found[
                case.get("id"),
                case.get("digest"),
                case.get("seed"),
                implementation.get("name"),
                implementation.get("device"),
            ] = trial
    return list(found.values())


def counts(trials: Iterable[Trial]) -> dict[str, int]:
    """Trials by verdict, all four verdicts present."""
    found = Counter(trial["verdict"] for trial in trials)
    return {verdict: found[verdict] for verdict in VERDICTS}


def strict_counts(trials: Iterable[Trial]) -> dict[str, int]:
    """Trials that a strict rule judged, PASS and FAIL."""
    found = Counter(metrics.strict_verdict(trial) for trial in trials)
    return {verdict: found[verdict] for verdict in ("PASS", "FAIL")}


def headline(trials: list[Trial]) -> str:
    """The run in one line."""
    found = counts(trials)
    judged = len(trials) - found["SKIP"]
    wrong = [
        f"{found[verdict]} {word}"
        for verdict, word in (("FAIL", "failed"), ("ERROR", "ended in error"))
        if found[verdict]
    ]
    if not judged:
        return "Nothing ran"
    return f"{' and '.join(wrong)} of {judged} trials" if wrong else f"All {judged} trials passed"


def failures(trials: Iterable[Trial]) -> list[Trial]:
    """Failed trials, then those that ended in error."""
    return sorted((t for t in trials if t["verdict"] in ("FAIL", "ERROR")), key=lambda t: t["verdict"] == "ERROR")


def strict_failures(trials: Iterable[Trial]) -> list[tuple[Trial, dict]]:
    """Trials that miss a strict rule, with their worst strict deviation."""
    return [(t, metrics.worst(t, "strict")) for t in trials if metrics.strict_verdict(t) == "FAIL"]


def skips(trials: Iterable[Trial]) -> list[tuple[str, list[str]]]:
    """Reasons for skipping with the ids they hit, most frequent first."""
    found = defaultdict(list)
    for trial in trials:
        if trial["verdict"] == "SKIP":
            found[trial.get("reason") or "no reason given"].append(trial["case"].get("id", "?"))
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def grouped(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Trials by case group, in order of appearance."""
    found = defaultdict(list)
    for trial in trials:
        found[trial["case"].get("group") or "other"].append(trial)
    return dict(found)


def by_world(trials: list[Trial], rows_of: Callable[[Trial], Iterable[str]]) -> dict[str, Any]:
    """A table of counts: a row a value of `rows_of` (group, requirement), a column a world."""
    cells: dict[tuple[str, int], list[Trial]] = defaultdict(list)
    for trial in trials:
        for row in rows_of(trial):
            cells[row, trial["case"].get("world", 0)].append(trial)
    worlds = sorted({world for _, world in cells})
    names = sorted(
        {row for row, _ in cells}, key=lambda row: (row[:1], len(row), row) if row[1:].isdigit() else (row, 0, "")
    )
    table = {row: [counts(cells[row, world]) if (row, world) in cells else None for world in worlds] for row in names}
    return {"worlds": worlds, "rows": table}


def groups_of(trial: Trial) -> list[str]:
    return [trial["case"].get("group") or "other"]


def requirements_of(trial: Trial) -> list[str]:
    return trial["case"].get("requirements") or []


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


def ratios(trials: Iterable[Trial]) -> dict[str, list[float]]:
    """Required error/budget ratios by tensor and dtype."""
    found = defaultdict(list)
    for trial in trials:
        for deviation in trial.get("deviations") or []:
            if deviation.get("ratio") is not None and deviation.get("level", "required") == "required":
                found[f"{deviation.get('tensor')} {trial['case'].get('dtype')}"].append(deviation["ratio"])
    tensors = ("out", "lse", "dq", "dk", "dv")
    return dict(
        sorted(
            found.items(),
            key=lambda item: (item[0].split()[-1], [*tensors, item[0].split()[0]].index(item[0].split()[0])),
        )
    )


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
