"""The server that pytest asks: one JSON line in, one out."""

import io
import json

from harness import serve


def replies(*requests):
    out = io.StringIO()
    serve.serve([json.dumps(request) if isinstance(request, dict) else request for request in requests], out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_hello_list_run_stop():
    case = "packed/even-contiguous-w1-fp64"
    hello, listed, ran, failed = replies(
        {"op": "hello", "impl": "dense"}, {"op": "list", "cases": ["packed/even"], "worlds": [1]},
        {"op": "run", "id": case, "impl": "dense", "timeout": 30},
        {"op": "run", "id": case, "impl": "sabotage:lse-in-base-two", "timeout": 30}, {"op": "stop"}, {"op": "hello"})
    assert hello["torch"] and hello["implementation"]["name"] == "dense"
    assert {"id", "name", "world", "requirements", "rules", "layout", "dtype"} <= listed["cases"][0].keys()
    assert case in {found["id"] for found in listed["cases"]}
    assert ran["record"]["verdict"] == "PASS" and ran["record"]["measurement"] is None
    assert failed["record"]["diagnosis"]["again"].endswith(f"--cases {case} --seed 7 --iters 0 --timeout 30")
    assert failed["record"]["verdict"] == "FAIL" and "base 2" in failed["record"]["diagnosis"]["headline"]


def test_what_cannot_be_met_is_one_line():
    answers = replies("[1", "3", {"op": "dance"}, {"op": "run", "id": "no/case", "impl": "ring"},
                      {"op": "list", "cases": ["nosuch"]}, {"op": "hello", "impl": "nobody"})
    words = ["Expecting", "JSON object", "unknown op 'dance'", "'no/case' was not listed", "nosuch",
             "unknown implementation"]
    assert len(answers) == len(words)
    for answer, word in zip(answers, words, strict=True):
        assert word in answer["error"] and "\n" not in answer["error"]
