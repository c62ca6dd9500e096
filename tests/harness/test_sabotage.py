"""Every fault is found where the correct ring passes, for the right reason, and mostly explained."""

import re

import pytest

from cases import catalogue
from harness.implementation import load
from harness.kills import Ask, Bench
from harness.sabotage import faults, shown
from harness.trial import UNTIMED
from tests.harness.samples import mixed

EXPLAINED = {
    "scale-ignored": "the given scale is ignored", "causal-dropped": "the rule causal is ignored",
    "window-too-wide": "one key too many", "window-too-narrow": "one key too few",
    "window-ignored": "the rule window is ignored", "documents-ignored": "the rule documents is ignored",
    "padding-ignored": "the rule padding is ignored", "metadata-by-reference": "after its buffers were refilled",
    "key-gradients-lost": "dk, dv: 0 on rank 1", "key-gradients-times-world": "dk, dv: 2 times the truth",
    "query-gradient-off": "times the truth on rank 1", "lse-in-base-two": "base 2",
    "dead-lse-zero": "is 0, not minus infinity", "not-a-number": "NaN", "wrong-dtype": "wrong dtype",
    "wrong-shape": "wrong shape", "inputs-modified": "q was modified", "graph-kept": "a graph is kept",
    "metadata-modified": "documents was modified", "position-twice": "exactly once",
}


@pytest.mark.parametrize("host", ["dense", "ring"])
def test_the_hosts_are_correct(pool, host):
    assert pool.run(mixed(), host, UNTIMED)["verdict"] == "PASS"


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_fault_fails_and_is_explained(pool, name):
    record = pool.run(mixed(), f"sabotage:{name}", UNTIMED, 20)
    assert record["verdict"] == "FAIL", record["reason"]
    assert EXPLAINED[name] in record["diagnosis"]["headline"]


@pytest.mark.parametrize("name", ["window-too-wide", "key-gradients-lost", "documents-ignored"])
def test_a_fault_sits_on_another_host_as_well(pool, name):
    record = pool.run(mixed(), f"sabotage:{name}@dense", UNTIMED, 20)
    assert record["verdict"] == "FAIL" and EXPLAINED[name] in record["diagnosis"]["headline"]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["window-too-wide", "query-gradient-off", "scale-ignored", "dead-lse-zero"])
def test_low_precision_hides_no_fault(pool, name, dtype):
    record = pool.run(mixed(2, dtype), f"sabotage:{name}", UNTIMED, 20)
    assert record["verdict"] == "FAIL" and EXPLAINED[name] in record["diagnosis"]["headline"]


def test_faults_have_classes_and_requirements():
    assert len(faults.names()) >= 300 and len(set(faults.GROUPS.values())) == len(faults.CLASSES)
    assert all(re.fullmatch(r"[ABD]\d", broken) for kind in faults.FAULTS.values() for broken in kind.breaks)
    assert load("sabotage:wrong-shape").name == "wrong-shape on ring"
    assert load("sabotage:wrong-shape@dense").name == "wrong-shape on dense"


@pytest.mark.parametrize("spec, line", [
    ("sabotage:nothing", "unknown fault 'nothing'"), ("sabotage:windows-ignored", "nearest are window-ignored"),
    ("sabotage:local-lse@dense", "takes no other host, got 'dense'")])
def test_a_name_that_is_none_gets_one_line(spec, line):
    with pytest.raises(ValueError, match=line):
        load(spec)


@pytest.fixture(scope="module")
def bench():
    bench = Bench()
    yield bench
    bench.close()


@pytest.mark.parametrize("group", dict.fromkeys(faults.GROUPS.values()))
def test_every_fault_is_killed_by_the_smallest_case_that_is_known_to_show_it(bench, group):
    own = [name for name in faults.names() if faults.GROUPS[name] == group and not faults.FAULTS[name].lost]
    unknown = set(own) - set(shown.cases())
    assert not unknown, f"harness/sabotage/shown.json names no case that shows {', '.join(sorted(unknown))}"
    for name in own:
        case_id, _, timed = shown.case_of(name).partition(" ")
        case, = catalogue.select(case_id, worlds=(2, 3, 4))
        assert bench.verdict(Ask(case, bool(timed)), f"sabotage:{name}") == "FAIL", name
