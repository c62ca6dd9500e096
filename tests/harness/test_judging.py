"""Answers that ranks compare side by side get the verdict that one rank alone would give them."""

from dataclasses import replace

import pytest
import torch

from cases import catalogue
from harness import judging, ranks
from harness.adapters.dense import Dense
from harness.attempt import Answer
from harness.contract import Breach, positions_of
from harness.judging import judge, side_by_side
from harness.problem import problem_of
from harness.ranks import run_threads

CASE = catalogue.select("packed/straddle-contiguous-w2-bf16", (2,))[0]
NAMES = ("out", "lse", "dq", "dk", "dv")
COUNT = 5


def answers(wrong, broken=()):
    """Those of the twin, which are right, but for the numbers of `wrong` and `broken`."""
    made = []
    for number in range(COUNT):
        problem = problem_of(CASE, (), number)
        tensors = {name: getattr(problem.twin, name) * (1.5 if number in wrong else 1.0) for name in NAMES}
        made.append(Answer(tensors, [Breach("D3", "moved", "still", "moved")] * (number in broken), problem, number))
    return made


def judged(world, wrong, broken=()):
    """Verdict, what decided it, and how many verdicts rank 0 knew; only rank 0 has tensors, as after a gather."""
    layout = positions_of(Dense().layout(CASE, 2), 1)

    def work(ranks):
        own = answers(wrong, broken)
        held = own if ranks.group.rank == 0 else [replace(answer, tensors={}) for answer in own]
        found = side_by_side(held, layout, ranks)
        return (*judge(held, layout, found), len(found)) if ranks.group.rank == 0 else None

    outcome = run_threads(world, work, 60)
    assert not outcome.raised
    return outcome.results[0]


@pytest.mark.parametrize("wrong", [(), (0,), (1,), (3, 4), (1, 2)])
@pytest.mark.parametrize("world", [2, 3])
def test_the_verdict_is_that_of_one_rank_alone(world, wrong):
    alone, decides, none = judged(1, wrong)
    together, decided, known = judged(world, wrong)
    assert none == 0 and known == COUNT - len(wrong)
    assert (together.name, together.reason) == (alone.name, alone.reason)
    assert [one.record() for one in together.deviations] == [one.record() for one in alone.deviations]
    assert decided.number == decides.number and (not wrong or decides.number == wrong[0])
    alike = [judge([one], positions_of(Dense().layout(CASE, 2), 1), {})[0].nearest for one in answers(wrong)]
    assert wrong or alike[decides.number] == together.nearest == max(alike, key=lambda one: one.ratio)


def test_a_broken_promise_comes_before_numbers_that_another_rank_found_right():
    verdict, decides, known = judged(2, (), broken=(1,))
    assert (verdict.name, verdict.reason, decides.number, known) == ("FAIL", "D3: moved", 1, COUNT - 1)


def test_what_another_rank_cannot_tell_is_raised_where_it_is_reported(monkeypatch):
    def none(*_):
        raise ValueError("bf16 cannot hold out")

    monkeypatch.setattr(judging, "compare_numbers", none)
    monkeypatch.setattr("harness.compare.compare_numbers", none)
    layout = positions_of(Dense().layout(CASE, 2), 1)
    found = run_threads(2, lambda ranks: side_by_side(answers(()), layout, ranks), 60)
    assert not found.raised and found.results[0] == {}
    with pytest.raises(ValueError, match="cannot hold"):
        judge(answers(()), layout, {})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_rank_that_holds_nothing_can_be_heard(dtype):
    for shape in ((1, 4, 0, 8), (1, 4, 0), (2, 0, 3, 1)):
        found = ranks._unpacked(*ranks._packed(torch.empty(shape, dtype=dtype)))
        assert found.shape == shape and found.dtype == dtype


def test_that_one_of_several_answers_offers_no_lse_is_told():
    layout, made = positions_of(Dense().layout(CASE, 2), 1), answers(())
    del made[2].tensors["lse"]
    verdict, _ = judge(made, layout, {})
    assert verdict.name == "PASS" and {one.tensor: one.ratio for one in verdict.deviations}["lse"] is None
    for answer in made:
        answer.tensors.pop("dk", None)
    del made[1:]
    made.append(answers(())[1])
    assert {one.tensor: one.ratio for one in judge(made, layout, {})[0].deviations}["dk"] is not None
