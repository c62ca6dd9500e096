"""Error maps: what they show is what the verdict says, where it says it, and small."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import generate
from harness import by_owner, run
from harness.adapters.dense import Dense, Gathered, attend
from harness.adapters.ring import Ring
from harness.error_maps import CELLS, by_tokens, rows
from harness.inputs import DTYPES
from harness.problem import problem_of
from harness.ranks import run_threads
from harness.trial import UNTIMED, run_trial
from reference import budget
from reports import fields, record
from tests.harness.samples import causal, mixed

TENSORS = ("out", "lse", "dq", "dk", "dv")


def trial(case, implementation):
    outcome = run_threads(case.world, lambda ranks: run_trial(case, implementation, ranks, UNTIMED), 90)
    assert not outcome.raised and not outcome.stuck, outcome
    found = record.plain(outcome.results[0])
    fields.check("trial", json.loads(json.dumps(found, allow_nan=False)))
    return found


def answered(problem, name):
    """The truth in the dtype that an answer has."""
    wide = torch.float32 if name == "lse" and problem.case.dtype != "fp64" else DTYPES[problem.case.dtype]
    return getattr(problem.truth, name).to(wide)


def judged(problem, name, actual):
    return budget.judge({name: actual}, problem.truth, problem.twin, DTYPES[problem.case.dtype],
                        problem.mask.documents(problem.rows), problem.compared)[name]


@settings(max_examples=60, deadline=None)
@given(generate.strategy(max_tokens=48), st.sampled_from(TENSORS), st.integers(0, 2**30),
       st.sampled_from([0.0, 1e-3, 3.0, math.nan, math.inf]))
def test_the_largest_row_is_the_ratio_of_the_verdict(case, name, place, error):
    problem = problem_of(replace(case, inputs=replace(case.inputs, poison=None)), ())
    actual = answered(problem, name).clone()
    actual.view(-1)[place % actual.numel()] += error
    found, known = rows(name, actual, problem), judged(problem, name, actual)
    assert found.shape == actual.shape[:3] and not found.isnan().any()
    assert float(found.max()) == known.ratio
    if known.off is not None:
        assert bool((found[known.off] > 0).all())


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16"])
def test_a_row_that_is_wrong_alone_stands_alone(dtype):
    problem = problem_of(mixed(2, dtype), ())
    actual = problem.truth.out.to(DTYPES[dtype]).clone()
    actual[0, 1, 70] += 1
    over = rows("out", actual, problem) > 1
    assert over.nonzero().tolist() == [[0, 1, 70]]
    actual[0, 2, 71, 3] = math.nan
    lost = rows("out", actual, problem)
    assert math.isinf(lost[0, 2, 71]) and (lost > 1).sum() == 2 and lost[0, 1, 70] < math.inf


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2), st.integers(1, 5), st.integers(1, 90), st.integers(1, 40))
def test_bins_hold_every_row_once(batch, heads, tokens, bins):
    found = torch.rand(batch, heads, tokens, dtype=torch.float64)
    made = by_tokens(found, bins)
    edge, ratios = made["edges"], made["ratios"]
    assert len(ratios) == min(bins, tokens) == len(edge) - 1 and (edge[0], edge[-1]) == (0, tokens)
    for number, row in enumerate(ratios):
        part = found[:, :, edge[number]:edge[number + 1]].amax((0, 2))
        assert row == pytest.approx(part.tolist(), rel=6e-3)


@pytest.mark.parametrize("world", [1, 2, 8])
def test_a_passing_record_has_a_small_map_of_its_worst_tensor(world):
    found = trial(mixed(world, "bf16"), Ring())
    worst = max(found["deviations"], key=lambda one: one["ratio"])
    (one,) = found["error_maps"]
    assert one["tensor"] == worst["tensor"] and one["by"] == ["tokens", "heads"]
    assert max(map(max, one["ratios"])) == pytest.approx(worst["ratio"], rel=6e-3)
    assert sum(map(len, one["ratios"])) <= CELLS and len(json.dumps(one)) < 1600


class Skewed(Dense):
    """Rank 1 scales the values that rank 0 holds; under `wrong` it does so where it is asked at all."""

    wrong = 1.1

    def load(self, case, group, batch):
        own = self.layout(case, group.size)[group.rank]
        allowed = case.mask.allowed(batch, own.clamp(min=0), torch.arange(batch.tokens)) & (own >= 0)[:, None]
        allowed = allowed.repeat_interleave(case.shape.heads // allowed.shape[1], 1)

        def step(q, k, v):
            k, v = (Gathered.apply(x, group)[:, :, :batch.tokens] for x in (k, v))
            factor = torch.ones(batch.tokens, 1, dtype=v.dtype)
            if group.rank == 1:
                factor[self.layout(case, group.size)[0]] = self.wrong
            return attend(q, k, v * factor, allowed, case.scale)

        return step


class Lost(Skewed):
    wrong = math.nan


def owned(case, made):
    outcome = run_threads(case.world, lambda ranks: by_owner.run_owners(case, made, ranks), 60)
    assert not outcome.raised and not outcome.stuck, outcome
    return outcome.results[0]["ratios"]


@pytest.mark.parametrize("dtype", ["fp64", "bf16"])
def test_errors_are_told_of_the_owner_of_the_keys(dtype):
    case = causal(3, dtype, tokens=48)
    ratios, whole = owned(case, Skewed()), trial(case, Skewed())
    assert whole["verdict"] == "FAIL" and [len(row) for row in ratios] == [3, 3, 3]
    assert [(rank, own) for rank in range(3) for own in range(3) if ratios[rank][own] > 1] == [(1, 0)]
    out = next(one for one in whole["deviations"] if one["tensor"] == "out")
    assert ratios[1][0] == pytest.approx(out["ratio"], rel=0.05)


def test_what_is_not_finite_is_told_of_everybody_it_reaches():
    found = owned(causal(3, tokens=48), Lost())
    assert all(map(math.isinf, found[1])) and max(found[0] + found[2]) <= 1


def test_a_right_answer_has_no_owner_of_errors():
    assert owned(causal(3, tokens=48), Dense()) is None
    assert not by_owner.attributable(causal(1)) and not by_owner.attributable(causal(2, tokens=8192))


def test_a_failed_record_of_a_run_has_both_maps(tmp_path):
    path = tmp_path / "r.jsonl"
    code = run.main(["--in-process", "--iters", "0", "--impl", f"{__name__}:Skewed", "--cases",
                     "packed/straddle-contiguous-w2-fp64", "--json", str(path)])
    (found,) = record.read(path).trials
    assert code == 1 and found["verdict"] == "FAIL" and [one["by"] for one in found["error_maps"]] == [
        ["tokens", "heads"], ["ranks", "owners"]]
    assert [[ratio > 1 for ratio in row] for row in found["error_maps"][1]["ratios"]] == [[False, False], [True, False]]


def test_infinite_ratios_are_written_as_words():
    found = trial(causal(2), Lost())
    assert found["verdict"] == "FAIL" and "inf" in {ratio for row in found["error_maps"][0]["ratios"] for ratio in row}


def test_what_was_not_compared_has_no_map():
    class Refusing(Dense):
        def refuses(self, case, setting):
            return "not today"

    assert trial(causal(1), Refusing()).get("error_maps") is None
