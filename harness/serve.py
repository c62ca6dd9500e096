"""JSON lines over stdio for pytest: one process that owns the living pools, asked case by case.

{"op": "hello"}                                            -> {"ringcheck", "python", "torch", ...}
{"op": "hello", "impl": SPEC}                              -> the same and {"implementation": {"name", ...}}
{"op": "list", "cases": [..], "worlds": [..], "seed": 7}   -> {"cases": [{"id", "name", "world", "rules", ...}]}; with
 "impl": SPEC those that differ for it
{"op": "run", "id": ID, "impl": SPEC, "timeout": seconds}  -> {"record": {...}} of a case listed before; timed with
 "iters": 10, "warmup": 1
{"op": "stop"}                                             -> ends, as the end of stdin does
A request that cannot be met gets {"error": one line}; stdout carries nothing else.
"""

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from cases import catalogue
from cases.case import WORLDS, Case
from harness import repeat, trials
from harness.choice import apart
from harness.clock import Timing
from harness.entries import again
from harness.environment import environment
from harness.implementation import load
from harness.ranks import threads_per_rank
from harness.runners import Pools
from harness.trial import UNTIMED
from reports.record import plain


class Service:
    """Answers requests one after another."""

    def __init__(self):
        self.pools = Pools("cpu")
        self.cases: dict[str, Case] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request. Raises ValueError with one line for what the request got wrong."""
        operations = {"hello": self.hello, "list": self.list, "run": self.run}
        operation = request.get("op")
        if operation not in operations:
            raise ValueError(f"unknown op {operation!r}: known are {', '.join(operations)}, stop")
        return operations[operation](request)

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
        about = environment("cpu", "gloo", threads_per_rank(max(WORLDS)))
        if request.get("impl"):
            made = load(request["impl"])
            about["implementation"] = {"name": made.name, "variants": sorted(made.variants), "kernel": made.kernel,
                                       "deterministic": made.deterministic, "in_process": made.in_process}
        return about

    def list(self, request: dict[str, Any]) -> dict[str, Any]:
        found = catalogue.select(request.get("cases") or "default", worlds=request.get("worlds") or WORLDS,
                                 layouts=request.get("layouts") or None, dtypes=request.get("dtypes") or None,
                                 seed=request.get("seed", 7), tokens=request.get("tokens"))
        found = apart(found, load(request["impl"])) if request.get("impl") else found
        self.cases.update((case.id, case) for case in found)
        self.pools.expect(found)
        return {"cases": [listed(case) for case in found]}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        case = self.cases.get(request.get("id"))
        if case is None:
            raise ValueError(f"case {request.get('id')!r} was not listed")
        spec, limit = request.get("impl", "ring"), float(request.get("timeout", 60))
        load(spec)
        timing = timing_of(case, request)
        record = self.pools.run(case, spec, timing, limit, trials.kind_of(case, "auto"))
        if record["diagnosis"]:
            flags = [f"--iters {timing.iters}", f"--timeout {limit:g}"]
            record["diagnosis"]["again"] = again(case, spec, "cpu", start=repeat.start(case), flags=flags)
        return {"record": record}


def timing_of(case: Case, request: dict[str, Any]) -> Timing:
    """How often a request wants its case timed: not at all unless it says so."""
    iters, warmup = request.get("iters", 0), request.get("warmup", 1)
    if not all(isinstance(number, int) and number >= 0 for number in (iters, warmup)):
        raise ValueError(f"iters and warmup are numbers from 0, got {iters!r} and {warmup!r}")
    return trials.timing_of(case, Timing(warmup, iters)) if iters else UNTIMED


def listed(case: Case) -> dict[str, Any]:
    """What pytest needs to name and mark a case."""
    return {"id": case.id, "name": case.name, "group": case.group, "world": case.world, "layout": case.layout,
            "dtype": case.dtype, "requirements": list(case.requirements),
            "rules": [rule.name for rule in case.mask.rules],
            "level": "strict" if case.strict else "required"}


def serve(requests: Iterable[str], replies: TextIO) -> None:
    """Answers each line until `stop` or the end."""
    service = Service()
    try:
        for line in filter(str.strip, requests):
            try:
                request = json.loads(line)
                if not isinstance(request, dict):
                    raise ValueError(f"a request is a JSON object, got {line.strip()[:80]}")
                if request.get("op") == "stop":
                    return
                reply = service.answer(request)
            except ValueError as error:
                reply = {"error": " ".join(str(error).split())}
            print(json.dumps(plain(reply), allow_nan=False), file=replies, flush=True)
    except KeyboardInterrupt:
        return
    finally:
        service.pools.close()


def main(arguments: list[str] | None = None) -> int:
    """Serves stdin; whatever else would go to stdout goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, replies)
    return 0


if __name__ == "__main__":
    sys.exit(main())
