"""A failing random case shrinks to a smallest one that fails in the same way, and its line brings it back."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from cases import catalogue, generate, showing, smaller
from cases.case import Inputs, Scenario, Shape
from cases.course import Course
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.regions import Regions, Router
from cases.rules.vision import Vision
from cases.rules.window import Window
from cases.topology import Topology
from harness.clock import Timing
from harness.runners import Threads
from harness.shrink import Budget, shrink

UNTIMED = Timing(iters=0)
EVERY = Mask((Causal(), Window(9), Documents((((3, 20), (0, 5), (9, 15)), ((1, 40),))),
              Padding((((38, 40),), ())), Vision((((0, 10), (1, 12), (0, 18)), ((2, 40),))),
              Regions(((16, 24), (8, 8, 24)), Router(1, 2, 4))))
LARGE = Scenario("mixed/large", "A1 A2 A3 A4 A5 A6 A7", EVERY, Shape(2, 40, 4, 2, 16, 24), 0.3,
                 Inputs("unbind", "ones", "huge", "qkv", 2.0)).at(3, "zigzag", "bf16")


def verdict(case, spec):
    return Threads().run(case, spec, UNTIMED, 20)["verdict"]


def test_every_smaller_case_is_whole_and_asks_less():
    seen = 0
    for reducer in smaller.REDUCERS:
        for case in reducer(LARGE):
            assert case.digest != LARGE.digest and case.rows().tokens == case.shape.tokens
            allowed = case.mask.allowed(case.rows(), *[torch.arange(case.shape.tokens)] * 2)
            assert allowed.shape[0] == case.shape.batch
            seen += 1
    assert seen > 100


def test_courses_and_topologies_become_plain():
    course = Course("load A, forward A, load B, forward B, backward B, backward A", "reused", repeats=2)
    case = replace(LARGE, course=course, topology=Topology("0,1,2|3,4,5", order="rotated"))
    assert {one.world for one in smaller.world(case)} == set()
    found = shrink(case, lambda other: other.topology.groups != "").case
    assert found.course == Course() and found.topology == Topology("0,1,2|3,4,5") and found.world == 3
    found = shrink(case, lambda other: other.course.repeats == 2).case
    assert found.course == Course(repeats=2) and found.topology == Topology() and found.world == 1


def test_tokens_leave_the_middle_and_the_rest_keeps_its_metadata():
    before, after = LARGE.rows(), smaller.without(LARGE, 10, 25).rows()
    for name in ("documents", "token_types", "padding", "token_regions"):
        whole = getattr(before, name)
        assert torch.equal(getattr(after, name), torch.cat([whole[:, :10], whole[:, 25:]], 1)), name
    whole = [torch.cat([before.selected[:, :, :10], before.selected[:, :, 25:]], 2), after.selected]
    assert all(torch.equal(*(x[..., slot] for x in whole)) for slot in range(after.selected.shape[-1]))


def test_a_search_ends_at_a_smallest_case():
    def fails(case):
        return case.world >= 2 and case.shape.tokens >= 5 and "causal" in str(case.mask)

    found = shrink(LARGE, fails)
    assert found.complete and fails(found.case)
    assert (found.case.world, found.case.shape.tokens, str(found.case.mask)) == (2, 5, "causal")
    assert found.case.shape == Shape(1, 5, 1, 1, 8) and found.case.inputs == Inputs() and found.case.dtype == "fp64"
    assert found.case.requirements == ("A1", "B1", "B2", "B4", "D1")


def test_every_case_of_the_catalogue_can_show_what_it_names():
    for case in catalogue.select("all", (2, 3), ("zigzag",), ("fp64",)):
        assert showing.shown(case).requirements == case.requirements, case.id


def test_ids_go_with_what_shows_them():
    poisoned = replace(LARGE, inputs=Inputs(strides="tail", poison="nan", grads="qk"), dtype="bf16", scale=0.5,
                       requirements=("A1", "A9", "B5", "B6", "B7", "B8", "D8", "D9"))
    assert showing.shown(poisoned) == poisoned
    plain = showing.shown(replace(poisoned, inputs=Inputs(), dtype="fp64", scale=None, world=1))
    assert plain.requirements == ("A1", "D8")


def test_a_search_keeps_its_budget_and_the_world_when_told():
    tried = []
    found = shrink(LARGE, lambda case: bool(tried.append(case)), Budget(trials=7))
    assert len(tried) == found.trials == 7 and found.case is LARGE and not found.complete
    found = shrink(LARGE, lambda case: True, keep_world=True)
    assert found.case.world == 3 and found.case.shape.tokens == 1 and not found.case.mask.rules


@pytest.mark.parametrize("name, rules, tokens", [
    ("window-too-wide", "window", 3), ("causal-dropped", "causal", 2), ("documents-ignored", "documents", 2),
    ("padding-ignored", "padding", 1)])
def test_a_faulty_ring_shrinks_to_the_rule_it_breaks(name, rules, tokens):
    spec = f"sabotage:{name}"
    case = replace(LARGE, dtype="fp64", scale=None, inputs=Inputs())
    assert verdict(case, spec) == "FAIL"
    found = shrink(case, lambda other: verdict(other, spec) == "FAIL", Budget(seconds=60)).case
    assert [rule.name for rule in found.mask.rules] == [rules] and found.shape.tokens <= tokens and found.world == 1
    again = generate.from_replay(generate.replay(found))
    assert verdict(again, spec) == "FAIL" and verdict(again, "ring") == "PASS"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(generate.strategy(max_tokens=48))
def test_hypothesis_finds_no_case_that_the_ring_fails(case):
    record = Threads().run(case, "ring", UNTIMED, 30)
    assert record["verdict"] == "PASS", generate.replay(case)
