"""What the fields of a record may hold, as far as any reader relies on it: a foreign line is refused by its field."""

from collections.abc import Iterator
from typing import Any

from reports import fit
from reports.non_finite import SPELLED

NUMBER = (int, float)
NUMBERS = [NUMBER]
LARGEST = 10**300
VERDICTS = ("PASS", "FAIL", "ERROR", "SKIP")
NEEDED = (("case", dict), ("implementation", dict), ("verdict", str), ("case.id", str), ("case.name", str),
          ("case.world", int))
LOAD = {"area_by_rank": NUMBERS, "need_bytes": NUMBERS, "area_by_hop": [NUMBERS]}
SPAN, WAIT = [(str, *NUMBER)], [(*NUMBER, type(None))]
TEXTS = dict.fromkeys(("headline", "requirement", "expected", "actual", "place", "level", "again"), str)
FORMS = {
    "run": {"time": str, "argv": [str], "settings": dict, "environment": dict},
    "end": {"counts": dict, "seconds": NUMBER, "exit_code": int},
    "trial": {
        "case": {"id": str, "name": str, "world": int, "group": str, "digest": str, "requirements": [str],
                 "rules": [str], "seed": int},
        "implementation": {"name": str, "spec": str, "layout": str, "device": str},
        "verdict": str, "reason": str, "truth": str, "seconds": NUMBER,
        "deviations": [{"tensor": str, "ratio": (*NUMBER, str), "level": str, "where": dict}],
        "diagnosis": {**TEXTS, "shrunk": {"case": dict, "again": str},
                      "recovered": {"sentence": str, "grid": [str], "legend": str, "counts": dict}},
        "measurement": dict.fromkeys(("load_s", "forward_s", "backward_s", "step_s", "rank_step_s", "bytes_sent",
                                      "messages", "peak_bytes", "extra_bytes", "bound_forward_s", "bound_step_s",
                                      "silent_forward_s", "silent_step_s"), NUMBERS),
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


def check(kind: str, record: dict[str, Any]) -> None:
    """Raises ValueError for the first field that is missing or holds something else; null is nowhere wrong but in
    what every reader needs."""
    for name, form in NEEDED if kind == "trial" else ():
        if not isinstance(_at(record, name), form):
            raise ValueError(f"field {name} is missing or no {form.__name__}")
    if kind == "trial" and record["case"]["world"] < 1:
        raise ValueError("field case.world is below 1")
    for name, words in _wrong(record, FORMS[kind], ""):
        raise ValueError(f"field {name} is no {words}")
    if kind == "trial" and record["verdict"] not in VERDICTS:
        raise ValueError(f"field verdict is none of {', '.join(VERDICTS)}: {record['verdict'][:40]!r}")
    for deviation in record.get("deviations") or []:
        ratio = deviation.get("ratio")
        if isinstance(ratio, str) and ratio not in SPELLED:
            raise ValueError(f"field deviations.ratio is no number: {ratio!r}")
    hops = (record.get("work") or {}).get("area_by_hop") or []
    if any(len(row) != len(hops) for row in hops):
        raise ValueError("field work.area_by_hop is not square")
    picture = record.get("picture") or {}
    if picture and len(picture.get("allowed") or []) != len(picture.get("owner") or []):
        raise ValueError("field picture.owner does not fit picture.allowed")
    for words in fit.wrong(record):
        raise ValueError(f"field {words}")


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
    if isinstance(form, dict):
        if not isinstance(value, dict):
            yield name, "dict"
            return
        for key, inner in form.items():
            if value.get(key) is not None:
                yield from _wrong(value[key], inner, f"{name}.{key}".lstrip("."))
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield name, "list"
            return
        if not _plain_numbers(value, form[0]):
            for item in value:
                yield from _wrong(item, form[0], name)
    elif not isinstance(value, form) or isinstance(value, int) and abs(value) > LARGEST:
        yield name, "number" if isinstance(form, tuple) else form.__name__
