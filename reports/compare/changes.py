"""What changed in one trial beside its numbers: verdict, strict level, what it was held to, and whether its numbers may
be compared at all."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from reports import metrics
from reports.compare import environment
from reports.compare.sides import Taken, Trial
from reports.compare.states import Row
from reports.compare.values import seconds

WRONG = ("FAIL", "ERROR")
TRUTHS = ("relations", "probes", "dense")
LEVELS = ("required", "strict")


def verdicts(old: Taken, new: Taken) -> Iterator[Row]:
    """The verdict, and the strict level of what passed. Both are compared whatever else changed: what passed under a
    name and no longer does is broken."""
    before, after = old.trial["verdict"], new.trial["verdict"]
    if state := _became(before, after):
        truths = {old.trial.get("truth"), new.trial.get("truth")}
        note = "" if len(truths) == 1 else f"truth {old.trial.get('truth')} -> {new.trial.get('truth')}; "
        worse = state not in ("fixed", "answers")
        yield Row(state, *new.name, "verdict", before, after, note=note + reason(new.trial if worse else old.trial))
    if before == after == "PASS":
        strict = metrics.strict_verdict(old.trial), metrics.strict_verdict(new.trial)
        if set(strict) == {"PASS", "FAIL"}:
            yield Row("strict lost" if strict[1] == "FAIL" else "strict won", *new.name, "strict level", *strict)
        yield from _held_to(old, new)


def _held_to(old: Taken, new: Taken) -> Iterator[Row]:
    """Where two passes were not held to the same: a weaker truth or level, or tensors that are no longer compared."""
    for metric, order, of in (("truth", TRUTHS, lambda one: one.trial.get("truth")),
                              ("level", LEVELS, lambda one: one.trial["case"].get("level") or LEVELS[0])):
        before, after = of(old), of(new)
        steps = [order.index(one) if one in order else -1 for one in (before, after)]
        if steps[0] != steps[1]:
            state = "weaker" if steps[1] < steps[0] else "stronger"
            yield Row(state, *new.name, metric, before, after, note="what a pass is held to")
    if old.trial.get("truth") == new.trial.get("truth") and not differs(old, new):
        was, now = compared(old.trial), compared(new.trial)
        if was - now:
            yield Row("weaker", *new.name, "tensors compared", _words(was - now), "-", note="a pass that shows less")
        if now - was:
            yield Row("stronger", *new.name, "tensors compared", "-", _words(now - was))


def compared(trial: Trial) -> set[tuple[str, str]]:
    """Level and tensor of what was compared with its budget."""
    return {judged(one) for one in trial.get("deviations") or [] if one.get("ratio") is not None}


def judged(deviation: dict[str, Any]) -> tuple[str, str]:
    """Level and tensor of a deviation."""
    return str(deviation.get("level", LEVELS[0])), str(deviation.get("tensor"))


def _words(found: set[tuple[str, str]]) -> str:
    return " ".join(tensor if level == LEVELS[0] else f"{tensor} ({level})" for level, tensor in sorted(found))


def alone(old: Taken | None, new: Taken | None) -> Row:
    """A trial that only one side has. A refusal that is gone takes nothing away; a new failure is one."""
    one = new or old
    verdict = one.trial["verdict"]
    wrong = new is not None and verdict in WRONG
    state = "new failure" if wrong else "new" if new else "missing"
    state = "lone skip" if verdict == "SKIP" else state
    return Row(state, *one.name, "trial", old and verdict, new and verdict, note=reason(new.trial) if wrong else "")


def differs(old: Taken, new: Taken) -> bool:
    """Whether the two are not known to be one case."""
    before, after = (one.trial["case"].get("digest") for one in (old, new))
    return before != after or before is None


def obstacles(old: Taken, new: Taken) -> Iterator[Row]:
    """Why times of the two say nothing of each other."""
    if differs(old, new):
        digests = (one.trial["case"].get("digest") or "-" for one in (old, new))
        yield Row("incomparable", *new.name, "digest", *digests, note="the case is another one")
        return
    parts = environment.changed(old.key, new.key)
    if old.kind[0] != new.kind[0]:
        parts.append(("device", str(old.kind[0]), str(new.kind[0])))
    if parts:
        told = [", ".join(f"{part[0]} {part[side]}" for part in parts) for side in (1, 2)]
        yield Row("incomparable", *new.name, "environment", *told, note="times: another environment")
    if old.kind[1] != new.kind[1]:
        yield Row("incomparable", *new.name, "seed", *(str(one.kind[1]) for one in (old, new)),
                  note="times: other inputs, although the digest is the same")


def remarks(old: Taken, new: Taken) -> str:
    """What else is not as it was and may explain a time."""
    made = old.trial["implementation"], new.trial["implementation"]
    found = [f"{name} {made[0].get(name)} -> {made[1].get(name)}"
             for name in ("kernel", "layout") if made[0].get(name) != made[1].get(name)]
    beside = [_names((one.trial.get("measurement") or {}).get("beside")) for one in (old, new)]
    if beside[0] != beside[1]:
        found.append("asked beside " + " -> ".join(" ".join(one) or "nobody" for one in beside))
    bounds = [seconds(one.trial, "bound_step_s").numbers for one in (old, new)]
    if all(bounds):
        found.append(f"kernel alone {median(bounds[1]) / median(bounds[0]):.2f}")
    return ", ".join(found)


def _names(value: Any) -> Sequence[str]:
    return sorted(map(str, value)) if isinstance(value, list) else [str(value)] if value else []


def _became(before: str, after: str) -> str | None:
    """The state of a verdict. Refusing what was wrong repairs nothing."""
    if before in WRONG and after in WRONG:
        return "still wrong"
    if after in WRONG:
        return "broke"
    if before == after:
        return None
    return "refuses" if after == "SKIP" else "fixed" if before in WRONG else "answers"


def reason(trial: Trial) -> str:
    """The first line of what went wrong or was refused."""
    told = (trial.get("diagnosis") or {}).get("headline") or trial.get("reason") or ""
    return told.strip().split("\n")[0]
