"""What CI reads: JUnit's test cases with their properties, and pytest-benchmark's JSON with seconds of ranks."""

import json
from xml.etree import ElementTree

import pytest

from ringcheck import junit


@pytest.fixture
def repository(adopter):
    adopter.fake()
    return adopter


def junit_of(repository, *arguments):
    repository.pytest("--junitxml=j.xml", *arguments)
    return {case.get("name"): case for case in ElementTree.parse(repository.path / "j.xml").iter("testcase")}


def properties(case):
    return {one.get("name"): one.get("value") for one in case.iter("property")}


def test_a_test_case_is_named_by_its_id_and_carries_what_the_record_says(repository):
    found = junit_of(repository, "-k", "w2-bf16")
    passed = found["packed/even-zigzag-w2-bf16"]
    assert passed.get("classname") == "ringcheck" and properties(passed) == {
        "case": "packed/even-zigzag-w2-bf16", "implementation": "my_module:ring", "verdict": "PASS", "world": "2",
        "layout": "zigzag", "layout that ran": "own", "dtype": "bf16", "requirements": "A1 A3",
        "rules": "causal documents", "mask": "causal & documents", "digest": "0" * 12, "kernel": "cpu",
        "truth": "dense", "error/budget": "0.5", "worst tensor": "dk"}


def test_the_message_is_the_first_line_and_the_text_is_the_whole_diagnosis(repository):
    found = junit_of(repository, "-k", "w2-fp64")
    (failure,) = found["packed/wrong-zigzag-w2-fp64"].iter("failure")
    assert failure.get("message") == "dk at the wrong rank"
    assert failure.text.startswith("dk at the wrong rank\n  verdict      FAIL") and "requirement  B4" in failure.text
    assert properties(found["packed/wrong-zigzag-w2-fp64"])["error/budget"] == "inf"
    (error,) = found["packed/crashed-zigzag-w2-fp64"].iter("error")
    assert error.get("message") == 'failed on setup with "rank 1 hangs"' and "recv at ring.py:12" in error.text
    (skipped,) = found["packed/refused-zigzag-w2-fp64"].iter("skipped")
    assert skipped.get("message") == "value head_dim is not supported"
    assert properties(found["packed/refused-zigzag-w2-fp64"])["verdict"] == "SKIP"


def test_workers_of_xdist_hand_properties_and_messages_on(repository):
    pytest.importorskip("xdist")
    found = junit_of(repository, "-k", "w2-fp64", "-p", "xdist.plugin", "-n", "2")
    assert properties(found["packed/even-zigzag-w2-fp64"])["world"] == "2"
    (failure,) = found["packed/wrong-zigzag-w2-fp64"].iter("failure")
    assert failure.get("message") == "dk at the wrong rank"


def test_a_record_that_says_little_has_few_properties():
    assert junit.properties({"id": "x"}, {"verdict": "ERROR", "deviations": None}, "ring") == [
        ("case", "x"), ("implementation", "ring"), ("verdict", "ERROR")]
    assert junit.furthest([{"tensor": "out", "ratio": 9.0}, {"tensor": "dq", "ratio": "nan"}]) == {
        "error/budget": "nan", "worst tensor": "dq"}


BENCH = """
import pytest

@pytest.mark.benchmark(group="mine")
def test_speed(rank_benchmark):
    record = rank_benchmark(CASE, iters=3)
    assert record["verdict"] == "PASS"

def test_forward(rank_benchmark):
    rank_benchmark(CASE, what="forward_s", impl="other:ring")

def test_own_clock(benchmark):
    benchmark.pedantic(lambda: None, rounds=2)
"""


def benchmarked(repository, case, *more):
    pytest.importorskip("pytest_benchmark")
    repository.write("test_bench.py", BENCH.replace("CASE", repr(case)))
    return repository.pytest("test_bench.py", "-p", "pytest_benchmark.plugin", "--benchmark-json=b.json", *more)


def test_benchmark_json_holds_the_seconds_of_ranks_and_not_of_the_round_trip(repository):
    ran = benchmarked(repository, "packed/even-zigzag-w2-bf16")
    assert ran.returncode == 0, ran.stdout
    made = json.loads((repository.path / "b.json").read_text())["benchmarks"]
    speed, forward, own = (next(one for one in made if one["name"] == f"test_{name}")
                           for name in ("speed", "forward", "own_clock"))
    assert speed["stats"]["data"] == [50.0, 20.0, 80.0] and speed["stats"]["median"] == 50 and speed["group"] == "mine"
    assert speed["options"]["timer"].count("RankTimer") == 1 and forward["stats"]["data"] == [5.0, 2.0, 8.0]
    about = speed["extra_info"]
    assert (about["case"], about["world"], about["error/budget"]) == ("packed/even-zigzag-w2-bf16", "2", "0.5")
    assert about["clock"] == "step_s, longest of all ranks" and about["measurement"]["iters"] == 3
    assert forward["extra_info"]["implementation"] == "other:ring" and max(own["stats"]["data"]) < 1


@pytest.mark.parametrize(("case", "told", "counts"), [
    ("packed/wrong-zigzag-w2-bf16", "dk at the wrong rank", "2 failed, 1 passed"),
    ("packed/refused-zigzag-w2-bf16", "value head_dim is not supported", "1 passed, 2 skipped"),
    ("packed/even", "rank_benchmark takes the id of one case, 'packed/even' means 4", "2 failed, 1 passed"),
    ("nonsense", "no case matches 'nonsense'", "2 failed, 1 passed")])
def test_what_does_not_pass_has_no_time(repository, case, told, counts):
    ran = benchmarked(repository, case, "-rs")
    assert told in ran.stdout and counts in ran.stdout, ran.stdout
    assert [one["name"] for one in json.loads((repository.path / "b.json").read_text())["benchmarks"]] == [
        "test_own_clock"]


@pytest.mark.parametrize(("plugin", "also", "told"), [
    ("no:benchmark", "", "rank_benchmark needs pytest-benchmark: pip install pytest-benchmark"),
    ("pytest_benchmark.plugin", "benchmark, ", "rank_benchmark takes the place of benchmark, name one of them")])
def test_a_clock_that_cannot_be_lent_is_told(repository, plugin, also, told):
    repository.write("test_bench.py", f"def test_speed({also}rank_benchmark):\n    rank_benchmark('packed/even')\n")
    ran = repository.pytest("test_bench.py", "-p", plugin)
    assert told in ran.stdout and ran.returncode == 1
