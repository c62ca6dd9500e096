"""Blessed results: one file an environment key, `<folder of the key>/blessed.jsonl`, with what a comparison reads."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reports import metrics, non_finite, record
from reports.compare import changes, environment, sides
from reports.compare.environment import Key
from reports.compare.sides import Taken
from reports.record import Results

HERE = Path(__file__).parents[1] / "baselines"
NAME = "blessed.jsonl"
CASE = ("id", "name", "group", "digest", "requirements", "rules", "mask", "world", "layout", "dtype", "batch", "tokens",
        "heads", "kv_heads", "head_dim", "value_dim", "seed", "level")
MEASURED = ("forward_s", "backward_s", "step_s", "rank_step_s", "warmup", "iters", "bytes_sent", "messages",
            "peak_bytes", "extra_bytes", "beside", "bound_kernel", "bound_forward_s", "bound_step_s")
SETTINGS = ("implementations", "cases", "ranks", "worlds", "seed", "iters", "warmup", "truth")
WORK = ("area", "flops_forward", "flops_backward", "area_by_rank", "need_bytes")


def place(key: Key, where: Path) -> Path:
    """The baseline of this environment."""
    return where / environment.folder(key) / NAME


def of(new: Sequence[Results], where: Path) -> list[Results]:
    """The baselines of the environments of NEW. Raises ValueError, the nearest one named, where there is none."""
    keys = dict.fromkeys(one.key for one in sides.taken(new))
    if not keys:
        raise ValueError("NEW holds no trial")
    if None in keys:
        raise ValueError("NEW does not tell its environment, so no baseline can be chosen")
    return [_read(key, where) for key in keys]


def blessed(results: Sequence[Results]) -> dict[Key, str]:
    """What the baseline of each environment would hold, as text: the latest record of each trial, pruned and in order.
    Equal records give equal bytes, in whatever files they come."""
    found: dict[Key, dict[str, list[Taken]]] = {}
    for one in sides.taken(results):
        if one.key is None:
            raise ValueError(f"the run of {one.name[0]} does not tell its environment")
        runs = found.setdefault(one.key, {})
        runs.setdefault(_line("run", _header(one.header)), []).append(one)
    return {key: "".join(_block(run, trials) for run, trials in sorted(runs.items(), key=_when))
            for key, runs in found.items()}


def _when(item: tuple[str, list[Taken]]) -> tuple[str, str]:
    return item[1][0].header.get("time") or "", item[0]


def _block(run: str, trials: Sequence[Taken]) -> str:
    ordered = sorted(_line("trial", _pruned(one.trial)) for one in trials)
    counts: dict[str, int] = {}
    for one in sorted(trials, key=lambda one: one.trial["verdict"]):
        counts[one.trial["verdict"]] = counts.get(one.trial["verdict"], 0) + 1
    return run + "".join(ordered) + _line("end", {"counts": counts})


def _header(header: dict[str, Any]) -> dict[str, Any]:
    return {"time": header.get("time"), "settings": _some(header.get("settings"), SETTINGS),
            "environment": header.get("environment")}


def _pruned(trial: dict[str, Any]) -> dict[str, Any]:
    kept = {"case": _some(trial["case"], CASE), "implementation": trial["implementation"],
            "truth": trial.get("truth"), "verdict": trial["verdict"],
            "reason": (trial.get("reason") or "").split("\n")[0] or None,
            "deviations": [_some(one, ("tensor", "requirement", "ratio", "level")) for one in _worst(trial)]}
    headline = changes.reason(trial) if trial["verdict"] in changes.WRONG else None
    kept["diagnosis"] = {"headline": headline} if headline else None
    parts = (("measurement", MEASURED), ("work", WORK), ("traffic", ("bytes_sent", "messages")))
    return kept | {name: _some(trial.get(name), names) for name, names in parts}


def _worst(trial: dict[str, Any]) -> list[dict[str, Any]]:
    """The worst deviation of each level and tensor that was compared: what a pass was held to."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in trial.get("deviations") or []:
        found.setdefault(changes.judged(one), []).append(one)
    parts = ({**trial, "deviations": found[key]} for key in sorted(found))
    return [one for part in parts for level in changes.LEVELS if (one := metrics.worst(part, level))]


def _some(part: Any, names: Sequence[str]) -> dict[str, Any] | None:
    return {name: part[name] for name in names if name in part} if isinstance(part, dict) else None


def _line(kind: str, content: dict[str, Any]) -> str:
    told = {"kind": kind, "schema": record.SCHEMA, **content}
    return json.dumps(non_finite.plain(told), allow_nan=False, separators=(",", ":")) + "\n"


def _read(key: Key, where: Path) -> Results:
    path = place(key, where)
    if path.is_file():
        return record.read(path)
    near = min(_near(key, where), default=None)
    hint = f"the nearest, {near[1]}, differs in {near[2]}" if near else f"{where} holds none like it"
    raise ValueError(f"no baseline for this environment ({environment.folder(key)}); {hint}; ringcheck bless makes one")


def _near(key: Key, where: Path) -> Iterator[tuple[int, str, str]]:
    """Baselines of the same device: how many parts differ, folder, and which."""
    for path in sorted(where.glob(f"*/{NAME}")):
        parts = environment.changed(environment.key(record.read(path).header), key)
        if all(part[0] not in ("device", "environment") for part in parts):
            yield len(parts), path.parent.name, ", ".join(f"{name}: {old} -> {new}" for name, old, new in parts)
