"""Counts that are held exactly: bytes, messages, imbalance and memory of a trial that passed on both sides."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reports.compare import environment
from reports.compare.changes import remarks
from reports.compare.sides import Taken, Trial
from reports.compare.states import OPPOSITE, Row
from reports.compare.values import Values, by_rank, imbalance


@dataclass(frozen=True)
class Count:
    """A number that must not rise, however little: `of` the values of `name`, one a rank.

    source   part of the record, None: measurement, or traffic where one side was not timed
    fewer    the state of less of it
    portable whether it is the same on every machine of one kind of device
    """

    metric: str
    more: str
    name: str
    of: Callable[[tuple[float, ...]], float | None]
    source: str | None = None
    portable: bool = True

    @property
    def fewer(self) -> str:
        return OPPOSITE[self.more]


COUNTS = (
    Count("bytes sent", "more bytes", "bytes_sent", math.fsum),
    Count("bytes sent by one rank", "more bytes", "bytes_sent", max),
    Count("messages", "more messages", "messages", math.fsum),
    Count("load max/mean", "more imbalance", "area_by_rank", imbalance, "work"),
    Count("peak bytes", "more memory", "peak_bytes", max, "measurement", portable=False),
    Count("extra bytes", "more memory", "extra_bytes", max, "measurement", portable=False),
)


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
        values = [by_rank(side.trial, one.source or source, one.name) for side in (old, new)]
        if (one.portable or not parts and measured and _together(one, old, new)) and (
                row := _count(one, *values, new, slack)):
            if one.of is not max or not one.portable or row.state not in told:
                yield row
            told.add(row.state)


def unusable(trial: Trial) -> list[str]:
    """Why counts of a trial are none."""
    found = [by_rank(trial, source, one.name).wrong
             for one in COUNTS for source in ([one.source] if one.source else ["measurement", "traffic"])]
    return list(filter(None, found))


def _count(one: Count, old: Values, new: Values, name: Taken, slack: float) -> Row | None:
    before, after = (one.of(values.numbers) if values.numbers else None for values in (old, new))
    if before is None or after is None:
        return _lost(one, before, after, old.wrong or new.wrong, name)
    if before == after or not one.portable and max(before, after) <= min(before, after) * (1 + slack):
        return None
    ratio = after / before if before else None
    told = (int(x) if x.is_integer() else x for x in (before, after))
    return Row(one.more if after > before else one.fewer, *name.name, one.metric, *told, ratio)


def _lost(one: Count, before: float | None, after: float | None, wrong: str, name: Taken) -> Row | None:
    if before is after:
        return Row("unjudged", *name.name, one.metric, note=wrong) if wrong else None
    return Row("new" if before is None else "missing", *name.name, one.metric, before, after,
               note=wrong or "counted by one side only")


def _both(old: Taken, new: Taken, source: str) -> bool:
    return all((one.trial.get(source) or {}).get("bytes_sent") is not None for one in (old, new))


def _together(one: Count, old: Taken, new: Taken) -> bool:
    """Peak memory holds what others beside it keep."""
    return one.metric != "peak bytes" or "asked beside" not in remarks(old, new)
