"""A stand-in for `ringcheck serve` that speaks its protocol: verdicts by case name, deaths and silences on request."""

import json
import os
import sys
import time
from fnmatch import fnmatchcase

CASES = [
    {
        "id": f"{name}-zigzag-w{world}-{dtype}",
        "name": name,
        "world": world,
        "dtype": dtype,
        "layout": "zigzag",
        "rules": ["causal", "documents"],
        "requirements": ["A1", "A3"],
    }
    for name in ("packed/even", "packed/wrong", "packed/refused", "packed/crashed")
    for world in (1, 2)
    for dtype in ("fp64", "bf16")
]
VERDICTS = {"even": "PASS", "wrong": "FAIL", "refused": "SKIP", "crashed": "ERROR"}


def chosen(name, case):
    return case["name"].startswith(name) or fnmatchcase(case["id"], name)


def answer(request, listed):
    if request["op"] == "hello":
        return (
            {"error": "unknown implementation"}
            if request["impl"] == "unknown"
            else {"ringcheck": "0.1.0", "torch": "9.9"}
        )
    if request["op"] == "list":
        unknown = [name for name in request["cases"] if not any(chosen(name, case) for case in CASES)]
        if unknown:
            return {"error": f"no case matches {unknown[0]!r}"}
        found = [
            case
            for case in CASES
            if case["world"] in request["worlds"]
            and (not request["cases"] or any(chosen(name, case) for name in request["cases"]))
        ]
        listed.extend(case for case in found if case not in listed)
        return {"cases": found}
    if not any(case["id"] == request["id"] for case in listed):
        return {"error": f"unknown id {request['id']}"}
    if request["impl"] == "deadly" and request["id"] == listed[0]["id"]:
        print("last words", file=sys.stderr, flush=True)
        os._exit(9)
    if request["impl"] == "silent":
        time.sleep(60)
    verdict = VERDICTS[request["id"].split("/")[1].split("-")[0]]
    return {
        "record": {
            "case": {"id": request["id"], "mask": "causal & documents", "digest": "0" * 12},
            "implementation": {"name": "ring", "kernel": "cpu", "layout": "own"},
            "truth": "dense",
            "deviations": [
                {"tensor": "out", "ratio": 0.25, "level": "required"},
                {"tensor": "dk", "ratio": "inf" if verdict == "FAIL" else 0.5, "level": "required"},
                {"tensor": "dv", "ratio": 7.0, "level": "strict"},
                {"tensor": "lse", "ratio": None, "level": "required"},
            ],
            "measurement": {"step_s": [50.0, 20.0, 80.0], "forward_s": [5.0, 2.0, 8.0], "iters": request["iters"]}
            if request.get("iters")
            else None,
            "verdict": verdict,
            "reason": {
                "SKIP": "value head_dim is not supported",
                "ERROR": "rank 1 hangs\n[rank 1] recv at ring.py:12",
            }.get(verdict),
            "diagnosis": {
                "headline": "dk at the wrong rank",
                "requirement": "B4: gradients",
                "expected": "1.0",
                "actual": "0.0",
                "place": "rank 0",
                "again": f"ringcheck --cases {request['id']}",
            }
            if verdict == "FAIL"
            else None,
        }
    }


listed = []
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "stop":
        break
    print("a library that prints to stdout")
    print(json.dumps(answer(request, listed)), flush=True)
