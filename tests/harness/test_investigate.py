"""After a failure: a run shrinks, reads back and says so, and neither of both turns a failure into an error."""

import re
import shlex

import pytest

from harness import investigate, run
from harness.adapters.dense import Dense
from reports import record

STRAIGHT = ["--in-process", "--iters", "0", "--timeout", "15"]


def asked(tmp_path, *arguments):
    code = run.main([*STRAIGHT, *arguments, "--json", str(tmp_path / "x.jsonl")])
    return code, record.read(tmp_path / "x.jsonl").trials


class Fragile(Dense):
    """Wrong in its first session and worse in every later one."""

    name = "fragile"
    sessions = 0

    def open(self, case, group):
        self.sessions += group.rank == 0
        if self.sessions > 1:
            raise RuntimeError("the second session breaks")
        return super().open(case, group)

    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        return lambda q, k, v: (step(q, k, v)[0] * 1.5, step(q, k, v)[1])


def test_random_cases_shrink_to_a_line_that_fails_again(tmp_path, capsys):
    code, trials = asked(tmp_path, "--ranks", "1,2", "--impl", "sabotage:causal-dropped", "--cases", "random",
                         "--count", "6", "--fail-fast", "--dtype", "fp64")
    found, said = trials[-1]["diagnosis"], capsys.readouterr().out
    assert code == 1 and found["shrunk"]["complete"] and found["shrunk"]["case"]["tokens"] == 2
    assert found["shrunk"]["case"]["mask"] == "causal" and found["shrunk"]["case"]["world"] == 1
    again = re.search(r"smallest +(ringcheck .*)", said)[1]
    assert again == found["shrunk"]["again"] and "replay:" in again
    assert found["recovered"]["grid"] == ["#X", "##"] and "query 0 (rank 0) sees key 1" in said and "0 #X" in said
    words = shlex.split(again)[1:]
    code, trials = asked(tmp_path, *words)
    assert code == 1 and trials[0]["case"]["digest"] == found["shrunk"]["case"]["digest"]
    assert trials[0]["diagnosis"]["shrunk"]["again"] is None
    words[words.index("--impl") + 1] = "ring"
    assert asked(tmp_path, *words)[0] == 0


@pytest.mark.parametrize("flag, shrunk", [("--shrink", True), ("--no-shrink", False)])
def test_a_flag_decides(tmp_path, flag, shrunk):
    _, trials = asked(tmp_path, "--impl", "sabotage:window-too-wide", "--cases", "sliding/*-contiguous-w2-fp64", flag,
                      "--fail-fast")
    found = trials[-1]["diagnosis"]
    assert trials[-1]["verdict"] == "FAIL" and ("shrunk" in found) == shrunk
    assert not shrunk or found["shrunk"]["case"]["tokens"] <= 3


def test_what_breaks_in_an_investigation_leaves_the_failure(tmp_path):
    code, trials = asked(tmp_path, "--impl", "tests.harness.test_investigate:Fragile", "--cases",
                         "causal/short-contiguous-w2-fp64", "--shrink")
    assert code == 1 and trials[0]["verdict"] == "FAIL"
    assert "1.5 times the truth" in trials[0]["diagnosis"]["headline"]
    assert trials[0]["diagnosis"]["recovered"] is None and trials[0]["diagnosis"]["shrunk"]["again"] is None


def test_random_cases_narrow_to_what_was_asked(tmp_path):
    code, trials = asked(tmp_path, "--cases", "random", "--count", "5", "--ranks", "3", "--layout", "striped",
                         "--dtype", "fp64", "--tokens", "40", "--seed", "11")
    assert code == 0 and len(trials) == 5
    kept = {(one["case"]["world"], one["case"]["layout"], one["case"]["dtype"]) for one in trials}
    assert kept == {(3, "striped", "fp64")} and max(one["case"]["tokens"] for one in trials) <= 40
    assert {one["case"]["name"] for one in trials} == {f"random/11-{number}" for number in range(5)}


def test_the_same_on_living_ranks(tmp_path, capsys):
    arguments = ["--impl", "sabotage:key-gradients-lost", "--cases", "random", "--count", "3", "--ranks", "2",
                 "--fail-fast", "--iters", "0", "--json", str(tmp_path / "x.jsonl")]
    assert run.main(arguments) == 1
    found = record.read(tmp_path / "x.jsonl").trials[-1]["diagnosis"]
    assert found["shrunk"]["case"]["tokens"] <= 2 and found["recovered"]["tensor"] in ("dk", "dv")
    assert found["shrunk"]["case"]["world"] == 2 and "on rank 1" in found["headline"]
    assert "query 0 (rank 0) never passes" in capsys.readouterr().out


@pytest.mark.parametrize("one, other, same", [
    ("dk off, up to 3e+09 times the budget", "dk off, up to 8.1 times the budget, only in rank 0", True),
    ("dk, dv: 0 on rank 2 (explains 100 % of the difference)", "dk, dv: 0 (explains 98 % of the difference)", False),
    ("query 9 never sees key 3, one of 4 such pairs: it may", "query 1 never sees key 0: it may", True),
    ("batch A, step 2: dq off", "dq off", False)])
def test_lines_are_alike_but_for_numbers(one, other, same):
    assert investigate.alike(*({"diagnosis": {"headline": line}} for line in (one, other))) == same
