"""What the fields of a record may hold, as far as any reader relies on it: what holds something else is named and taken
out, or refused by its field."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from reports import fit
from reports.non_finite import LARGEST, SPELLED

NUMBER = (int, float)
NUMBERS = [NUMBER]
VERDICTS = ("PASS", "FAIL", "ERROR", "SKIP")
NEEDED = (("case", dict), ("implementation", dict), ("case.id", str), ("case.name", str), ("case.world", int))
LOAD = {"area_by_rank": NUMBERS, "need_bytes": NUMBERS, "area_by_hop": [NUMBERS]}
SPAN, WAIT = [(str, *NUMBER)], [(*NUMBER, type(None))]
TEXTS = dict.fromkeys(("headline", "requirement", "expected", "actual", "place", "level", "again"), str)
FORMS = {
    "run": {"time": str, "argv": [str], "settings": dict, "environment": dict},
    "end": {"counts": dict, "seconds": NUMBER, "exit_code": int},
    "trial": {
        "case": {"id": str, "name": str, "world": int, "group": str, "digest": str, "requirements": [str],
                 "rules": [str], "seed": int},
        "implementation": {"name": str, "spec": str, "layout": str, "device": str, "kernel": str},
        "verdict": str, "reason": str, "truth": str, "seconds": NUMBER,
        "deviations": [{"tensor": str, "ratio": (*NUMBER, str), "level": str, "where": dict}],
        "diagnosis": {**TEXTS, "shrunk": {"case": dict, "again": str},
                      "recovered": {"sentence": str, "grid": [str], "legend": str, "counts": dict}},
        "measurement": dict.fromkeys(("load_s", "forward_s", "backward_s", "step_s", "rank_step_s", "bytes_sent",
                                      "messages", "peak_bytes", "extra_bytes", "bound_forward_s", "bound_step_s",
                                      "silent_forward_s", "silent_step_s"), NUMBERS)
        | {"beside": [str], "bound_kernel": str},
        "work": {**dict.fromkeys(("area", "flops_forward", "flops_backward"), NUMBER), **LOAD,
                 "layouts": dict.fromkeys(fit.LAYOUTS, LOAD)},
        "timeline": {"step_s": NUMBER, "ranks": [{
            "phases": [SPAN], "waits": [WAIT],
            "transfers": [{"start": NUMBER, "end": NUMBER, "kind": str, "peer": int, "bytes": NUMBER, "hop": int,
                           "phase": str}]}]},
        "error_maps": [{"tensor": str, "by": [str], "edges": [int], "ratios": [[(*NUMBER, str)]]}],
        "picture": {"allowed": [NUMBERS], "owner": [int]},
    },
}


IDENTITY = ("case.digest", "case.seed", "implementation.name", "implementation.spec", "implementation.device")
"""What tells a trial from others: where it is damaged nobody knows which trial this was."""
WHOLE = ("deviations", "timeline", "error_maps", "picture")
"""Parts that say something else when some of them is missing."""


def check(kind: str, record: dict[str, Any]) -> None:
    """Raises ValueError for the first field that is missing or holds something else; null is nowhere wrong but in
    what every reader needs."""
    for words in (*_lacks(kind, record), *_verdict(kind, record)):
        raise ValueError(words)
    for _, words in chain(_wrong(record, FORMS[kind], ""), _unfit(record)):
        raise ValueError(words)


def mend(kind: str, record: dict[str, Any]) -> list[str]:
    """Takes out of a record every field that holds something else than its name says; returns these in words, field
    first. A verdict that is unknown or missing becomes ERROR, with the reason why: it is no pass, and stands in the
    place of an earlier record of its trial.

    Raises ValueError where it does not say which trial it is of: nothing of such a record can be shown.
    """
    for words in _lacks(kind, record):
        raise ValueError(words)
    told = dict(_wrong(record, FORMS[kind], ""))
    for name in told:
        if kind == "trial" and name in IDENTITY:
            raise ValueError(told[name])
        _take_out(record, name)
    for words in _verdict(kind, record):
        told["verdict"] = words
        record |= {"verdict": "ERROR", "reason": f"{words}; whether it passed is not known"}
    for name, words in list(_unfit(record)):
        told[name] = words
        _take_out(record, name)
    return list(told.values())


def _lacks(kind: str, record: dict[str, Any]) -> Iterator[str]:
    """What no reader can do without."""
    for name, form in NEEDED if kind == "trial" else ():
        if not isinstance(_at(record, name), form):
            yield f"field {name} is missing or no {form.__name__}"
            return
    if kind == "trial" and not 1 <= record["case"]["world"] <= LARGEST:
        yield "field case.world is below 1" if record["case"]["world"] < 1 else "field case.world is no number"


def _verdict(kind: str, record: dict[str, Any]) -> Iterator[str]:
    verdict = record.get("verdict")
    if kind == "trial" and not isinstance(verdict, str):
        yield "field verdict is missing or no str"
    elif kind == "trial" and verdict not in VERDICTS:
        yield f"field verdict is none of {', '.join(VERDICTS)}: {verdict[:40]!r}"


def _take_out(record: dict[str, Any], name: str) -> None:
    first, *rest = name.split(".")
    if rest and first not in WHOLE:
        record[first][rest[0]] = None
    else:
        record[first] = None


def _unfit(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and words of fields of the right kind whose values do not fit."""
    for deviation in record.get("deviations") or []:
        ratio = deviation.get("ratio")
        if isinstance(ratio, str) and ratio not in SPELLED:
            yield "deviations", f"field deviations.ratio is no number: {ratio[:40]!r}"
    hops = (record.get("work") or {}).get("area_by_hop") or []
    if any(len(row) != len(hops) for row in hops):
        yield "work.area_by_hop", "field work.area_by_hop is not square"
    picture = record.get("picture") or {}
    allowed, owner = picture.get("allowed"), picture.get("owner")
    if picture and (allowed is None or owner is None or len(allowed) != len(owner)):
        yield "picture", "field picture.owner does not fit picture.allowed"
    for words in fit.wrong(record):
        yield words.split()[0], f"field {words}"


def _at(record: dict[str, Any], name: str) -> Any:
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _plain_numbers(values: list[Any], form: Any) -> bool:
    """Whether all are numbers of ordinary size where numbers are due: most of a record, told without a look at each."""
    kinds = set(map(type, values))
    return isinstance(form, tuple) and float in form and kinds <= {int, float} and (
        int not in kinds or -LARGEST <= min(values) and max(values) <= LARGEST)


def _wrong(value: Any, form: Any, name: str) -> Iterator[tuple[str, str]]:
    """Names and words of fields of another kind."""
    if isinstance(form, dict):
        if not isinstance(value, dict):
            yield name, f"field {name} is no dict"
            return
        for key, inner in form.items():
            if value.get(key) is not None:
                yield from _wrong(value[key], inner, f"{name}.{key}".lstrip("."))
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield name, f"field {name} is no list"
            return
        if not _plain_numbers(value, form[0]):
            for item in value:
                yield from _wrong(item, form[0], name)
    elif not isinstance(value, form) or isinstance(value, int) and abs(value) > LARGEST:
        yield name, f"field {name} is no {'number' if isinstance(form, tuple) else form.__name__}"
