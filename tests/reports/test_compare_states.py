"""What a comparison says of verdicts, times, cases and environments; what it says turned round and of itself."""

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.compare import comparison, environment, states
from reports.compare.comparison import Rule
from reports.compare.states import OPPOSITE, Row
from tests.reports.compared import SLOW, TEN, changed, compare, one, side, states_of, timed


@pytest.mark.parametrize(("before", "after", "state"), [
    ("PASS", "FAIL", "broke"), ("PASS", "ERROR", "broke"), ("SKIP", "FAIL", "broke"), ("FAIL", "PASS", "fixed"),
    ("ERROR", "SKIP", "refuses"), ("FAIL", "SKIP", "refuses"), ("SKIP", "ERROR", "broke"),
    ("FAIL", "FAIL", "still wrong"), ("FAIL", "ERROR", "still wrong"),
    ("PASS", "SKIP", "refuses"), ("SKIP", "PASS", "answers"),
])
def test_verdicts(before, after, state):
    found = compare([one(verdict=before)], [one(verdict=after)])
    (row,) = found.rows
    assert (row.state, row.metric, row.old, row.new) == (state, "verdict", before, after)
    assert found.regressed == (state in ("broke", "refuses"))


@pytest.mark.parametrize("verdict", ["FAIL", "ERROR", "SKIP"])
def test_what_fails_is_never_faster_and_sends_no_fewer_bytes(verdict):
    quick = changed(timed("packed/a", [x / 9 for x in TEN], verdict=verdict), "measurement.bytes_sent", [0, 0])
    assert states_of(one(), quick) == [("refuses" if verdict == "SKIP" else "broke", "verdict")]
    assert {state for state, _ in states_of(quick, one())} <= {"fixed", "answers"}


def test_slower_and_faster_need_samples_that_lie_apart():
    slow = timed("packed/a", SLOW, TEN)
    (row,) = [row for row in compare([one()], [slow]).rows if row.state == "slower"]
    assert (row.metric, row.ratio, row.old) == ("step ms", pytest.approx(2, rel=0.01), pytest.approx(10))
    assert 1.9 < row.low < row.ratio < row.high < 2.1
    assert states_of(slow, one()) == [("faster", "step ms")]


def test_a_seed_of_its_own_with_an_equal_digest_is_told_by_its_name_and_counts_are_held():
    other = changed(changed(timed("packed/a", SLOW), "case.seed", 8), "measurement.bytes_sent", [4096, 4097])
    found = compare([one()], [other])
    assert [(row.state, row.metric, row.old, row.new) for row in found.rows] == [
        ("more bytes", "bytes sent", 8192, 8193), ("incomparable", "seed", "7", "8")]


@pytest.mark.parametrize(("verdict", "state", "code"), [
    ("FAIL", "new failure", 1), ("ERROR", "new failure", 1), ("PASS", "new", 0), ("SKIP", "lone skip", 0)])
def test_a_new_trial_that_is_wrong_regresses_where_new_ones_are_not_allowed(verdict, state, code):
    old, new = [one()], [one(), timed("packed/z", TEN, verdict=verdict)]
    found = compare(old, new)
    assert found.counts[state] == 1 and found.code == code
    assert compare(old, new, Rule(allowed=frozenset({"new"}))).code == 0


def test_a_refusal_that_is_gone_is_no_loss():
    assert compare([one(), timed("packed/z", TEN, verdict="SKIP")], [one()]).code == 0
    assert compare([one(), timed("packed/z", TEN, verdict="FAIL")], [one()]).code == 1


def test_too_little_that_could_be_compared_is_code_2_unless_it_is_allowed():
    old = [timed(f"packed/{name}", TEN) for name in "abcd"]
    other = [changed(each, "case.digest", "f" * 12) for each in old]
    allowed = Rule(allowed=frozenset({"incomparable"}))
    for few, words in ((0, "none of 4 trials comparable (another case)"), (1, "1 of 4 trials comparable")):
        found = compare(old, old[:few] + other[few:])
        assert found.code == 2 and found.total.startswith(words)
        assert compare(old, old[:few] + other[few:], allowed).code == 0
    assert compare(old, old[:2] + other[2:]).code == 0
    wrong = [{**other[0], "verdict": "FAIL"}, *other[1:]]
    assert compare(old, wrong).code == 1 and "1 broke" in compare(old, wrong).total
    assert compare(old, old, torch="2.14.0").code == 2 and "another environment" in compare(old, old, torch="2").total


def test_skips_alone_compare_nothing_and_are_left_out_of_what_was_asked():
    skipped = [timed(f"packed/{name}", TEN, verdict="SKIP") for name in "abcd"]
    assert compare(skipped, skipped).code == 2
    passed = [timed(f"packed/{name}", TEN) for name in "ab"]
    assert compare([*passed, *skipped[2:]], [*passed, *skipped[2:]]).code == 0
    found = compare(passed, skipped[:2], Rule(allowed=frozenset(states.ABSENT)))
    assert found.code == 2 and found.total.startswith("none of 2 trials comparable (skipped on one side)")


def test_the_strict_level_is_lost_and_won():
    held, lost = ({**one(), "deviations": [{"tensor": "out", "ratio": ratio, "level": "strict"}]} for ratio in (0.5, 7))
    assert states_of(held, lost) == [("strict lost", "strict level")] and compare([held], [lost]).regressed
    assert states_of(lost, held) == [("strict won", "strict level")]


def test_another_case_or_environment_is_incomparable_but_a_break_is_told_and_counts_are_where_machines_are_alike():
    other = changed(timed("packed/a", SLOW), "case.digest", "f" * 12)
    assert states_of(one(), changed(other, "measurement.bytes_sent", [9999, 9999])) == [("incomparable", "digest")]
    assert states_of(one(), {**other, "verdict": "FAIL"}) == [("broke", "verdict"), ("incomparable", "digest")]
    more = changed(timed("packed/a", SLOW), "measurement.bytes_sent", [9999, 9999])
    told = compare([one()], [more], torch="2.14.0")
    assert [(row.state, row.old, row.new) for row in told.rows] == [
        ("more bytes", 8192, 19998), ("incomparable", "torch 2.13.0", "torch 2.14.0")]
    assert told.changed == [("torch", "2.13.0", "2.14.0")]
    assert states_of(one(), more, device="cuda") == [("incomparable", "environment")]


@pytest.mark.parametrize(("name", "value", "same"), [
    ("commit", "fff", True), ("host", "b", True), ("python", "3.12.1", True), ("matmul_tflops", 700.0, True),
    ("ringcheck", "0.2", True), ("device", "cuda", False), ("devices", ["cpu"], False), ("processor", "arm", False),
    ("cores", 4, False), ("threads", 2, False), ("torch", "2.14", False), ("backend", "nccl", False),
    ("variables", {"NCCL_ALGO": "Ring"}, False), ("variables", {"CI": "1"}, True),
])
def test_what_decides_whether_times_may_be_compared(name, value, same):
    found = compare([one()], [timed("packed/a", SLOW)], **{name: value})
    assert bool(found.changed) != same and ("slower" in found.counts) == same


def test_a_kernel_that_changed_is_told_and_slower_all_the_same():
    slow = changed(timed("packed/a", SLOW), "implementation.kernel", "eager")
    slow = changed(slow, "measurement.bound_step_s", [0.011])
    row = compare([one()], [slow]).rows[0]
    assert row.state == "slower" and row.note == "kernel cpu -> eager, kernel alone 1.96"


def test_runs_that_do_not_tell_their_environment_are_not_timed():
    lost = side([timed("packed/a", SLOW)])
    lost[0].runs[0].header = {}
    (row,) = comparison.compare(lost, copy.deepcopy(lost)).rows
    assert row.state == "incomparable" and row.old == "environment not recorded"


def test_new_and_missing_trials_and_implementations():
    other = changed(one(), "implementation.spec", "mine:ring")
    found = compare([one(), timed("packed/b", TEN)], [one(), other, timed("packed/c", TEN, verdict="FAIL")])
    assert found.counts == {"new failure": 1, "missing": 1, "new": 1, "insignificant": 1} and found.code == 1
    assert found.total == "2 regressions: 1 new failure, 1 missing; 1 new, 1 insignificant"
    assert [row.note for row in found.rows if row.new == "FAIL"] == ["because"]
    assert not compare([one(), timed("packed/b", TEN)], [one()], Rule(allowed=frozenset(states.ABSENT))).regressed


def test_nothing_in_common_is_nothing_to_compare():
    with pytest.raises(ValueError, match="nothing to compare"):
        compare([one()], [timed("packed/b", TEN)])


def test_the_latest_record_of_a_trial_counts_also_of_a_case_that_changed_since():
    early, late = "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"
    before = changed(one(verdict="FAIL"), "case.digest", "e" * 12)
    old = side([one()], time=late) + side([before], time=early)
    assert comparison.compare(old, side([one()])).counts == {"insignificant": 1}


def test_devices_and_seeds_of_one_name_are_apart_and_what_is_left_is_incomparable():
    seeds = [changed(changed(one(), "case.seed", seed), "case.digest", str(seed)) for seed in (7, 8, 9)]
    assert compare(seeds[:2], seeds[1::-1]).counts == {"insignificant": 1}
    assert states_of(seeds[0], seeds[2]) == [("incomparable", "digest")]
    assert states_of(one(), changed(one(), "implementation.device", "cuda")) == [("incomparable", "environment")]


VERDICTS = st.sampled_from(["PASS", "PASS", "PASS", "FAIL", "ERROR", "SKIP"])
TIMES = st.one_of(st.none(), st.lists(st.floats(1e-4, 10), max_size=12), st.sampled_from([TEN, SLOW]))
NUMBERS = st.one_of(st.none(), st.lists(st.integers(0, 5), min_size=2, max_size=2))


@st.composite
def trials(draw):
    made = timed(f"packed/{draw(st.sampled_from('abcd'))}", draw(TIMES) or [], draw(TIMES), verdict=draw(VERDICTS))
    made["measurement"] |= {name: draw(NUMBERS) for name in ("bytes_sent", "messages", "peak_bytes", "extra_bytes")}
    made["work"]["area_by_rank"], made["picture"] = draw(NUMBERS), None
    made["case"]["digest"] = draw(st.sampled_from(["0", "0", "1"]))
    made["implementation"]["device"] = draw(st.sampled_from(["cpu", "cpu", "cuda"]))
    made["deviations"] = [{"tensor": draw(st.sampled_from(["out", "dq"])), "level": "strict",
                           "ratio": draw(st.sampled_from([0.5, math.nan, 3, None]))}]
    made["truth"] = draw(st.sampled_from(["dense", "probes", None]))
    return made


@given(st.lists(trials(), min_size=1, max_size=6))
def test_compared_with_itself_nothing_regresses(made):
    found = comparison.compare(side(made), side(copy.deepcopy(made)))
    assert not found.regressed and set(found.counts) <= {"unjudged", "insignificant", "same", "still wrong"}


@given(st.lists(trials(), min_size=1, max_size=6), st.lists(trials(), min_size=1, max_size=6),
       st.sampled_from(["2.13.0", "2.14.0"]))
def test_turned_round_every_state_is_its_opposite(before, after, torch):
    before, after = side([timed("packed/z", TEN), *before]), side([timed("packed/z", TEN), *after], torch=torch)
    opposite = OPPOSITE | {there: back for back, there in OPPOSITE.items() if back != "new failure"}
    there, back = comparison.compare(before, after).rows, comparison.compare(after, before).rows

    def told(row):
        return row.case, row.implementation, row.metric

    def turned(row):
        if row.metric == "verdict" and {row.old, row.new} in ({"SKIP", "FAIL"}, {"SKIP", "ERROR"}):
            return "refuses" if row.state == "broke" else "broke"
        if row.metric == "trial" and row.state == "missing":
            return "new failure" if row.old in ("FAIL", "ERROR") else "new"
        return opposite.get(row.state, row.state)

    assert sorted((*told(row), turned(row), str(row.new)) for row in there) == sorted(
        (*told(row), row.state, str(row.old)) for row in back)


@given(st.lists(trials(), min_size=1, max_size=6), st.randoms())
def test_the_order_of_trials_does_not_matter(made, random):
    unique = list({(one["case"]["id"], one["implementation"]["device"]): one for one in made}.values())
    shuffled = random.sample(unique, len(unique))
    new = side([timed("packed/a", SLOW), timed("packed/b", SLOW)])
    try:
        rows = comparison.compare(side(unique), new).rows
    except ValueError:
        return
    assert comparison.compare(side(shuffled), new).rows == rows


def test_rows_for_a_page_have_exactly_their_fields_and_are_worst_first():
    new = [one(verdict="FAIL"), changed(timed("packed/b", SLOW), "measurement.bytes_sent", [9, 9999])]
    rows = comparison.rows(side([one(), timed("packed/b", TEN), timed("packed/c", TEN)]),
                           side([*new, timed("packed/c", TEN)]))
    assert [row["state"] for row in rows] == ["broke", "slower", "slower", "more bytes"]
    assert all(tuple(row) == ("state", "case", "implementation", "metric", "old", "new", "ratio", "low", "high")
               for row in rows)


def test_every_state_has_a_place_and_regressions_are_the_worst():
    assert len(set(states.STATES)) == len(states.STATES) and set(OPPOSITE) == set(states.REGRESSIONS)
    assert set(OPPOSITE.values()) <= {*states.OTHERS, "missing"} and list(states.MEANING) == list(states.STATES)
    assert set(states.ALLOWED) <= set(states.STATES) and "broke" not in states.ALLOWED
    rows = [Row(state, "a", "ring", "m") for state in reversed(states.STATES)]
    assert [row.state for row in states.ordered(rows)] == list(states.STATES)


def test_a_folder_of_a_key_is_readable_and_of_that_key_alone():
    headers = [{"environment": {"device": "cuda", "devices": ["NVIDIA H200"] * 2, "backend": "nccl", "torch": torch,
                                "cores": cores}} for torch, cores in (("2.11.0+cu130", 8), ("2.11.0+cu130", 9))]
    names = [environment.folder(environment.key(header)) for header in headers]
    told = "cuda-2-x-nvidia-h200-nccl-torch-2.11.0-cu130-"
    assert names[0] != names[1] and all(one.startswith(told) for one in names)
    hostile = environment.key({"environment": {"device": "../../etc", "torch": "a/b\n" * 99}})
    assert set(environment.folder(hostile)) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert not environment.folder(hostile).startswith(".") and len(environment.folder(hostile)) < 100
