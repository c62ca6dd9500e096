"""What changed in one trial beside its times: verdict, strict level, counts, and whether it may be compared at all."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from reports import metrics, view
from reports.compare import environment
from reports.compare.sides import Taken, Trial
from reports.compare.states import OPPOSITE, Row

WRONG = ("FAIL", "ERROR")
TRUTHS = ("relations", "probes", "dense")
"""What an answer may be held to, what sees least first."""
A_RANK = ("bytes_sent", "messages", "peak_bytes", "extra_bytes", "area_by_rank")


@dataclass(frozen=True)
class Count:
    """A number that must not rise, however little.

    fewer    the state of less of it
    portable whether it is the same on every machine of one kind of device
    """

    metric: str
    more: str
    of: Callable[[Trial, str], float | None]
    portable: bool = True

    @property
    def fewer(self) -> str:
        return OPPOSITE[self.more]


def sent(trial: Trial, source: str) -> float | None:
    """Bytes of all ranks in one forward and backward."""
    return _summed(trial, source, "bytes_sent")


def most_sent(trial: Trial, source: str) -> float | None:
    """Bytes of the rank that sends most."""
    return max(sound(trial, source, "bytes_sent"), default=None)


def messages(trial: Trial, source: str) -> float | None:
    """Messages of all ranks in one forward and backward."""
    return _summed(trial, source, "messages")


def imbalance(trial: Trial, source: str) -> float | None:
    """Allowed pairs of the fullest rank over the mean."""
    areas = sound(trial, "work", "area_by_rank")
    return max(areas) / fmean(areas) if areas and any(areas) else None


def peak(trial: Trial, source: str) -> float | None:
    """Bytes on the fullest rank, whoever holds them."""
    return max(sound(trial, "measurement", "peak_bytes"), default=None)


def extra(trial: Trial, source: str) -> float | None:
    """Bytes of a step beyond inputs, outputs and gradients, fullest rank."""
    return max(sound(trial, "measurement", "extra_bytes"), default=None)


COUNTS = (
    Count("bytes sent", "more bytes", sent),
    Count("bytes sent by one rank", "more bytes", most_sent),
    Count("messages", "more messages", messages),
    Count("load max/mean", "more imbalance", imbalance),
    Count("peak bytes", "more memory", peak, portable=False),
    Count("extra bytes", "more memory", extra, portable=False),
)


def verdicts(old: Taken, new: Taken) -> Iterator[Row]:
    """The verdict, and the strict level of what passed. Both are compared whatever else changed: what passed under a
    name and no longer does is broken."""
    before, after = old.trial["verdict"], new.trial["verdict"]
    if state := _became(before, after):
        truths = {old.trial.get("truth"), new.trial.get("truth")}
        note = "" if len(truths) == 1 else f"truth {old.trial.get('truth')} -> {new.trial.get('truth')}; "
        worse = state not in ("fixed", "answers", "withdrawn")
        yield Row(state, *new.name, "verdict", before, after, note=note + reason(new.trial if worse else old.trial))
    if before == after == "PASS":
        strict = metrics.strict_verdict(old.trial), metrics.strict_verdict(new.trial)
        if set(strict) == {"PASS", "FAIL"}:
            yield Row("strict lost" if strict[1] == "FAIL" else "strict won", *new.name, "strict level", *strict)
        yield from _held(old, new)


def _held(old: Taken, new: Taken) -> Iterator[Row]:
    """What a pass was held to: fewer tensors, no strict rule any more, or a truth that sees less."""
    tensors = [sum(one.get("ratio") is not None for one in side.trial.get("deviations") or []) for side in (old, new)]
    truths = [TRUTHS.index(found) if (found := side.trial.get("truth")) in TRUTHS else None for side in (old, new)]
    strict = [metrics.strict_verdict(side.trial) for side in (old, new)]
    told = {"compared tensors": tensors if 0 in tensors else [0, 0],
            "strict level": [int(one is not None) for one in strict],
            "truth": truths if None not in truths else [0, 0]}
    for metric, (before, after) in told.items():
        if before != after:
            shown = {"truth": [TRUTHS[one or 0] for one in truths], "strict level": [one or "-" for one in strict]}
            yield Row("checks less" if after < before else "checks more", *new.name, metric,
                      *shown.get(metric, (before, after)))


def alone(old: Taken | None, new: Taken | None) -> Row:
    """A trial that only one side has. A refusal that is gone takes nothing away."""
    one = new or old
    wrong = new is not None and new.trial["verdict"] in WRONG
    state = "new failure" if wrong else "new" if new else "missing"
    state = "lone skip" if one.trial["verdict"] == "SKIP" else state
    note = reason(new.trial) if wrong else ""
    return Row(state, *one.name, "trial", old and old.trial["verdict"], new and new.trial["verdict"], note=note)


def obstacles(old: Taken, new: Taken) -> Iterator[Row]:
    """Why times of the two say nothing of each other."""
    before, after = (one.trial["case"].get("digest") for one in (old, new))
    if before != after or before is None:
        yield Row("incomparable", *new.name, "digest", before or "-", after or "-", note="the case is another one")
        return
    parts = environment.changed(old.key, new.key)
    parts += [(name, str(one), str(other)) for name, one, other in zip(("device", "seed"), old.kind, new.kind)
              if one != other and all(name != part[0] for part in parts)]
    if parts:
        told = [", ".join(f"{part[0]} {part[side]}" for part in parts) for side in (1, 2)]
        yield Row("incomparable", *new.name, "environment", *told, note="times: another environment")


def counts(old: Taken, new: Taken, slack: float = 0.0) -> Iterator[Row]:
    """Counts that are not the same; `slack`: by how much memory may grow, as a share. Only what passes is counted."""
    if not old.trial["verdict"] == new.trial["verdict"] == "PASS":
        return
    parts = {part[0] for part in environment.changed(old.key, new.key)}
    if parts & {*environment.OF_COUNTS, "environment"} or old.kind[0] != new.kind[0]:
        return
    measured = old.trial.get("measurement") and new.trial.get("measurement")
    source = next((name for name in ("measurement", "traffic") if _both(old, new, name)), "measurement")
    told: set[str] = set()
    for one in COUNTS:
        if (one.portable or not parts and measured and _together(one, old, new)) and (
                row := _count(one, *(_value(one, side, source) for side in (old, new)), new, slack)):
            if one.of is not most_sent or row.state not in told:
                yield row
            told.add(row.state)


def _value(one: Count, side: Taken, source: str) -> float | None:
    return view.value(lambda trial: one.of(trial, source), side.trial)


def _count(one: Count, before: float | None, after: float | None, new: Taken, slack: float) -> Row | None:
    if before is None or after is None:
        if before is after:
            return None
        return Row("new" if before is None else "missing", *new.name, one.metric, before, after,
                   note="counted by one side only")
    if before == after or not one.portable and max(before, after) <= min(before, after) * (1 + slack):
        return None
    ratio = after / before if before else None
    told = (int(x) if float(x).is_integer() else x for x in (before, after))
    return Row(one.more if after > before else one.fewer, *new.name, one.metric, *told, ratio)


def remarks(old: Taken, new: Taken) -> str:
    """What else is not as it was and may explain a time."""
    made = old.trial["implementation"], new.trial["implementation"]
    found = [f"{name} {made[0].get(name)} -> {made[1].get(name)}"
             for name in ("kernel", "layout") if made[0].get(name) != made[1].get(name)]
    beside = [sorted(map(str, (one.trial.get("measurement") or {}).get("beside") or [])) for one in (old, new)]
    if beside[0] != beside[1]:
        found.append("asked beside " + " -> ".join(" ".join(one) or "nobody" for one in beside))
    bounds = [sound(one.trial, "measurement", "bound_step_s") for one in (old, new)]
    if all(bounds) and (before := median(bounds[0])) > 0:
        found.append(f"kernel alone {median(bounds[1]) / before:.2f}")
    return ", ".join(found)


def _became(before: str, after: str) -> str | None:
    wrong = before in WRONG, after in WRONG
    if any(wrong) and "SKIP" in (before, after):
        return "withdrawn" if wrong[0] else "answers wrong"
    if wrong[0] != wrong[1]:
        return "broke" if wrong[1] else "fixed"
    if all(wrong):
        return "still wrong"
    if (before == "PASS") != (after == "PASS"):
        return "refuses" if before == "PASS" else "answers"
    return None


def reason(trial: Trial) -> str:
    """The first line of what went wrong or was refused."""
    told = (trial.get("diagnosis") or {}).get("headline") or trial.get("reason") or ""
    return told.strip().split("\n")[0]


def _both(old: Taken, new: Taken, source: str) -> bool:
    return all((one.trial.get(source) or {}).get("bytes_sent") is not None for one in (old, new))


def _together(one: Count, old: Taken, new: Taken) -> bool:
    """Peak memory holds what others beside it keep."""
    return one.metric != "peak bytes" or "asked beside" not in remarks(old, new)


def sound(trial: Trial, source: str, name: str) -> list[float]:
    """The numbers of a list of the record, as floats; none where any of them is no finite number, or where a list with
    a number a rank is not for every rank: what is left of a damaged list would be told as less than there is."""
    part: Any = trial.get(source)
    values = part.get(name) if isinstance(part, dict) else None
    try:
        found = [float(value) for value in values if not isinstance(value, str)] if isinstance(values, list) else []
    except (OverflowError, TypeError, ValueError):
        return []
    whole = len(found) == len(values or ()) and all(map(math.isfinite, found))
    return found if whole and (name not in A_RANK or len(found) == trial["case"]["world"]) else []


def _summed(trial: Trial, source: str, name: str) -> float | None:
    values = sound(trial, source, name)
    return math.fsum(values) if values else None
