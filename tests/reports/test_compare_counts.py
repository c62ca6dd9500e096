"""What a comparison says of counts, whole or not, and of passes that are held to less than before."""

import math

import pytest

from reports.compare.comparison import Rule
from reports.compare.states import OPPOSITE
from tests.reports.compared import SLOW, changed, compare, one, states_of, timed


@pytest.mark.parametrize(("path", "more", "metric", "state"), [
    ("measurement.bytes_sent", [4096, 4097], "bytes sent", "more bytes"),
    ("measurement.bytes_sent", [4095, 4097], "bytes sent by one rank", "more bytes"),
    ("measurement.messages", [2, 3], "messages", "more messages"),
    ("work.area_by_rank", [1000, 1011], "load max/mean", "more imbalance"),
    ("measurement.peak_bytes", [1, 2], "peak bytes", "new"),
    ("measurement.extra_bytes", [2**30, 3 * 2**30 + 1], "extra bytes", "more memory"),
])
def test_counts_are_held_exactly(path, more, metric, state):
    many = changed(one(), path, more)
    assert states_of(one(), many) == [(state, metric)]
    assert states_of(many, one()) == [(OPPOSITE.get(state, "missing"), metric)]


def test_a_count_that_is_no_longer_taken_is_missing():
    assert states_of(one(), changed(changed(one(), "measurement.bytes_sent", None), "measurement.messages", None)) == [
        ("missing", "bytes sent"), ("missing", "messages")]


@pytest.mark.parametrize("name", ["bytes_sent", "messages", "extra_bytes"])
@pytest.mark.parametrize(("values", "why"), [
    ([4096, math.nan], "1 of 2 are no count, such as nan"), ([4096], "1 numbers for 2 ranks"),
    ([4096, True], "such as True"), ([4096, -1], "such as -1"), ([1e308, 1e308], "such as 1e+308"),
    ([10**400, 1], "such as a number beyond all reason"), ([4096, "8"], "such as '8'"), ([4096, None], "such as None"),
])
def test_a_count_of_which_a_part_is_lost_is_no_improvement(name, values, why):
    part = changed(one(), f"measurement.{name}", values)
    found = compare([one()], [part])
    row = next(row for row in found.rows if row.state == "missing")
    assert why in row.note and row.new is None and found.code == 1
    assert not {state for state, _ in states_of(one(), part)} & {"fewer bytes", "fewer messages", "less memory"}
    assert {state for state, _ in states_of(part, one())} == {"new"}
    assert "unjudged" in {row.state for row in compare([part], [part]).rows}


def test_areas_of_any_size_have_an_imbalance():
    large = changed(one(), "work.area_by_rank", [1e299, 2e299])
    assert ("more imbalance", "load max/mean") in states_of(one(), large)
    assert ("missing", "load max/mean") in states_of(one(), changed(one(), "work.area_by_rank", [1e308, 1e308]))


@pytest.mark.parametrize("beside", [True, 1.5, -1, None, {"a": 1}, ["b", 2], "ring", [[1], {}]])
def test_whoever_was_asked_beside_may_be_anything(beside):
    slow = changed(timed("packed/a", SLOW), "measurement.beside", beside)
    assert compare([one()], [slow]).counts == {"slower": 1}


@pytest.mark.parametrize(("path", "before", "after", "metric"), [
    ("truth", "dense", "probes", "truth"), ("truth", "probes", "relations", "truth"), ("truth", "dense", None, "truth"),
    ("case.level", "strict", "required", "level"), ("case.level", "strict", None, "level"),
])
def test_a_pass_that_is_held_to_less_is_weaker_and_regresses(path, before, after, metric):
    strong, weak = (changed({**one(), "truth": "dense"}, path, value) for value in (before, after))
    found = compare([strong], [weak])
    assert [(row.state, row.metric, row.old, row.new) for row in found.rows if row.state == "weaker"] == [
        ("weaker", metric, before, after or (None if metric == "truth" else "required"))]
    assert found.code == 1 and compare([strong], [weak], Rule(allowed=frozenset({"weaker"}))).code == 0
    assert states_of(weak, strong) == [("stronger", metric)]


def test_tensors_that_are_no_longer_compared_are_told_by_name():
    fewer = {**one(), "deviations": one()["deviations"][:3]}
    (row,) = [row for row in compare([one()], [fewer]).rows if row.state == "weaker"]
    assert (row.metric, row.old, row.new) == ("tensors compared", "dk dv", "-")
    assert states_of(one(), {**one(), "deviations": []}) == [("weaker", "tensors compared")]
    assert states_of(fewer, one()) == [("stronger", "tensors compared")]


def test_errors_that_come_nearer_to_the_line_are_no_state():
    near = {**one(), "deviations": [{**each, "ratio": 0.99} for each in one()["deviations"]]}
    assert states_of(one(), near) == []


def test_untimed_runs_are_held_to_the_bytes_of_their_first_step():
    untimed = changed({**one(), "traffic": {"bytes_sent": [8, 8], "messages": [1, 1]}}, "measurement", None)
    assert states_of(untimed, changed(untimed, "traffic.bytes_sent", [8, 9])) == [("more bytes", "bytes sent")]


def test_memory_may_grow_where_it_is_said_and_peaks_are_compared_in_equal_company():
    large = changed(one(), "measurement.extra_bytes", [3 * 2**30 + 2**25, 1])
    assert states_of(one(), large, Rule(memory=0.02)) == [] and states_of(one(), large, Rule(memory=0.01)) != []
    peaks = [changed(one(), "measurement.peak_bytes", [x, 1]) for x in (5, 9)]
    assert states_of(*peaks) == [("more memory", "peak bytes")]
    assert states_of(peaks[0], changed(peaks[1], "measurement.beside", ["other"])) == []
