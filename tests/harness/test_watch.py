"""Results are there when they are returned and stay; inputs, random numbers and bytes are looked at phase by phase."""

from dataclasses import replace

import pytest
import torch

from cases import catalogue
from cases.course import Course
from harness.adapters.ring import Ring
from harness.clock import Timing
from harness.implementation import load
from harness.trial import UNTIMED
from harness.watch import Returned, Untouched
from tests.harness.breakers import returning
from tests.harness.samples import causal, mixed
from tests.harness.test_trial import trial


@pytest.mark.parametrize(("fault", "line"), [
    ("output-filled-in-backward", "B1: out changed after the forward returned it (in the backward) on rank 0"),
    ("lse-filled-in-backward", "B2: lse changed after the forward returned it (in the backward) on rank 0"),
    ("output-when-scope-is-left", "B1: out changed after the forward returned it (when the scope was left) on rank 0"),
    ("gradients-when-scope-is-left", "B4: dq changed after the backward returned it (when the scope was left) on rank"),
    ("queries-scaled-until-backward", "B7: q was modified on rank 0 in the forward"),
    ("reseeds", "D3: torch's random numbers on cpu is left changed on rank 0"),
])
def test_what_comes_late_or_is_put_back_shows(fault, line):
    record = trial(mixed(), load(f"sabotage:{fault}"))
    assert record["verdict"] == "FAIL" and record["reason"].startswith(line)


@pytest.mark.parametrize("strides", ["unbind", "tail", "transposed"])
def test_a_view_that_is_put_back_is_told_by_its_name(strides):
    record = trial(causal(2, strides=strides), load("sabotage:queries-scaled-until-backward"))
    assert record["reason"] == "B7: q was modified on rank 0 in the forward"


def test_looks_name_the_first_change_and_what_lies_beside():
    whole = torch.zeros(4, 3)
    guard, results = Untouched(x=whole[:, 0]), Returned(out=torch.zeros(2))
    whole[1, 1] = 1
    guard.look("in the forward")
    whole[1, 1] = 0
    assert [found.headline for found in guard.breaches(1)] == ["memory beside x was modified on rank 1 in the forward"]
    results.look("in the backward")
    assert results.breaches(0) == []


@pytest.mark.parametrize("method", ["refuses", "layout"])
def test_no_call_between_ranks_before_all_agree(pool, method):
    record = pool.run(causal(), f"sabotage:{method}-after-collective", UNTIMED)
    requirement = "D7" if method == "refuses" else "contract"
    assert record["reason"] == f"{requirement}: {method} speaks to other ranks (all_reduce) on rank 0"


def test_bytes_of_every_step_and_lap_count(pool):
    repeated, once = (catalogue.select(name, (2,), dtypes=("fp64",))[0]
                      for name in ("schedule/every-bit", "audit/bytes-causal"))
    fault = "sabotage:bytes-after-first-step"
    for record in (pool.run(repeated, fault, UNTIMED), trial(repeated, load(fault))):
        assert record["reason"] == "D9: rank 0 sends 3.67 times the bytes that the mask needs in step 2"
    for record in (pool.run(once, fault, Timing(1, 1)), trial(once, load(fault), Timing(1, 1))):
        assert record["reason"] == "D9: rank 0 sends 1.25 times the bytes that the mask needs in lap 1"
    assert trial(once, Ring(), Timing(1, 2))["verdict"] == "PASS"


def test_a_buffer_shared_by_repeats_hides_no_other_bits():
    buffers, calls = {}, []

    def shaken(out, lse, *_):
        calls.append(1)
        place = buffers.setdefault((out.shape, len(calls) % 2), torch.empty_like(lse))
        return out, place.copy_(lse * (1 + 2.3e-16 * (len(calls) > 2)))

    made = returning(shaken)()
    made.deterministic = True
    regions = catalogue.select("state/only-selection", (2,), dtypes=("fp64",))[0]
    record = trial(replace(regions, course=Course(repeats=3)), made)
    assert record["verdict"] == "FAIL" and "lse" in record["reason"]
